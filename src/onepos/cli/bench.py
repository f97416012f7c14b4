"""`onepos bench`: run a study, see how far it is, report it, compare two."""

from __future__ import annotations

import dataclasses
import os
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from onepos.cli.console import complain, progress, show_json, show_table

if TYPE_CHECKING:
    from onepos.bench.store import Status, Store
    from onepos.bench.study import Run

bench_app = typer.Typer(
    help="Compare methods fairly: run a study, see how far it is, report it, compare two.",
    no_args_is_help=True,
    rich_markup_mode=None,
)

StudyArgument = Annotated[
    str,
    typer.Argument(
        metavar="STUDY",
        help="A study file (.toml), or the name of one that ships with onepos: smoke, fair, …",
    ),
]
FolderArgument = Annotated[Path, typer.Argument(metavar="FOLDER", help="The folder given to `onepos bench run`.")]
Json = Annotated[bool, typer.Option("--json", help="Print the result as JSON.")]


@bench_app.command("run")
def bench_run(
    study: StudyArgument,
    out: Annotated[Path | None, typer.Option(help="Folder of the results [default: results/NAME].")] = None,
    workers: Annotated[
        int | None,
        typer.Option(min=1, help="Processes on this machine [default: one per core, one for an accelerator]."),
    ] = None,
    device: Annotated[str, typer.Option(help="auto, cpu, cuda or mps.")] = "cpu",
    labels: Annotated[
        str | None, typer.Option(help="single-positive: choose epochs and settings without any full label.")
    ] = None,
    seed: Annotated[
        int | None, typer.Option(min=0, help="Other than the study's: other splits, single positives and weights.")
    ] = None,
    data: Annotated[str | None, typer.Option(help="Only these data sets of the study, by commas.")] = None,
    retry: Annotated[bool, typer.Option("--retry", help="Also make runs again that failed.")] = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="No progress, no table.")] = False,
    as_json: Json = False,
) -> None:
    """Make the runs of a study that are missing; it may be stopped and started again, also on several machines."""
    from onepos.bench.runner import check_data, run_study
    from onepos.bench.store import Store
    from onepos.bench.study_file import read_studies

    name, studies = read_studies(study, labels=labels, seed=seed)
    only = data.split(",") if data else None
    n_workers = workers or (os.cpu_count() or 1 if device == "cpu" else 1)
    statuses = []
    chosen = {
        folder: only if only is None or len(studies) == 1 else [each for each in only if each in plan.datasets]
        for folder, plan in studies.items()
    }
    for folder, plan in studies.items():
        check_data(plan, chosen[folder])
    for folder, plan in studies.items():
        store = Store((out or Path("results") / name) / folder)
        if retry:
            store.retry(plan.runs())
        with progress(quiet or as_json) as advance:
            show = partial(_advance, advance, plan.name)
            status = run_study(plan, store, device=device, workers=n_workers, only=chosen[folder], on_progress=show)
        statuses.append(status)
        if not quiet:
            _show_status(store, plan.runs(), as_json)
        if status.failed:
            of_all = f"{status.failed} of {len(plan.runs())} runs failed"
            complain(f"{of_all}. See why: onepos bench status {store.folder}")
    if any(status.failed for status in statuses):
        raise typer.Exit(1)


@bench_app.command("status")
def bench_status(
    folder: FolderArgument,
    watch: Annotated[
        bool, typer.Option("--watch", help="Look again every second until nothing is left to do.")
    ] = False,
    as_json: Json = False,
) -> None:
    """How many runs are done, running, failed or waiting, and why the failed ones failed."""
    from onepos.bench.store import find_stores

    for store in find_stores(folder).values():
        runs = store.study().runs()
        if watch:
            with progress(as_json) as advance:
                while (status := store.status(runs)).settled < len(runs):
                    _advance(advance, f"{store.folder}", status)
                    time.sleep(1)
                _advance(advance, f"{store.folder}", status)
        _show_status(store, runs, as_json)


@bench_app.command("report")
def bench_report(
    folder: Annotated[
        Path,
        typer.Argument(metavar="FOLDER", help="The folder given to `onepos bench run`, or a file of `bench pack`."),
    ],
    out: Annotated[Path | None, typer.Option(help="Where to write [default: FOLDER/report].")] = None,
    as_json: Json = False,
) -> None:
    """Write the report of a study, or of each of several: one page, and its tables as Markdown, LaTeX and CSV."""
    from onepos.report.study_page import write_reports

    beside = folder.parent if folder.is_file() else folder
    written = write_reports(folder, out or beside / "report")
    if as_json:
        show_json([str(path) for path in written])
    else:
        for path in written:
            print(path)


