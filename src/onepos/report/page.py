"""The demo page: one HTML file that needs no network, no server and no script."""

import base64
import struct
import zlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from onepos.report import figures, tables
from onepos.report.canvas import NARROW, WIDE
from onepos.report.tables import Result

_TEMPLATES = Path(__file__).parent / "templates"


def render_demo(result: Result) -> str:
    """The page of a demo run, as HTML.

    Args:
        result: Plain, JSON-able dictionary with `title`, `created`, `versions`, `dataset`, `metrics`,
            `runs`, `priors` and, if wanted, `examples`. A section that is missing or empty is left out,
            a prior that is None or NaN is shown as unknown.
    """
    from jinja2 import Environment, FileSystemLoader

    environment = Environment(
        loader=FileSystemLoader(_TEMPLATES),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["percent"] = tables.percent
    empty: dict[str, Any] = {"runs": [], "metrics": [], "dataset": {}, "versions": {}}
    result = empty | {name: section for name, section in result.items() if section is not None}
    return environment.get_template("demo.html").render(
        title=result.get("title") or "onepos demo",
        created=str(result.get("created") or "").replace("T", " "),
        versions=result["versions"],
        data=_data_facts(result["dataset"]),
        tiles=_tiles(result),
        metrics=_metrics(result),
        priors=_priors(result),
        charts=_charts(result),
        remark=result.get("remark") or "",
        examples=[_example(example) for example in result.get("examples") or []],
    )


def picture_uri(pixels: Sequence[Sequence[float]]) -> str:
    """A grey picture with values from 0 (black) to 1 (white), as a PNG in a data URI."""
    grey = (np.nan_to_num(np.asarray(pixels, dtype=float)).clip(0, 1) * 255).round().astype(np.uint8)
    height, width = grey.shape
    lines = np.hstack([np.zeros((height, 1), np.uint8), grey])  # each line starts with its filter, none
    png = b"\x89PNG\r\n\x1a\n" + b"".join(
        struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
        for kind, data in (
            (b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0)),
            (b"IDAT", zlib.compress(lines.tobytes(), 9)),
            (b"IEND", b""),
        )
    )
    return "data:image/png;base64," + base64.b64encode(png).decode("ascii")


def _charts(result: Result) -> dict[str, dict[str, Any]]:
    """Each chart that has something to show, drawn for a desk and for a phone."""
    drawings = {
        "convergence": figures.prior_convergence,
        "priors": figures.prior_chart,
        "training": figures.training_curves,
    }
    charts = {}
    for name, draw in drawings.items():
        wide = draw(result, WIDE)
        if wide:
            charts[name] = {"wide": wide, "narrow": draw(result, NARROW)}
    return charts


def _metrics(result: Result) -> dict[str, Any] | None:
    runs = result["runs"]
    if not runs or not result["metrics"]:
        return None
    header, rows = tables.metrics_table(result)
    cells = tables.metric_cells(result)
    return {
        "runs": [{"name": tables.run_name(run), **_run_facts(run)} for run in runs],
        "rows": [
            {"title": metric["title"], "greater": metric["greater_is_better"], "cells": row}
            for metric, row in zip(result["metrics"], cells, strict=True)
        ],
        "has_shares": any(cell.share is not None for row in cells for cell in row),
        "csv": tables.csv_table(rows, header),
    }


def _run_facts(run: Mapping[str, Any]) -> dict[str, str]:
    seconds, epoch = tables.as_float(run.get("seconds")), run.get("best_epoch")
    return {
        "role": run.get("role") or "method",
        "seconds": "" if seconds is None else f"{seconds:.1f} s",
        "best_epoch": "" if epoch is None else str(epoch),
    }


def _priors(result: Result) -> dict[str, Any] | None:
    header, rows = tables.priors_table(result)
    if not rows:
        return None
    run = figures.prior_run(result)
    return {
        "header": header,
        "rows": rows,
        "csv": tables.csv_table(rows, header),
        "run": "" if run is None else tables.run_name(run),
        "n_labels": len(rows),
        "n_curves": len(figures.convergence_labels(result)),
        "n_unreliable": sum(row[-1] == "no" for row in rows),
        "n_unknown": sum(row[-1] == tables.UNKNOWN for row in rows),
        "is_scatter": len(rows) > figures.MAX_ROWS,
        "has_truth": "True prior" in header,
    }


def _data_facts(dataset: Mapping[str, Any]) -> dict[str, str]:
    """The data set's name, and its sizes as far as they are known."""
    units = {
        "n_train": "training examples",
        "n_val": "for validation",
        "n_test": "for test",
        "n_features": "features",
        "n_labels": "labels",
    }
    sizes = [f"{dataset[name]} {unit}" for name, unit in units.items() if dataset.get(name) is not None]
    return {"name": str(dataset.get("name") or ""), "sizes": ", ".join(sizes)}


def _tiles(result: Result) -> list[tuple[str, str]]:
    """The page in four numbers: (number, what it is)."""
    dataset, tiles = result["dataset"], []
    if dataset.get("n_train"):
        number = f"{dataset['n_train']:,}".replace(",", " ")
        tiles.append((number, "training examples, each showing one label"))
    if tables.as_float(dataset.get("cardinality")) is not None:
        text = f"of {dataset.get('n_labels')} labels are true for an example, on average"
        tiles.append((f"{dataset['cardinality']:.1f}", text))
    return [*tiles, *_gap_tile(result), *_prior_tile(result)]


def _gap_tile(result: Result) -> list[tuple[str, str]]:
    """The best method's share of the distance closed, in the first metric that has one."""
    for metric, cells in zip(result["metrics"], tables.metric_cells(result), strict=True):
        shares = [(c.share, run) for c, run in zip(cells, result["runs"], strict=True) if c.share is not None]
        if shares:
            share, run = max(shares, key=lambda pair: pair[0])
            text = f"of the {metric['title'].lower()} gap to full labels closed by {tables.run_name(run)}"
            return [(tables.percent(share), text + (", worse than the floor" if share < 0 else ""))]
    return []


def _prior_tile(result: Result) -> list[tuple[str, str]]:
    """Mean absolute error of the estimated priors beside that of the observed shares, same labels."""
    priors = result.get("priors") or {"label": []}
    true, estimated, share = (
        tables.column(priors, name, len(priors["label"])) for name in ("true", "estimated", "observed_share")
    )
    known = [row for row in zip(true, estimated, share, strict=True) if None not in row]
    if not known:
        return []
    t, e, s = np.array(known, dtype=float).T
    text = f"mean error of the estimated priors (of the observed shares: {np.abs(s - t).mean():.3f})"
    return [(f"{np.abs(e - t).mean():.3f}", text)]


def _example(example: Mapping[str, Any]) -> dict[str, Any]:
    true = [str(name) for name in example["true"]]
    observed = example.get("observed")
    return {
        "picture": picture_uri(example["image"]),
        "observed": None if observed is None else str(observed),
        "hidden": [name for name in true if name != str(observed)],
        "predicted": [
            {"name": str(name), "percent": round(100 * probability), "is_true": str(name) in true}
            for name, probability in example.get("predicted") or []
        ],
    }
