"""`onepos demo`, `fit`, `predict`, `evaluate` and `priors`."""

from __future__ import annotations

import json
import time
import warnings
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Annotated, Any

from typer import Argument, Option

from onepos.cli import options
from onepos.cli.console import progress, show_json, show_number, show_table
from onepos.cli.fitting import (
    image_progress,
    make_classifier,
    naming_table,
    show_columns,
    show_fit,
    train_model,
    without_skipped,
)
from onepos.cli.inputs import (
    as_inputs,
    check_folder,
    check_model_folder,
    judge_labels,
    match_labels,
    observe,
    parse_parameters,
    parse_time,
    read_inputs,
    read_rows,
)
from onepos.cli.label_files import check_declared
from onepos.cli.options import Estimator
from onepos.validation import without_nan

if TYPE_CHECKING:
    from onepos.datasets.dataset import LabelledRows
    from onepos.estimator import SinglePositiveClassifier
    from onepos.labels import Labels
    from onepos.priors import PriorEstimate


def demo(
    out: Annotated[Path, Option(help="The report page.")] = Path("demo-report.html"),
    seed: options.Seed = 0,
    quiet: options.Quiet = False,
    as_json: options.Json = False,
) -> None:
    """Images of digits, one label each: estimate, review 50, complete, and compare methods; write a report page."""
    from onepos.bench.demo import run_demo
    from onepos.files import write_atomically
    from onepos.report.demo_page import describe_demo, render_demo, summary_tables

    check_folder(out)
    with progress(quiet) as advance:
        result = describe_demo(run_demo(seed, progress=advance))
    write_atomically(out, render_demo(result))
    if as_json:
        show_json(result)
    elif not quiet:
        for table in summary_tables(result):
            show_table(list(table.header), table.texts(), title=table.title)
            print()
        print(f"report: {out}")