@bench_app.command("compare")
def bench_compare(
    first: Annotated[str, typer.Argument(metavar="A", help="Results: a folder, or a file of `onepos bench pack`.")],
    second: Annotated[str, typer.Argument(metavar="B", help="Those to compare with them.")],
    metric: Annotated[
        str | None, typer.Option(help="Metrics to compare, by commas [default: those of a report; one is listed].")
    ] = None,
    out: Annotated[Path | None, typer.Option(help="Write all that is compared to this Markdown file.")] = None,
    as_json: Json = False,
) -> None:
    """Is B better or worse than A? Every data set, method and metric that both have, paired by trial where possible."""
    from onepos.bench.comparison import SHOWN, compare_studies
    from onepos.bench.results import read_results
    from onepos.files import write_atomically
    from onepos.report.compare import (
        count_table,
        default_metric,
        difference_table,
        explain,
        render_comparison,
    )

    names = (first, second)
    metrics = _read_metrics(metric) if metric else SHOWN
    comparison = compare_studies(read_results(first), read_results(second), metrics, names=names)
    if out is not None:
        write_atomically(out, render_comparison(comparison, names))
    if as_json:
        show_json(comparison.to_json())
        return
    for table in (
        *(difference_table(comparison, name) for name in (metrics if metric else [default_metric(comparison)])),
        count_table(comparison),
    ):
        show_table(list(table.header), table.texts(), title=table.title)
        print()
    print(f"A: {first}\nB: {second}", *explain(comparison), sep="\n")


@bench_app.command("pack")
def bench_pack(
    folder: FolderArgument,
    out: Annotated[Path, typer.Option(help="The file to write, such as fair.jsonl.gz.")],
    compact: Annotated[
        bool, typer.Option("--compact", help="Leave out the curves by epoch and the priors by label.")
    ] = False,
) -> None:
    """Put a study and its finished runs into one file, to keep or to send."""
    from onepos.bench.store import Store

    print(f"{Store(folder).pack(out, compact=compact)} runs: {out}")


@bench_app.command("unpack")
def bench_unpack(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="Written by `onepos bench pack`.")],
    folder: FolderArgument,
) -> None:
    """Take the runs of a file into a folder; those that are there already stay as they are."""
    from onepos.bench.store import Store

    print(f"{Store(folder).unpack(file)} runs: {folder}")


def _advance(advance: Callable[[str, int, int], None], name: str, status: Status) -> None:
    advance(name, status.settled - 1, sum(dataclasses.astuple(status)))


def _read_metrics(text: str) -> list[str]:
    from onepos.metrics import METRICS
    from onepos.validation import suggest

    names = text.split(",")
    for name in names:
        if name not in METRICS:
            raise ValueError(f"unknown metric {name!r}; {suggest(name, list(METRICS))}")
    return names


def _show_status(store: Store, runs: list[Run], as_json: bool) -> None:
    states = store.states(runs)
    reasons = {run.key(): store.failure(run)["error"] for run in runs if states[run.key()] == "failed"}
    reasons |= {run.key(): store.reason(run) for run in runs if states[run.key()] == "skipped"}
    kinds = ("done", "running", "failed", "skipped", "stale", "waiting")
    by_dataset: dict[str, dict[str, int]] = {}
    for run in runs:
        counts = by_dataset.setdefault(run.dataset, dict.fromkeys(kinds, 0))
        counts[states[run.key()]] += 1
    if as_json:
        show_json({"folder": str(store.folder), "runs": by_dataset, "reasons": reasons})
        return
    rows = [[name, *(str(counts[kind]) for kind in kinds)] for name, counts in by_dataset.items()]
    show_table(["data set", *kinds], rows, title=f"results: {store.folder}")
    by_reason: dict[str, list[Run]] = {}
    for run in runs:
        if run.key() in reasons:
            by_reason.setdefault(reasons[run.key()], []).append(run)
    for reason, group in by_reason.items():
        first = group[0]
        print(f"{states[first.key()]}, {len(group)} runs ({first.dataset}, {first.method}, {first.key()} …): {reason}")
