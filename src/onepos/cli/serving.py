"""`onepos serve`: the review page of a data set."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from typer import Option

from onepos.cli import options
from onepos.cli.console import progress
from onepos.cli.fitting import frozen_features, items_of, naming_table
from onepos.cli.inputs import as_inputs, check_folder, check_model_folder, observe, read_ids, read_rows, spread_known

if TYPE_CHECKING:
    from onepos.estimator import SinglePositiveClassifier
    from onepos.server.trial import Trial

_LEAST_TOKEN = 16


@options.grouped
def serve(
    model: options.ModelArgument,
    row_options: options.RowOptions,
    draw_options: options.DrawOptions,
    image_options: options.ImageOptions,
    data: Annotated[str, Option(metavar="DATA", help="What the model was fitted to, with its labels.")],
    answers: Annotated[Path, Option(help="The file of answers (SQLite); made if there is none.")] = Path("reviews.db"),
    improved: Annotated[
        Path | None,
        Option(help="The folder of the model that 'Improve' fits with the answers [default: MODEL-improved]."),
    ] = None,
    min_precision: Annotated[
        float, Option(help="Of the labels that are suggested, at least this share is to be right.")
    ] = 0.9,
    host: Annotated[str, Option(help="The address to listen on; other than 127.0.0.1 only with --token-file.")] = (
        "127.0.0.1"
    ),
    port: Annotated[int, Option(min=0, max=65535, help="The port; 0 takes a free one.")] = 8765,
    token_file: Annotated[
        Path | None,
        Option(metavar="FILE", help="A file with the token that reviewers must enter; made if there is none."),
    ] = None,
    host_name: Annotated[
        list[str] | None,
        Option(metavar="NAME", help="A name under which the server is reached, beside its address; repeatable."),
    ] = None,
    open_page: Annotated[bool, Option("--open", help="Open the page in the browser.")] = False,
    seed: options.Seed = 0,
    quiet: options.Quiet = False,
) -> None:
    """Serve a page on which people review the doubtful items of a data set."""
    _check_web()
    check_folder(answers)
    out = improved or model.with_name(f"{model.name.removesuffix('-improved')}-improved")
    check_model_folder(out)
    token = _read_token(host, token_file)
    rows = read_rows(data, row_options, *_columns_of(model))
    ids = read_ids(data, rows, row_options)
    observed = observe(rows, draw_options, seed, "any")

    from onepos.estimator import SinglePositiveClassifier
    from onepos.server.judgement import Completing
    from onepos.server.review import Review
    from onepos.server.store import Store

    fitted = SinglePositiveClassifier.load(model)
    names = [str(name) for name in fitted.classes_]
    labels = spread_known(observed, names, rows.name, ids)
    with progress(quiet) as advance, naming_table(rows.source or rows.name):
        X = inputs = as_inputs(rows, getattr(fitted, "feature_names_in_", None))
        if fitted.kind == "images":
            X, is_read = frozen_features(fitted, inputs, image_options, advance)
            ids = [name for name, is_kept in zip(ids, is_read, strict=True) if is_kept]
            rows, labels = rows.take(is_read), labels.take(is_read)
            inputs = as_inputs(rows)
        judge = Completing(X, ids, min_precision, seed, model, inputs, out, getattr(rows, "groups", None))
        store = Store(answers)
        review = Review.start(store, items_of(rows, ids), labels, judge, name=rows.name, seed=seed, tell=advance)
    try:
        _run(review, fitted, rows, inputs, (host, port, token, tuple(host_name or ())), open_page, quiet)
    finally:
        review.close()


def _check_web() -> None:
    try:
        import fastapi  # noqa: F401
        import uvicorn  # noqa: F401
    except ImportError as error:
        raise ImportError(
            f"onepos serve needs {error.name}, which is not installed. Run: pip install 'onepos[web]'"
        ) from None


def _read_token(host: str, file: Path | None) -> str | None:
    """The token of a file, which is made where there is none; None where none is needed."""
    from onepos.server.guard import is_loopback, make_token

    if file is None:
        if not is_loopback(host):
            raise ValueError(
                f"--host {host} can be reached from other machines, so it needs a token. Add --token-file FILE; the "
                "file is made if there is none."
            )
        return None
    check_folder(file)
    if not file.exists():
        with os.fdopen(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as handle:
            handle.write(f"{make_token()}\n")
        print(f"wrote a new token to {file}; give it to the reviewers")
    token = file.read_text(encoding="utf-8").strip()
    if len(token) < _LEAST_TOKEN or not token.isascii() or not token.isprintable() or " " in token:
        raise ValueError(
            f"{file} must hold a token of at least {_LEAST_TOKEN} letters and digits; it holds {len(token)} "
            "characters. Delete the file to get a new one."
        )
    return token


def _columns_of(model: Path) -> tuple[list[str] | None, bool | None]:
    """The columns a model takes of a table, and whether their cells stay as they are."""
    from onepos.model_folder import read_columns

    return read_columns(model)


def _run(
    review: Any,
    fitted: SinglePositiveClassifier,
    rows: Any,
    inputs: Any,
    place: tuple[str, int, str | None, tuple[str, ...]],
    open_page: bool,
    quiet: bool,
) -> None:
    """Listen until Ctrl-C."""
    from onepos.server.app import create_app
    from onepos.server.listen import listen
    from onepos.server.trial import Trial

    host, port, token, names = place
    image_shape = getattr(rows, "image_shape", None)

    def load(folder: str) -> Trial:
        return Trial(type(fitted).load(folder), inputs, image_shape)

    app = create_app(review, Trial(fitted, inputs, image_shape), host=host, token=token, names=names, on_improved=load)

    def on_ready(address: str) -> None:
        if not quiet:
            print(
                f"{review.counts()['done']} of {len(review.items.ids)} items are reviewed; answers: {review.store.path}"
            )
        print(f"review page: {address}   (Ctrl-C ends the server)", flush=True)
        if open_page:
            import webbrowser

            webbrowser.open(address)

    listen(app, host, port, on_ready)