@options.grouped
def fit(
    data: options.DataArgument,
    row_options: options.RowOptions,
    draw_options: options.DrawOptions,
    train_options: options.TrainOptions,
    image_options: options.ImageOptions,
    network_options: options.NetworkOptions,
    table_options: options.TableOptions,
    out: Annotated[Path, Option(help="The model folder.")] = Path("onepos-model"),
    report: Annotated[Path | None, Option(help="Also write a report page (HTML) to this file.")] = None,
    save_draw: Annotated[Path | None, Option(help="Write the draw to this file.")] = None,
    method: options.Method = "crisp-plus",
    parameters: Annotated[
        list[str] | None, Option("--set", metavar="NAME=VALUE", help="A parameter of the method; repeatable.")
    ] = None,
    recipe: Annotated[
        str | None, Option(metavar="DATASET", help="Use the published settings of the method for this data set.")
    ] = None,
    validation: Annotated[str | None, Option(metavar="DATA", help="Rows that decide which epoch is kept.")] = None,
    fine_tune: Annotated[
        bool, Option("--fine-tune", help="Images: train the whole network, not only its last layer; slow on a CPU.")
    ] = False,
    seed: options.Seed = 0,
    checkpoint: Annotated[
        Path | None,
        Option(
            help="A file that keeps the state of the fit, with files beside it; the same command continues from it."
        ),
    ] = None,
    time_limit: Annotated[
        str | None, Option(metavar="TIME", help="End after this time with what there is: 60s, 10m, 2h, or seconds.")
    ] = None,
    quiet: options.Quiet = False,
    as_json: options.Json = False,
) -> None:
    """Train a model from rows with one observed label each and write it to a folder."""
    started = time.perf_counter()
    check_model_folder(out)
    check_folder(checkpoint, save_draw, report)
    seconds_allowed = parse_time(time_limit)
    settings = train_options.parameters()
    check_declared(row_options, [*(table_options.text or ()), *(table_options.categorical or ())])
    rows = read_rows(data, row_options, is_raw=True if table_options.is_given else None)
    needed, is_raw = getattr(rows, "feature_names", None), hasattr(rows, "frame")
    held_out = None if validation is None else read_rows(validation, row_options, needed, is_raw)
    observed = observe(rows, draw_options, seed, settings.get("positives", "single"), save_draw)

    from onepos.bench.recipes import Recipe, check_recipe, find_recipe
    from onepos.estimator import is_full
    from onepos.methods import make_method

    chosen = Recipe()
    if recipe:
        check_recipe(method, recipe)
        chosen = find_recipe(method, recipe, rows.Y if rows.known_negative is None and is_full(rows.Y) else None)
    made = make_method(method, **(chosen.parameters | parse_parameters(parameters)))
    tables = table_options.parameters()
    model = make_classifier(rows, made, network_options, image_options, fine_tune, random_state=seed, **tables)
    known = model.get_params(deep=False)  # a recipe for images may name what rows do not have
    model.set_params(**{name: value for name, value in (chosen.plan | settings).items() if name in known})
    spent = time.perf_counter() - started
    allowed = None if seconds_allowed is None else max(0.1, seconds_allowed - spent)
    train_model(model, rows, observed, quiet, held_out, checkpoint, allowed)
    model.save(out)
    if checkpoint is not None:
        from onepos.training.checkpoint import remove_checkpoint

        remove_checkpoint(checkpoint)  # not before: until here it is all there is of the training
    seconds = time.perf_counter() - started

    from onepos.report.fit_facts import count_known, describe_labels, describe_model

    known = observed.take([row for row in range(len(observed)) if row not in getattr(model, "skipped_", {})])
    summary = describe_model(model, method) | describe_labels(known, rows.groups)
    counts = count_known(observed)
    if report is not None:
        from onepos.cli.reporting import write_report_of_fit

        write_report_of_fit(report, model, rows, summary | {"seconds": seconds, "data": data, "model": str(out)})
    if as_json:
        best, history = summary["best_epoch"] - 1, summary["history"]
        show_json(
            {
                "model": str(out),
                "best_epoch": best,
                "validation": history["validation"][best] if history["validation"] else None,
                "loss": history["loss"][-1],
                "class_prior": dict(zip(summary["labels"], summary["class_prior"], strict=True)),
                "known": counts,
            }
        )
    elif not quiet:
        unit, width = ("row", f", {model.n_features_in_} features") if model.kind == "rows" else ("image", "")
        per = f"{counts['yes'] / counts['rows']:.2f} observed labels per {unit}"
        print(f"read {data}: {rows.n_samples} {unit}s{width}, {rows.n_labels} labels, {per}")
        print(_describe_known(rows, counts, unit))
        show_columns(model, row_options)
        show_fit(model, summary, out, report)


def _describe_known(rows: LabelledRows, counts: dict[str, int], unit: str) -> str:
    entries = f"known labels: {counts['yes']} yes, {counts['no']} no, {counts['unknown']} unknown"
    reviewed = f"{counts['rows_reviewed']} of {counts['rows']} {unit}s are fully reviewed"
    n_groups = 0 if rows.groups is None else len(set(rows.groups.tolist()))
    return f"{entries}; {reviewed}" + (f"; {n_groups} groups of {unit}s, which are not split" if n_groups else "")


