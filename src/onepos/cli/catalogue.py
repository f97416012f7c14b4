"""`onepos data` and `onepos list`: data sets, methods and metrics by name."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from typer import Argument, Option, Typer

from onepos.cli.console import progress, show_json, show_number, show_table
from onepos.cli.inputs import read_rows
from onepos.cli.options import DataArgument, DataRoot, Json, Quiet, RowOptions, grouped

data_app = Typer(help="Data sets by name: list, describe, fetch.", no_args_is_help=True, rich_markup_mode=None)
list_app = Typer(help="Methods, metrics and data sets.", no_args_is_help=True, rich_markup_mode=None)


@list_app.command("datasets")
@data_app.command("list")
def data_list(data_root: DataRoot = None, as_json: Json = False) -> None:
    """The data sets known by name, and whether they are on this machine."""
    from onepos.datasets import DATASETS
    from onepos.datasets import data_root as find_root

    root = find_root(data_root)
    here = {
        name: source.kind == "generated"
        or (root / "tabular" / f"{name}.npz").is_file()
        or (source.kind == "features" and all((root / "images" / file.name).is_file() for file in source.files))
        for name, source in DATASETS.items()
    }
    if as_json:
        show_json({name: {"title": source.title, "available": here[name]} for name, source in DATASETS.items()})
        return
    rows = [
        [name, f"{s.n_samples}", f"{s.n_features}", f"{s.n_labels}", "yes" if here[name] else "no", s.title]
        for name, s in DATASETS.items()
    ]
    show_table(["name", "rows", "features", "labels", "here", "about"], rows, title=f"data folder: {root}")


@data_app.command("info")
@grouped
def data_info(data: DataArgument, options: RowOptions, as_json: Json = False) -> None:
    """Describe a data set: sizes, labels per row, class priors."""
    facts = read_rows(data, options).describe()
    if as_json:
        show_json(facts)
    else:
        rows = [[name.replace("_", " "), show_number(value)] for name, value in facts.items()]
        show_table(["fact", "value"], rows, title=data)


@data_app.command("get")
def data_get(
    name: Annotated[str, Argument(help="A name from `onepos data list`.")],
    source: Annotated[Path | None, Option("--from", help="Take the publisher's files from this folder.")] = None,
    verify: Annotated[bool, Option("--verify/--no-verify", help="Check the files' checksums.")] = True,
    data_root: DataRoot = None,
    quiet: Quiet = False,
) -> None:
    """Fetch a data set from its publisher, or take files you already have; checksums are verified."""
    from onepos.datasets import get_dataset

    megabyte = 1 << 20
    with progress(quiet) as advance:

        def report(file: str, so_far: int, total: int | None) -> None:
            advance(f"{file} (MiB)", so_far // megabyte, max((total or so_far) // megabyte, 1))

        path = get_dataset(name, root=data_root, source_folder=source, progress=report, verify=verify)
    print(path)


@list_app.command("methods")
def list_methods(as_json: Json = False) -> None:
    """The methods, what they need, and their parameters."""
    from onepos.methods import METHODS

    rows = [
        [
            name,
            ", ".join(sorted(method.requires | method.privileged)) or "–",
            ", ".join(sorted(method.privileged)) or "–",
            "used" if method.uses_negatives else "–",
            ", ".join(f"{key}={value}" for key, value in method.get_params().items()) or "–",
            (type(method).__doc__ or "").split("\n")[0],
        ]
        for name, method in ((name, factory()) for name, factory in METHODS.items())
    ]
    _list(["name", "needs", "privileged", "known no", "parameters", "about"], rows, as_json)


@list_app.command("metrics")
def list_metrics(as_json: Json = False) -> None:
    """The metrics and which way is better."""
    from onepos.metrics import METRICS

    rows = [[n, m.title, "higher" if m.greater_is_better else "lower", m.uses] for n, m in METRICS.items()]
    _list(["name", "title", "better", "computed from"], rows, as_json)


def _list(header: list[str], rows: list[list[str]], as_json: bool) -> None:
    if as_json:
        show_json([dict(zip(header, row, strict=True)) for row in rows])
    else:
        show_table(header, rows)
