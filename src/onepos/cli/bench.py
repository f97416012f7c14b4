"""`onepos bench`: run a study, see how far it is, report it, compare two."""

from __future__ import annotations

import dataclasses
import os
import time
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from typer import Argument, Exit, Option, Typer

from onepos.cli.console import Advance, complain, progress, show_json, show_table
from onepos.cli.options import Json, Quiet

if TYPE_CHECKING:
    from onepos.bench.store import Status, Store
    from onepos.bench.study import Run

bench_app = Typer(
    help="Compare methods fairly: run a study, see how far it is, report it, compare two.",
    no_args_is_help=True,
    rich_markup_mode=None,
)
FolderArgument = Annotated[Path, Argument(metavar="FOLDER", help="The folder given to `onepos bench run`.")]


@bench_app.command("run")
def bench_run(
    study: Annotated[
        str, Argument(metavar="STUDY", help="A study file (.toml), or the name of one in onepos: smoke, fair, …")
    ],
    out: Annotated[Path | None, Option(help="Folder of the results [default: results/NAME].")] = None,
    workers: Annotated[
        int | None, Option(min=1, help="Processes on this machine [default: one per core, one for an accelerator].")
    ] = None,
    device: Annotated[str, Option(help="auto, cpu, cuda or mps.")] = "cpu",
    labels: Annotated[
        str | None, Option(help="single-positive: choose epochs and settings without any full label.")
    ] = None,
    seed: Annotated[
        int | None, Option(min=0, help="Other than the study's: other splits, single positives and weights.")
    ] = None,
    data: Annotated[str | None, Option(help="Only these data sets of the study, by commas.")] = None,
    retry: Annotated[bool, Option("--retry", help="Also make runs again that failed.")] = False,
    quiet: Quiet = False,
    as_json: Json = False,
) -> None:
    """Make the runs of a study that are missing; it may be stopped and started again, also on several machines."""
    from onepos.bench.runner import check_data, run_study
    from onepos.bench.store import Store
    from onepos.bench.study_file import read_studies

    name, studies = read_studies(study, labels=labels, seed=seed)
    only = data.split(",") if data else None
    n_workers = workers or (os.cpu_count() or 1 if device == "cpu" else 1)
    n_failed = n_open = 0
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
        if not quiet:
            _show_status(store, plan.runs(), as_json)
        n_failed += status.failed
        if status.failed:
            of_all = f"{status.failed} of {len(plan.runs())} runs failed"
            complain(f"{of_all}. See why: onepos bench status {store.folder}")
        names = plan.datasets if chosen[folder] is None else chosen[folder]
        n_open += _complain_of_missing(store, [run for run in plan.runs() if run.dataset in (names or ())])
    if n_failed or n_open:
        raise Exit(1)


def _complain_of_missing(store: Store, runs: list[Run]) -> int:
    """How many runs are neither done nor given up, with a sentence where there are some."""
    status = store.status(runs)
    n_open = len(runs) - status.settled
    if n_open:
        complain(
            f"every run must be finished; {n_open} of {len(runs)} are not, of which {status.running} are with other "
            f"processes: {store.folder}. Run the same command again to make the rest."
        )
    return n_open


@bench_app.command("status")
def bench_status(
    folder: FolderArgument,
    watch: Annotated[bool, Option("--watch", help="Look again every second until nothing is left to do.")] = False,
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
        Path, Argument(metavar="FOLDER", help="The folder given to `onepos bench run`, or a file of `bench pack`.")
    ],
    out: Annotated[Path | None, Option(help="Where to write [default: FOLDER/report].")] = None,
    as_json: Json = False,
) -> None:
    """Write the report of a study, or of each of several: one page, and its tables as Markdown, LaTeX and CSV."""
    from onepos.report.study_page import write_reports

    beside = folder.parent if folder.is_file() else folder
    written = [str(path) for path in write_reports(folder, out or beside / "report")]
    if as_json:
        show_json(written)
    else:
        print(*written, sep="\n")


@bench_app.command("compare")
def bench_compare(
    first: Annotated[str, Argument(metavar="A", help="Results: a folder, or a file of `onepos bench pack`.")],
    second: Annotated[str, Argument(metavar="B", help="Those to compare with them.")],
    metric: Annotated[
        str | None, Option(help="Metrics to compare, by commas [default: those of a report; one is listed].")
    ] = None,
    out: Annotated[Path | None, Option(help="Write all that is compared to this Markdown file.")] = None,
    as_json: Json = False,
) -> None:
    """Is B better or worse than A? Every data set, method and metric that both have, paired by trial where possible."""
    from onepos.bench.comparison import SHOWN, compare_studies
    from onepos.bench.results import read_results
    from onepos.files import write_atomically
    from onepos.metrics import METRICS
    from onepos.report.compare import count_table, default_metric, difference_table, explain, render_comparison
    from onepos.validation import check_known

    names = (first, second)
    metrics = metric.split(",") if metric else SHOWN
    check_known(metrics, METRICS, "unknown metric")
    comparison = compare_studies(read_results(first), read_results(second), metrics, names=names)
    if out is not None:
        write_atomically(out, render_comparison(comparison, names))
    if as_json:
        show_json(comparison.to_json())
        return
    listed = metrics if metric else [default_metric(comparison)]
    for table in (*(difference_table(comparison, name) for name in listed), count_table(comparison)):
        show_table(list(table.header), table.texts(), title=table.title)
        print()
    print(f"A: {first}\nB: {second}", *explain(comparison), sep="\n")


@bench_app.command("pack")
def bench_pack(
    folder: FolderArgument,
    out: Annotated[Path, Option(help="The file to write, such as fair.jsonl.gz.")],
    compact: Annotated[
        bool, Option("--compact", help="Leave out the curves by epoch and the priors by label.")
    ] = False,
) -> None:
    """Put a study and its finished runs into one file, to keep or to send."""
    from onepos.bench.store import Store

    print(f"{Store(folder).pack(out, compact=compact)} runs: {out}")


@bench_app.command("unpack")
def bench_unpack(
    file: Annotated[Path, Argument(metavar="FILE", help="Written by `onepos bench pack`.")],
    folder: FolderArgument,
) -> None:
    """Take the runs of a file into a folder; those that are there already stay as they are."""
    from onepos.bench.store import Store

    print(f"{Store(folder).unpack(file)} runs: {folder}")


def _advance(advance: Advance, name: str, status: Status) -> None:
    advance(name, status.settled - 1, sum(dataclasses.astuple(status)))


def _show_status(store: Store, runs: list[Run], as_json: bool) -> None:
    states = store.states(runs)
    kinds = ("done", "running", "failed", "skipped", "stale", "waiting")
    by_dataset: dict[str, dict[str, int]] = {}
    reasons: dict[str, str] = {}
    by_reason: dict[str, list[Run]] = {}
    for run in runs:
        state = states[run.key()]
        by_dataset.setdefault(run.dataset, dict.fromkeys(kinds, 0))[state] += 1
        if state in ("failed", "skipped"):
            reason = store.failure(run)["error"] if state == "failed" else store.reason(run)
            reasons[run.key()] = reason
            by_reason.setdefault(reason, []).append(run)
    if as_json:
        show_json({"folder": str(store.folder), "runs": by_dataset, "reasons": reasons})
        return
    rows = [[name, *map(str, counts.values())] for name, counts in by_dataset.items()]
    show_table(["data set", *kinds], rows, title=f"results: {store.folder}")
    for reason, group in by_reason.items():
        first = group[0]
        print(f"{states[first.key()]}, {len(group)} runs ({first.dataset}, {first.method}, {first.key()} …): {reason}")