@options.grouped
def predict(
    model: options.ModelArgument,
    data: Annotated[
        str, Argument(metavar="DATA", help="As for `onepos fit`, without labels; a folder of images may have any form.")
    ],
    input_options: options.InputOptions,
    image_options: options.ImageOptions,
    rule: options.DecisionOptions,
    id_column: Annotated[
        str | None,
        Option("--id", metavar="COLUMN", help="Column of a table to put first, in place of row numbers or file names."),
    ] = None,
    out: Annotated[Path, Option(help="The table to write (.csv, .csv.gz, .parquet, .json or .jsonl).")] = Path(
        "predictions.csv"
    ),
    quiet: options.Quiet = False,
) -> None:
    """Write the probability of every label for every row, and the set of predicted labels."""
    from onepos.cli.outputs import check_output, make_table, write_table
    from onepos.labels import list_labels

    check_output(out)
    fitted = _load(model, image_options)
    _check_rule(fitted, rule)
    X, ids = read_inputs(fitted, data, options.RowOptions(**vars(input_options)), id_column)
    with naming_table(Path(data).name):
        probability = _predict(fitted, X, quiet)
    decisions = fitted.decide(probability, **rule.parameters())
    names = [str(name) for name in fitted.classes_]
    what, index = ("row", "row") if fitted.kind == "rows" else ("image", "file")
    first: Any = ids or (range(len(probability)) if what == "row" else X)
    table, column = make_table(
        names, probability, list_labels(names, probability, decisions), first, id_column or index
    )
    write_table(out, table, column)
    if quiet:
        return
    is_read = ~(probability != probability).any(1)  # all but skipped images
    count = decisions[is_read].sum(1).mean()
    print(f"{is_read.sum()} {what}s, {count:.2f} labels predicted per {what} on average; written to {out}")
    is_text = out.name.lower().endswith((".csv", ".gz"))
    if is_text and any(mark in name for name in names for mark in ';"'):
        print(f"In the column '{column}' a label that contains ';' or '\"' is in quotation marks, as in CSV.")
    if count < 0.5 and not rule.parameters():
        print(
            f"Most {what}s got no label, because few probabilities exceed the threshold. With --threshold prior each "
            f"label is predicted as often as its estimated share, with --top-k 1 every {what} gets one label."
        )


@options.grouped
def evaluate(
    model: options.ModelArgument,
    data: options.DataArgument,
    row_options: options.RowOptions,
    image_options: options.ImageOptions,
    rule: options.DecisionOptions,
    per_label: Annotated[bool, Option("--per-label", help="Also print the scores of each label.")] = False,
    as_json: options.Json = False,
) -> None:
    """Score a model on fully labelled rows."""
    import onepos.metrics as metrics

    fitted = _load(model, image_options)
    _check_rule(fitted, rule)
    features, is_raw = getattr(fitted, "feature_names_in_", None), getattr(fitted, "encoder_", None) is not None
    rows = read_rows(data, row_options, features, is_raw)
    names = [str(name) for name in fitted.classes_]
    Y, unknown = match_labels(rows, names)
    with naming_table(rows.source or rows.name):
        probability = _predict(fitted, as_inputs(rows, features), as_json)
    is_read = ~(probability != probability).any(1)  # all but skipped images
    Y, probability = Y[is_read], probability[is_read]
    decisions = fitted.decide(probability, **rule.parameters())
    scores = metrics.evaluate(Y, probability, decisions=decisions)
    left_out = {name: int(scores.pop(name, 0)) for name in ("unknown_entries", "rows_left_out")}
    table = metrics.per_label(Y, probability, label_names=names, decisions=decisions)
    what = "row" if fitted.kind == "rows" else "image"
    remarks, facts = judge_labels(rows, is_read, Y, unknown, what)
    if as_json:
        labels = json.loads(table.reset_index(names="label").to_json(orient="records"))  # NaN becomes null
        result = {"n_rows": len(Y), "warnings": remarks, **facts, **left_out, "scores": without_nan(scores)}
        show_json(result | ({"labels": labels} if per_label else {}))
        return
    for remark in remarks:
        print(f"warning: {remark}\n")
    listed = [
        [m.title, "higher" if m.greater_is_better else "lower", f"{scores[name]:.4f}"]
        for name, m in metrics.METRICS.items()
    ]
    show_table(["metric", "better", "value"], listed, title=f"{len(Y)} {what}s, {len(names)} labels")
    if left_out["unknown_entries"]:
        print(f"left out: {_describe_left_out(left_out, Y, what)}")
    if per_label:
        print()
        show_table(["label", *table.columns], [[show_number(v) for v in row] for row in table.itertuples()])


def _describe_left_out(left_out: dict[str, int], Y: Any, what: str) -> str:
    entries, rows = left_out["unknown_entries"], left_out["rows_left_out"]
    text = f"{entries} of the {Y.size} entries, which are unknown"
    if rows:
        text += f"; and of the means over {what}s {rows} of {len(Y)} {what}s, with unknown labels and no known one"
    return text


