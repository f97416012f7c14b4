"""The command line: one command is one call of the library. Heavy imports wait until a command needs them."""

from __future__ import annotations

import sys
import warnings
from typing import Annotated, Any, NoReturn

import typer

from onepos.cli.bench import bench_app
from onepos.cli.catalogue import data_app, list_app
from onepos.cli.completing import complete
from onepos.cli.console import complain
from onepos.cli.exporting import export
from onepos.cli.models import demo, evaluate, fit, predict, priors
from onepos.cli.reporting import report
from onepos.cli.serving import serve
from onepos.cli.usage import explain_usage, is_usage
from onepos.reading import shorten

app = typer.Typer(
    name="onepos",
    help="Multi-label classifiers from one positive label per example.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)
_WRONG_INPUT = (ValueError, TypeError, FileNotFoundError, IsADirectoryError, NotADirectoryError)
# What remains after Ctrl-C, by command.
_AFTER_STOP = {
    "fit": "No model was written. With --checkpoint FILE, finished epochs are kept and the same command continues "
    "after the last one; the preparation before the first epoch is repeated.",
    "bench": "Finished runs are kept; the same command makes the others.",
}

for command in (demo, fit, predict, evaluate, priors, complete, report, serve, export):
    app.command()(command)
app.add_typer(bench_app, name="bench")
app.add_typer(data_app, name="data")
app.add_typer(list_app, name="list")


@app.callback(invoke_without_command=True)
def _root(
    version: Annotated[bool, typer.Option("--version", help="Print the version and stop.")] = False,
    debug: Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.")] = False,
) -> None:
    if version:
        from onepos import __version__

        print(f"onepos {__version__}")
        raise typer.Exit


def main(arguments: list[str] | None = None) -> None:
    """Run the command line; 0 done, 1 the work failed, 2 the input is wrong. No traceback unless --debug."""
    arguments = sys.argv[1:] if arguments is None else arguments
    debug = "--debug" in arguments
    arguments = [argument for argument in arguments if argument != "--debug"]
    warnings.showwarning = _show_warning
    try:
        code = app(arguments, prog_name="onepos", standalone_mode=False)
    except Exception as error:  # whatever failed, the user reads one sentence
        if is_usage(error):
            _stop_for_usage(error, arguments)
        if debug:
            raise
        complain(_as_sentence(error))
        raise SystemExit(2 if isinstance(error, _WRONG_INPUT) else 1) from None
    if code == 130:  # Ctrl-C
        complain(f"stopped. {_AFTER_STOP.get(arguments[0], '')}".strip())
        code = 1
    raise SystemExit(code or 0)


def _as_sentence(error: Exception) -> str:
    """What to print about an error; one that no part of onepos explains is a fault of onepos."""
    text = shorten(str(error)).rstrip()
    if text.endswith((".", "?", "…", ")")) or isinstance(error, ImportError):
        return text
    what = f"{type(error).__name__}: {text}" if text else type(error).__name__
    return f"onepos failed in a way that it should not ({what}). Run the command again with --debug, and report it."


def _stop_for_usage(error: Any, arguments: list[str]) -> NoReturn:
    """Say what is wrong with the command line; a group of commands without one shows its help."""
    if type(error).__name__ == "NoArgsIsHelpError":
        error.show()
    else:
        complain(explain_usage(error, arguments))
    raise SystemExit(error.exit_code) from None


def _show_warning(message: Warning | str, category: type[Warning], *_: Any, **__: Any) -> None:
    if issubclass(category, UserWarning):
        print(f"warning: {shorten(str(message))}", file=sys.stderr)
