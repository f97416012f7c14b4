"""`onepos report`, and the page that `onepos fit --report` writes."""

from __future__ import annotations

import warnings
from contextlib import nullcontext
from dataclasses import fields
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Annotated, Any

from typer import Option

from onepos.cli import options
from onepos.cli.completing import merge_answers, read_with_answers
from onepos.cli.console import Advance, progress, show_json
from onepos.cli.fitting import frozen_features, image_progress, items_of, naming_table
from onepos.cli.inputs import as_inputs, check_folder, spread_known

if TYPE_CHECKING:
    from onepos.datasets.dataset import LabelledRows
    from onepos.estimator import SinglePositiveClassifier
    from onepos.labels import Labels

# Fewer rows, or labels, cannot be judged by models that did not see them.
_LEAST_ROWS, _LEAST_LABELS = 10, 2


@options.grouped
def report(
    model: options.ModelArgument,
    row_options: options.RowOptions,
    draw_options: options.DrawOptions,
    image_options: options.ImageOptions,
    data: Annotated[
        str | None,
        Option(metavar="DATA", help="What the model was fitted to, with its labels; adds all that needs rows."),
    ] = None,
    unseen: Annotated[
        bool,
        Option("--unseen", help="The model did not learn from DATA: its own quality and calibration are shown too."),
    ] = False,
    min_precision: Annotated[
        float, Option(min=0.01, max=1, help="Of the labels that could be added, this share is to be right.")
    ] = 0.9,
    cardinality: Annotated[float | None, Option(help="Mean number of labels per row, if known.")] = None,
    out: Annotated[Path, Option(help="The page (HTML).")] = Path("report.html"),
    seed: options.Seed = 0,
    quiet: options.Quiet = False,
    as_json: options.Json = False,
) -> None:
    """Write one page about a model: its data, class priors, quality, and the rows it doubts.

    --labels may name a long table (item, label, value) of answers, such as the review page exports.
    """
    check_folder(out)
    _check_options(data, row_options, draw_options, unseen, cardinality)

    from onepos.estimator import SinglePositiveClassifier
    from onepos.files import write_atomically
    from onepos.report.fit_facts import describe_model
    from onepos.report.fit_page import render_fit

    if data is not None:
        _check_model(model)
        given = _read(model, data, row_options, draw_options, seed)
    fitted = SinglePositiveClassifier.load(model)
    facts = describe_model(fitted) | {"created": datetime.now(UTC).isoformat(timespec="seconds"), "model": str(model)}
    if data is None:
        facts["more"] = _name_data(model)
    else:
        rows, labels, ids = given
        settings = {"min_precision": min_precision, "cardinality": cardinality, "random_state": seed}
        with progress(quiet or as_json) as advance, naming_table(rows.source or rows.name):
            labels = spread_known(labels, [str(name) for name in fitted.classes_], rows.name, ids)
            facts |= _describe(fitted, rows, labels, ids, image_options, settings, unseen, advance)
        facts["data"] = data
    write_atomically(out, render_fit(facts))
    if as_json:
        show_json(facts)
    elif not quiet:
        print(f"report: {out}")
        if data is None:
            print("\n".join(facts["more"]))


def _check_options(
    data: str | None,
    rows: options.RowOptions,
    draw: options.DrawOptions,
    unseen: bool,
    cardinality: float | None,
) -> None:
    """Refuse options about rows where there are none."""
    if data is not None:
        return
    given = {"unseen": unseen or None, "cardinality": cardinality}
    for group, usual in ((rows, options.RowOptions()), (draw, options.DrawOptions())):
        names = {field.name: getattr(group, field.name) for field in fields(group)}
        given |= {name: value for name, value in names.items() if value != getattr(usual, name)}
    used = [name for name, value in given.items() if value is not None]
    if used:
        option = {"id_column": "id"}.get(used[0], used[0]).replace("_", "-")
        raise ValueError(f"--{option} is about the rows of --data, which is missing. Add --data DATA, or leave it out.")