def _check_rule(fitted: SinglePositiveClassifier, rule: options.DecisionOptions) -> None:
    """Refuse a wrong rule before the rows are read: decide for one row that is made up."""
    if rule.parameters():
        import numpy as np

        fitted.decide(np.full((1, len(fitted.classes_)), 0.5), **rule.parameters())


def _load(folder: Path, images: options.ImageOptions) -> SinglePositiveClassifier:
    from onepos.estimator import SinglePositiveClassifier

    fitted = SinglePositiveClassifier.load(folder)
    return fitted.set_params(**images.parameters()) if fitted.kind == "images" else fitted


def _predict(fitted: SinglePositiveClassifier, X: Any, quiet: bool) -> Any:
    with progress(quiet or fitted.kind == "rows") as advance:
        return fitted.predict_proba(X, **image_progress(fitted, advance))


@options.grouped
def priors(
    data: options.DataArgument,
    row_options: options.RowOptions,
    image_options: options.ImageOptions,
    draw_options: options.DrawOptions,
    network_options: options.NetworkOptions,
    method: options.Method = "crisp-as-published",
    epochs: options.Epochs = None,
    estimator: Annotated[
        Estimator,
        Option(
            help="bracket, better on most data, uses held-out probabilities; --method, --epochs and, for rows, "
            "--network do nothing to it. bbe, the paper's, uses scores of a network trained on these rows."
        ),
    ] = Estimator.bracket,
    cardinality: Annotated[float | None, Option(help="Mean number of labels per row, if known; for bracket.")] = None,
    delta: Annotated[
        float | None, Option(help="Probability with which an interval may miss, by default 0.01; for bbe.")
    ] = None,
    tau: Annotated[float | None, Option(help="Weight of the confidence term, by default 0.01; for bbe.")] = None,
    positives: options.Positives = None,
    device: options.Device = None,
    seed: options.Seed = 0,
    out: Annotated[Path | None, Option(help="Also write the table here (CSV).")] = None,
    quiet: options.Quiet = False,
    as_json: options.Json = False,
) -> None:
    """Estimate how common each label really is, with intervals, from one observed label per row."""
    check_folder(out)
    if quiet and not as_json and out is None:
        raise ValueError("--quiet prints no table, so the result needs --out FILE or --json; add one of them.")
    given = {"cardinality": cardinality, "delta": delta, "tau": tau}
    settings: dict[str, Any] = {name: value for name, value in given.items() if value is not None}
    _refuse_unused(settings, estimator)
    rows = read_rows(data, row_options)
    observed = observe(rows, draw_options, seed, positives or "single")

    chosen = options.TrainOptions(epochs=epochs, positives=positives, device=device).parameters()
    model = make_classifier(rows, method, network_options, image_options, **chosen, random_state=seed)
    score = _held_out_scores if estimator == Estimator.bracket else _trained_scores
    scores, known = score(model, rows, observed, quiet)
    estimate = _estimate(scores, known, str(estimator), settings)
    if estimate.warning:
        warnings.warn(estimate.warning, UserWarning, stacklevel=2)
    n_rows = len(known)
    header = ["label", "observed", "share", "prior", "lower", "upper", "reliable"]
    counts, numbers = known.observed.sum(0, dtype=int), (estimate.prior, estimate.lower, estimate.upper)
    columns = [counts.tolist(), (counts / n_rows).tolist(), *(without_nan(each.tolist()) for each in numbers)]
    entries = list(zip(rows.label_names, *columns, estimate.reliable.tolist(), strict=True))
    table = [[*map(show_number, entry[:-1]), "yes" if entry[-1] else "no"] for entry in entries]
    if out is not None:
        from onepos.files import write_atomically
        from onepos.report.tables import csv_table

        write_atomically(out, csv_table(table, header))
    if as_json:
        show_json([dict(zip(header, entry, strict=True)) for entry in entries])
    elif not quiet:
        level = 0.9 if estimator == Estimator.bracket else 1 - settings.get("delta", 0.01)
        show_table(header, table, title=f"{n_rows} rows; intervals at {level:g} per label")
        print()
        _explain_priors(estimate, estimator)


def _estimate(scores: Any, known: Labels, estimator: str, settings: dict[str, Any]) -> PriorEstimate:
    """Class priors; with "bracket", fully reviewed rows are no draws of one label, and count if chance picked them."""
    import numpy as np

    from onepos.priors import estimate_priors

    observed, sample, drawn = known.observed, known.is_sample, ~known.is_complete
    if estimator != Estimator.bracket:
        return estimate_priors(scores, observed, estimator=estimator, **settings)
    if not observed[drawn].any():
        drawn = np.ones(len(drawn), bool)
    labelled = observed[sample] if sample.sum() >= 2 else None
    return estimate_priors(scores[drawn], observed[drawn], estimator=estimator, labelled=labelled, **settings)


def _refuse_unused(settings: dict[str, Any], estimator: Estimator) -> None:
    """Before the training: an option that the estimator does not use."""
    is_bbe = estimator == Estimator.bbe
    unused, other = ({"cardinality"}, Estimator.bracket) if is_bbe else ({"delta", "tau"}, Estimator.bbe)
    for name in settings.keys() & unused:
        raise ValueError(f"--{name} is not for --estimator {estimator}. Leave it out or add --estimator {other}.")


def _explain_priors(estimate: PriorEstimate, estimator: Estimator) -> None:
    """Lines below the table: how far it can be relied on."""
    doubtful = int((~estimate.reliable).sum())
    count = f"{doubtful} of {len(estimate.prior)} labels have"
    if estimator == Estimator.bracket:
        low, high = estimate.cardinality_interval
        sure = "as given" if low == high else f"probably {low:.2f} to {high:.2f}"
        print(f"labels per row: {estimate.cardinality:.2f}, {sure}; all priors scale with it.")
        why = "an interval that reaches below half or above double the estimate."
    else:
        print(
            "The scores are of the rows the network was trained on, as in the paper: the more it has memorised them, "
            "the further priors and intervals fall below the truth."
        )
        why = (
            "too few observed positives for the guarantee behind the estimate; there it may be off in either direction."
        )
    if doubtful:
        print(f"{count} {why}")


def _trained_scores(
    model: SinglePositiveClassifier, rows: LabelledRows, observed: Labels, quiet: bool
) -> tuple[Any, Labels]:
    """Logits of the rows the model is trained on, and their labels; without skipped images."""
    with TemporaryDirectory(ignore_cleanup_errors=True) as folder:  # features of images are needed twice
        if model.kind == "images":
            model.set_params(cache=model.get_params()["cache"] or folder)
        train_model(model, rows, observed, quiet)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # skipped images were named before
            logits = model.decision_function(as_inputs(rows, getattr(model, "feature_names_in_", None)))
    kept = [row for row in range(len(observed)) if row not in getattr(model, "skipped_", {})]
    return without_skipped(logits, model), observed.take(kept)


def _held_out_scores(
    model: SinglePositiveClassifier, rows: LabelledRows, observed: Labels, quiet: bool
) -> tuple[Any, Labels]:
    """Held-out P(observed label | row), and the labels; without skipped images."""
    from onepos.labels import Labels
    from onepos.methods.crossfit import held_out_probabilities
    from onepos.tables.choice import make_encoder

    observed = Labels.read(observed, len(observed), positives=str(model.positives))
    X, groups = as_inputs(rows), rows.groups
    with progress(quiet) as advance:
        if model.kind == "images":
            from onepos.images.features import ImageFeatures

            known = ImageFeatures().get_params()
            frozen = ImageFeatures(**{name: value for name, value in model.get_params().items() if name in known})
            features = frozen.fit(X).transform(X, **image_progress(model, advance))
            is_read = ~(features != features).any(1)
            X, observed = features[is_read], observed.take(is_read)
            groups = None if groups is None else groups[is_read]
        elif (encoder := make_encoder("auto", X)) is not None:
            X = encoder.fit(X).transform(X)
        advance("cross-fitting", -1, 1)
        fit = held_out_probabilities(X, observed, groups=groups, random_state=model.random_state)
        advance("cross-fitting", 0, 1)
    return fit.probability.numpy(), observed