def _check_model(folder: Path) -> None:
    """Refuse, before the rows are read, what is no model folder."""
    from onepos.model_folder import read_columns

    read_columns(folder)


def _read(
    model: Path, data: str, row_options: options.RowOptions, draw_options: options.DrawOptions, seed: int
) -> tuple[LabelledRows, Labels, list[str]]:
    """The rows as the model takes them, all that is known of their labels, and their ids."""
    from onepos.model_folder import read_columns

    rows, observed, answers, ids = read_with_answers(data, row_options, draw_options, seed, "any", read_columns(model))
    return rows, merge_answers(observed, answers, ids), [str(name) for name in ids]


def _describe(
    fitted: SinglePositiveClassifier,
    rows: LabelledRows,
    labels: Labels,
    ids: list[str],
    images: options.ImageOptions,
    settings: dict[str, Any],
    unseen: bool,
    advance: Advance,
) -> dict[str, Any]:
    """What the rows add to the page."""
    from onepos.report.fit_facts import describe_completion, describe_labels, describe_probabilities

    groups = rows.groups
    inputs = X = as_inputs(rows, getattr(fitted, "feature_names_in_", None))
    keeps = TemporaryDirectory(ignore_cleanup_errors=True) if fitted.kind == "images" else nullcontext()
    with keeps as folder:  # features of images are needed twice
        if folder is not None:
            X, is_read = frozen_features(fitted, inputs, _with_cache(images, folder), advance)
            inputs = [file for file, is_kept in zip(inputs, is_read, strict=True) if is_kept]
            ids = [name for name, is_kept in zip(ids, is_read, strict=True) if is_kept]
            rows, labels = rows.take(is_read), labels.take(is_read)
            groups = None if groups is None else groups[is_read]
        probability = fitted.predict_proba(inputs, **image_progress(fitted, advance))
    facts = describe_labels(labels, groups) | describe_probabilities(probability)
    if len(labels) < _LEAST_ROWS or len(labels.classes) < _LEAST_LABELS:
        return facts | {
            "warnings": [
                f"The rows are judged from {_LEAST_ROWS} rows and {_LEAST_LABELS} labels on; these are {len(labels)} "
                f"rows with {len(labels.classes)} labels, so nothing is shown of their quality and of doubtful rows."
            ]
        }

    from onepos.completion import complete_labels

    with warnings.catch_warnings(action="ignore", category=UserWarning):  # the page shows the one that is kept
        done = complete_labels(
            X,
            labels,
            groups=groups,
            items=ids,
            on_progress=lambda what, step, steps: advance(what, step - 1, steps),
            **settings,
        )
    return facts | describe_completion(done, items_of(rows, ids), probability if unseen else None)


def _with_cache(images: options.ImageOptions, folder: str) -> options.ImageOptions:
    from dataclasses import replace

    return images if images.cache is not None else replace(images, cache=Path(folder))


def _name_data(model: Path) -> list[str]:
    """What the page would show with --data, and the command."""
    return [
        "With its data the page also shows what is known of the labels, the quality without full labels, labels that "
        "could be added, labels that occur together, and the rows the models doubt:",
        f"onepos report {model} --data ROWS --label COLUMN",
    ]


def write_report_of_fit(out: Path, model: SinglePositiveClassifier, rows: LabelledRows, facts: dict[str, Any]) -> None:
    """Write the page of `onepos report`, as far as the facts are at hand after a fit."""
    from onepos.files import write_atomically
    from onepos.report.fit_facts import describe_probabilities
    from onepos.report.fit_page import render_fit

    if model.kind == "rows":  # images would have to be decoded once more
        facts |= describe_probabilities(model.predict_proba(as_inputs(rows, getattr(rows, "feature_names", None))))
    facts["more"] = [
        "What takes longer is shown by onepos report: the quality without full labels, labels that could be added, and "
        "the rows the models doubt.",
        f"onepos report {facts['model']} --data {facts['data']} --label COLUMN",
    ]
    write_atomically(out, render_fit(facts))
