"""The page of the consistency study: charts, tables and sentences, all from the one file of its results."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from onepos.files import write_atomically
from onepos.report.charts.canvas import CARD, INK, MUTED, NARROW, SERIES, add_axes, render
from onepos.report.page import Chart, Page, make_section, render_html, render_markdown
from onepos.report.tables import MISSING, Cell, Table, csv_table, grouped, percent

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Results = Mapping[str, Any]

SOURCE_NAMES = {
    "halves": "other half's scores",
    "even": "other half's scores, even draw",
    "training": "training rows' scores",
}
BOUND_NAMES = {"best": "right side, best threshold", "right": "right side at z*", "left": "left side"}
PART_NAMES = {"negatives": "negatives in the bin", "draw": "draw of the labels", "chance": "chance"}
RISK_NAMES = {
    "theorem": "as in the proof",
    "absolute": "with the absolute value",
    "single": "and one label per row",
    "estimated": "and estimated priors",
}
RISK_BOUND_NAMES = {"mended": "bound, mended", "printed": "bound, as printed"}
FIRST_NORM = 10.0  # B that the study was first made with, before its results were seen

_DASHED, _DOTTED, _DASH_DOTTED = (0, (5, 2)), (0, (1, 1.5)), (0, (4, 1.5, 1, 1.5))
_PANEL, _LEGEND_LINE = 330, 21  # heights in pixels
_SUPERSCRIPT = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")


def write_pages(results_path: str | os.PathLike[str], out_folder: str | os.PathLike[str]) -> list[Path]:
    """Write report.html and report.md from results.json; the charts are in report.html."""
    results = json.loads(Path(results_path).read_text(encoding="utf-8"))
    out = Path(out_folder)
    out.mkdir(parents=True, exist_ok=True)
    report = make_report(results)
    texts = {"report.html": render_html(report), "report.md": render_markdown(report)}
    return [write_atomically(out / name, text) for name, text in texts.items()]


def make_report(results: Results) -> Page:
    """The page."""
    each = results["datasets"]
    return Page(
        title="Consistency: prior error and excess risk against n",
        lead=_lead(results),
        tiles=_tiles(results),
        sections=[
            make_section(
                "prior-error",
                "Class priors: Theorem 4.1",
                *(_prior_table(results, data) for data in each),
                chart=_chart(results, "prior-error", "Error of the class priors", _prior_lines),
            ),
            make_section(
                "prior-parts",
                "What the prior error is made of",
                *(_parts_table(results, data) for data in each),
                folded=(_label_table(results, data) for data in each),
                chart=_chart(results, "prior-parts", "Parts of the prior error", _part_lines),
            ),
            make_section("prior-checks", "Do the bounds on the priors hold?", _prior_checks(results)),
            make_section(
                "excess-risk",
                "Risk: Theorem 4.2",
                *(_risk_table(results, data) for data in each),
                chart=_chart(results, "excess-risk", "Excess risk", _risk_lines),
            ),
            make_section("risk-checks", "Do the bounds on the risk hold?", _risk_checks(results)),
            make_section("norms", "What the norm bound does", *(_norm_table(results, data) for data in each)),
            make_section("assumptions", "What is assumed, and what holds here", _assumptions(results)),
        ],
        downloads={"cells.csv": _cells_csv(results)},
    )


# Charts


@dataclass(frozen=True)
class Line:
    """A curve over the sizes: its name, its mean, and where there are any its repetitions (sizes, repetitions)."""

    name: str
    mean: Sequence[float]
    runs: Sequence[Sequence[float]] | None
    colour: str
    dashes: Any = "-"


def _prior_lines(results: Results, data: Results) -> list[Line]:
    priors = data["priors"]
    errors = {name: priors["errors"][name]["mean"] for name in SOURCE_NAMES}
    colours = dict(zip(SOURCE_NAMES, (SERIES[0], SERIES[4], SERIES[1]), strict=True))
    bounds = dict(zip(BOUND_NAMES, (_DASHED, _DASH_DOTTED, _DOTTED), strict=True))
    return [
        *(Line(SOURCE_NAMES[name], curve["mean"], curve["runs"], colours[name]) for name, curve in errors.items()),
        *(Line(BOUND_NAMES[k], priors["bounds"][k]["mean"]["mean"], None, INK, dashes) for k, dashes in bounds.items()),
        _guide(results, errors["halves"]["mean"]),
    ]


def _part_lines(results: Results, data: Results) -> list[Line]:
    parts = {name: data["priors"]["parts"][name]["mean"] for name in PART_NAMES}
    colours = dict(zip(PART_NAMES, (SERIES[1], SERIES[3], SERIES[4]), strict=True))
    total = data["priors"]["errors"]["halves"]["mean"]
    return [
        Line("whole error", total["mean"], total["runs"], SERIES[0]),
        *(Line(PART_NAMES[name], curve["mean"], curve["runs"], colours[name]) for name, curve in parts.items()),
        _guide(results, parts["chance"]["mean"]),
    ]


def _risk_lines(results: Results, data: Results) -> list[Line]:
    risk = data["risk"]
    colours = dict(zip(RISK_NAMES, (SERIES[0], SERIES[4], SERIES[1], SERIES[3]), strict=True))
    bounds = dict(zip(RISK_BOUND_NAMES, (_DASHED, _DASH_DOTTED), strict=True))
    constant = [risk["constant"]] * len(results["study"]["sizes"])
    curves = {name: risk["excess"][name] for name in RISK_NAMES}
    return [
        *(Line(RISK_NAMES[name], curve["mean"], curve["runs"], colours[name]) for name, curve in curves.items()),
        *(Line(RISK_BOUND_NAMES[name], risk["bounds"][name]["mean"], None, INK, d) for name, d in bounds.items()),
        Line("best constant", constant, None, MUTED, _DASHED),
        _guide(results, risk["excess"]["theorem"]["mean"]),
    ]


def _guide(results: Results, curve: Sequence[float]) -> Line:
    """What a rate of 1/√n would look like from the start of a curve."""
    sizes = np.array(results["study"]["sizes"], float)
    return Line("slope −1/2", (curve[0] * (sizes / sizes[0]) ** -0.5).tolist(), None, MUTED, _DOTTED)


def _chart(results: Results, name: str, title: str, lines: Any) -> Chart:
    panels = [(data["name"], lines(results, data)) for data in results["datasets"]]
    sizes = results["study"]["sizes"]
    captions = {
        "prior-error": (
            "Mean over the labels of |π̂ − π|, and in black the same mean of the theorem's bounds; an error above 1 is "
            "not possible, so a bound above 1 says nothing. Bands: smallest to largest repetition."
        ),
        "prior-parts": (
            "Mean over the labels of the size of each part, for the scores of the other half. The parts have signs, so "
            "that the whole can be smaller than one of them."
        ),
        "excess-risk": "R(f̂) − R(f*), and in black the theorem's bound. Bands: smallest to largest repetition.",
    }
    return Chart(partial(draw_panels, panels, sizes, name, title), captions[name])


def draw_panels(
    panels: Sequence[tuple[str, Sequence[Line]]], sizes: Sequence[int], name: str, title: str, width: int
) -> str:
    """One panel per data set on logarithmic axes, side by side where there is room, with one legend."""
    n_columns = 2 if width > NARROW else 1
    n_rows = -(-len(panels) // n_columns)
    n_names = len(panels[0][1])
    legend_columns = 1 if width <= NARROW else n_names if n_names < 6 else 4
    top = 12 + _LEGEND_LINE * -(-n_names // legend_columns)
    height = top + n_rows * _PANEL

    def draw(figure: Figure) -> None:
        for k, (heading, lines) in enumerate(panels):
            row, column = divmod(k, n_columns)
            right = width - (column + 1) * width // n_columns + 24
            margins = (
                column * width // n_columns + 52,
                (n_rows - 1 - row) * _PANEL + 44,
                right,
                top + row * _PANEL + 30,
            )
            axes = add_axes(figure, margins)
            _draw_panel(axes, heading, lines, sizes, every=1 if width > NARROW else 2)
        handles, labels = figure.axes[0].get_legend_handles_labels()
        anchor = (8 / width, 1 - 4 / height)
        figure.legend(handles, labels, loc="upper left", bbox_to_anchor=anchor, ncols=legend_columns)

    return render(draw, width, height, name, title)


def _draw_panel(axes: Axes, heading: str, lines: Sequence[Line], sizes: Sequence[int], every: int) -> None:
    from matplotlib.ticker import LogLocator

    axes.set(xscale="log", yscale="log")
    for line in lines:
        marker = ""
        if line.runs is not None:
            low, high, marker = np.min(line.runs, axis=1), np.max(line.runs, axis=1), "o"
            axes.fill_between(sizes, low, high, color=line.colour, alpha=0.15, lw=0)
        style = {"color": line.colour, "ls": line.dashes, "lw": 1.8, "marker": marker, "mec": CARD, "mew": 0.7}
        axes.plot(np.array(sizes), np.array(line.mean), label=line.name, ms=5, **style)
    axes.set_title(heading, loc="left", fontsize=14, color=INK)
    axes.set_xlabel("rows n")
    axes.minorticks_off()
    axes.set_xticks(list(sizes)[::-every], [grouped(n) for n in sizes][::-every])
    axes.yaxis.set_major_locator(LogLocator(numticks=12))
    axes.yaxis.set_major_formatter(lambda value, _: _power(value))


def _power(value: float) -> str:
    """A power of ten as the axis shows it."""
    exponent = round(math.log10(value))
    return f"{value:g}" if -3 <= exponent <= 3 else f"10{str(exponent).translate(_SUPERSCRIPT)}"


# Tables


def _prior_table(results: Results, data: Results) -> Table:
    priors = data["priors"]
    named = {SOURCE_NAMES[name]: curves for name, curves in priors["errors"].items()}
    named |= {BOUND_NAMES[name]: priors["bounds"][name] for name in BOUND_NAMES}
    rows = [[Cell(grouped(n))] for n in results["study"]["sizes"]] + [[Cell("slope")]]
    for curves in named.values():
        for row, mean, largest in zip(rows, curves["mean"]["mean"], curves["max"]["mean"], strict=False):
            row.append(Cell(number(mean), notes=((f"max {number(largest)}", ""),)))
        rows[-1].append(Cell(slope_of(curves["mean"]), notes=((f"max {slope_of(curves['max'])}", ""),)))
    return Table(f"priors-{data['name']}", data["name"], ["n", *named], rows, about=_prior_sentences(results, data))


def _prior_sentences(results: Results, data: Results) -> str:
    sizes, priors = results["study"]["sizes"], data["priors"]
    error = {name: priors["errors"][name]["mean"] for name in SOURCE_NAMES}
    signed = {name: [number(priors["signed_errors"][name][i]) for i in (0, -1)] for name in SOURCE_NAMES}
    last = error["halves"]["mean"][-1]
    loose = {name: number(priors["bounds"][name]["mean"]["mean"][-1] / last) for name in BOUND_NAMES}
    n_kept, n_labels = sum(priors["always_observed"]), data["n_labels"]
    kept = f"all {n_labels} labels" if n_kept == n_labels else f"the {n_kept} of {n_labels} labels seen in every sample"
    return (
        f"Mean |π̂ − π| over {kept}, below it the largest. With the scores of the other half it goes from "
        f"{number(error['halves']['mean'][0])} at n = {grouped(sizes[0])} to {number(last)} at {grouped(sizes[-1])}, "
        f"slope {slope_of(error['halves'])} ({_against_half(error['halves'])}); with evenly drawn positives, as the "
        f"theorem supposes, {slope_of(error['even'])}. With the scores of the training rows, as in the paper, it goes "
        f"from {number(error['training']['mean'][0])} to {number(error['training']['mean'][-1])}, slope "
        f"{slope_of(error['training'])}: rows learnt as positives are scored too high, which pulls π̂ down and works "
        f"against the negatives in the bin; π̂ − π is {signed['training'][0]} on average at the smallest n and "
        f"{signed['training'][1]} at the largest, {signed['halves'][0]} and {signed['halves'][1]} with the scores of "
        f"the other half. At the largest n the right side at its best threshold is {loose['best']} times the error, at "
        f"z* {loose['right']} times, the left side {loose['left']} times; that a prior lies between 0 and 1 bounds the "
        f"error by {number(priors['trivial']['mean'])}."
    )


def _parts_table(results: Results, data: Results) -> Table:
    priors = data["priors"]
    header = ["n", *(f"{name}, {how}" for name in PART_NAMES.values() for how in ("mean", "mean size"))]
    rows = []
    for i, n in enumerate(results["study"]["sizes"]):
        pairs = [(priors["signed_parts"][name][i], priors["parts"][name]["mean"]["mean"][i]) for name in PART_NAMES]
        rows.append([Cell(grouped(n)), *(Cell(number(value)) for pair in pairs for value in pair)])
    slopes = [cell for name in PART_NAMES for cell in (MISSING, slope_of(priors["parts"][name]["mean"]))]
    rows.append([Cell("slope"), *map(Cell, slopes)])
    last = {name: priors["parts"][name]["mean"]["mean"][-1] for name in PART_NAMES}
    largest = max(last, key=last.__getitem__)
    slope = {name: slope_of(priors["parts"][name]["mean"]) for name in PART_NAMES}
    about = (
        "π̂ − π is the sum of: rows without the label above the threshold; rows with few labels naming each of them "
        f"more often than rows with many; chance. At n = {grouped(results['study']['sizes'][-1])} the largest is: "
        f"{PART_NAMES[largest]} ({number(last[largest])}). Only chance must vanish with n whatever the classifier; it "
        f"has slope {slope['chance']} ({_against_half(priors['parts']['chance']['mean'])}). The negatives go as the "
        "classifier gets better and the threshold climbs, which the confidence term of Eq. (2) allows only where there "
        f"are many positives: {slope['negatives']}. The draw, {slope['draw']}, is a bias of naming one label per row; "
        "the theorem leaves it out, and no number of rows removes it."
    )
    return Table(f"parts-{data['name']}", data["name"], header, rows, about)


def _label_table(results: Results, data: Results) -> Table:
    columns = {"prior": "π", "n_positive": "n_j"} | SOURCE_NAMES | PART_NAMES
    rows = [[Cell(label["name"]), *(Cell(number(label[key])) for key in columns)] for label in data["priors"]["labels"]]
    n = grouped(results["study"]["sizes"][-1])
    return Table(
        f"labels-{data['name']}",
        f"{data['name']}: every label at n = {n}",
        ["label", *columns.values()],
        rows,
        "Mean estimates, then the parts of the error of the first of them. n_j: named positives in a half.",
    )


def _prior_checks(results: Results) -> Table:
    header = ["data set and draw", "estimates"]
    header += [f"{side}: {what}" for side in BOUND_NAMES.values() for what in ("says something", "fails")]
    header += ["interval: upper end fails", "lower end fails"]
    keys = [f"{side}_{what}" for side in BOUND_NAMES for what in ("informs", "fails")] + ["upper_fails", "lower_fails"]
    rows = []
    for data in results["datasets"]:
        for source, draw in (("halves", "single positives"), ("even", "even draw")):
            check = data["priors"]["checks"][source]
            cells = [_count(check, key) for key in keys]
            rows.append([Cell(f"{data['name']}, {draw}"), Cell(grouped(check["estimates"])), *cells])
    fails, total = _prior_fails(results)
    n_estimates = grouped(sum(data["priors"]["checks"]["halves"]["estimates"] for data in results["datasets"]))
    delta = percent(results["study"]["delta"])
    ends = {
        source: sum(data["priors"]["checks"][source]["upper_fails"] for data in results["datasets"])
        for source in ("halves", "even")
    }
    about = (
        f"Every estimate of every label at every size, scored by the other half. A bound says something where it is "
        f"stricter than that a prior lies between 0 and 1. The theorem's sides fail in {fails} of {grouped(total)} "
        f"checks, where {delta} may. The interval is that of estimate_priors: its upper end, too, may fail in "
        f"{delta}; it does in {ends['halves']} of {n_estimates} estimates with single positives, in {ends['even']} "
        "with evenly drawn ones. Its lower end is promised only if no negatives are above the threshold."
    )
    return Table("prior-checks", "Do the bounds on the priors hold?", header, rows, about)


def _count(check: Mapping[str, int], key: str) -> Cell:
    return Cell(grouped(check[key]), tone="worse" if key.endswith("fails") and check[key] else "")


def _prior_fails(results: Results) -> tuple[int, int]:
    """Failures of the theorem's three sides, and how many could have been."""
    checks = [check for data in results["datasets"] for check in data["priors"]["checks"].values()]
    fails = sum(check[f"{side}_fails"] for check in checks for side in BOUND_NAMES)
    return fails, len(BOUND_NAMES) * sum(check["estimates"] for check in checks)


def _risk_table(results: Results, data: Results) -> Table:
    risk = data["risk"]
    curves = {RISK_NAMES[name]: curve for name, curve in risk["excess"].items()}
    curves |= {RISK_BOUND_NAMES[name]: risk["bounds"][name] for name in RISK_BOUND_NAMES}
    sizes = results["study"]["sizes"]
    rows = [
        [Cell(grouped(n)), *(Cell(number(curve["mean"][i])) for curve in curves.values())] for i, n in enumerate(sizes)
    ]
    limits = [number(risk["limits"][name]) if name in risk["limits"] else MISSING for name in RISK_NAMES]
    above = [slope_of(risk["above_limit"][name]) if name in risk["above_limit"] else MISSING for name in RISK_NAMES]
    rows += [
        [Cell("slope"), *(Cell(slope_of(curve)) for curve in curves.values())],
        [Cell("on the whole population"), *map(Cell, limits), Cell(MISSING), Cell(MISSING)],
        [Cell("slope above that"), *map(Cell, above), Cell(MISSING), Cell(MISSING)],
    ]
    header = ["n", *curves]
    return Table(f"risk-{data['name']}", data["name"], header, rows, _risk_sentences(results, data))


def _risk_sentences(results: Results, data: Results) -> str:
    risk, sizes = data["risk"], results["study"]["sizes"]
    excess, limits, bound = risk["excess"], risk["limits"], risk["bounds"]["mended"]["mean"]
    ends = {name: [number(excess[name]["mean"][i]) for i in (0, -1)] for name in RISK_NAMES}
    loose = [number(bound[i] / excess["theorem"]["mean"][i]) for i in (0, -1)]
    needed = sizes[-1] * (bound[-1] / risk["constant"]) ** 2
    return (
        f"R(f*) is {number(risk['best'])}; the best constant prediction is {number(risk['constant'])} above it. "
        f"Minimised as in the proof, the excess goes from {ends['theorem'][0]} to {ends['theorem'][1]}, slope "
        f"{slope_of(excess['theorem'])} ({_against_half(excess['theorem'])}); minimised so on the whole population, it "
        f"is {number(limits['theorem'])}, which is what the minimiser leaves. The absolute value of Eq. (7) moves this "
        f"limit by {number(limits['absolute'] - limits['theorem'])}, since f* predicts fewer positives than there are "
        f"(which can cost {number(risk['gap'])} at most), and naming one label per row by another "
        f"{number(limits['single'] - limits['absolute'])}; above these limits the slopes are "
        f"{slope_of(risk['above_limit']['absolute'])} and {slope_of(risk['above_limit']['single'])}. With estimated "
        f"priors the excess goes from {ends['estimated'][0]} to {ends['estimated'][1]}. The mended bound is {loose[0]} "
        f"times the excess at the smallest n and {loose[1]} times at the largest; at its rate it would promise more "
        f"than the best constant from about {number(float(f'{needed:.2g}'))} rows on."
    )


def _risk_checks(results: Results) -> Table:
    rows = [
        [
            Cell(f"{data['name']}, {RISK_NAMES[name]}"),
            Cell(str(fails["runs"])),
            *(Cell(str(fails[bound]), tone="worse" if fails[bound] else "") for bound in RISK_BOUND_NAMES),
        ]
        for data in results["datasets"]
        for name, fails in data["risk"]["fails"].items()
    ]
    study = results["study"]
    about = (
        f"The bound speaks of the first line of each data set only. Its numbers: norm of a label's weights at most "
        f"B = {number(study['norm'])}, √E‖x̃‖² = {number(results['datasets'][0]['risk']['length'])}, so that ℜ_n(H_j) "
        f"is at most {number(study['norm'] / 4 * results['datasets'][0]['risk']['length'])}/√n; δ = {study['delta']}. "
        "As printed, the two terms of the named positives are too small by a factor of about n (a sum over rows is "
        "taken for a mean); mended, each label's mean is bounded by itself."
    )
    header = ["data set and risk", "runs", *(f"{name}: fails" for name in RISK_BOUND_NAMES.values())]
    return Table("risk-checks", "Do the bounds on the risk hold?", header, rows, about)


def _norm_table(results: Results, data: Results) -> Table:
    sizes, main = results["study"]["sizes"], results["study"]["norm"]
    ends = [f"n = {grouped(n)}" for n in (sizes[0], sizes[-1])]
    header = ["B", "R(f*)", "best constant above it", *(f"excess at {end}" for end in ends)]
    header += ["on the whole population", "slope", "slope above that", *(f"mended bound / excess at {n}" for n in ends)]
    rows = [
        [
            Cell(number(each["norm"]) + (" (main)" if each["norm"] == main else "")),
            Cell(number(each["best"])),
            Cell(number(each["constant"]), tone="worse" if each["constant"] < 0 else ""),
            *(Cell(number(each["excess"]["mean"][i])) for i in (0, -1)),
            Cell(number(each["limit"])),
            Cell(slope_of(each["excess"])),
            Cell(slope_of(each["above_limit"])),
            *(Cell(number(_looseness(each, i))) for i in (0, -1)),
        ]
        for each in data["risk"]["norms"]
    ]
    return Table(f"norms-{data['name']}", data["name"], header, rows, _norm_sentences(results, data))


def _norm_sentences(results: Results, data: Results) -> str:
    norms, by_norm = data["risk"]["norms"], {each["norm"]: each for each in data["risk"]["norms"]}
    smallest, largest, main, former = norms[0], norms[-1], by_norm[results["study"]["norm"]], by_norm[FIRST_NORM]
    is_lower = _is_falling([each["best"] for each in norms])
    poor = [each["norm"] for each in norms if each["constant"] < 0]
    shares = [each["limit"] / each["excess"]["mean"][-1] for each in norms]
    share, stuck = max(zip(shares, norms, strict=True), key=lambda pair: pair[0])
    tight, loose = (choose(norms, key=lambda each: _looseness(each, -1)) for choose in (min, max))
    words = [
        "The same samples, minimised as in the proof, with the weights of a label bounded by other norms B.",
        f"R(f*) goes from {number(smallest['best'])} at {_at(smallest)} to {number(largest['best'])} at "
        f"{_at(largest)}, {'' if is_lower else 'not '}lower with every larger class.",
    ]
    if poor:
        words.append(f"At B = {_listed(poor)} nothing is found in the class that is as good as a constant.")
    words += [
        _slope_sentence(norms),
        f"What the minimiser leaves on the whole population is at most {number(100 * share)} % of the excess at the "
        f"largest n ({_at(stuck)}); above what is left the slope there is {slope_of(stuck['above_limit'])} instead of "
        f"{slope_of(stuck['excess'])}.",
        f"The mended bound at the largest n is between {number(_looseness(tight, -1))} times the excess ({_at(tight)}) "
        f"and {number(_looseness(loose, -1))} times ({_at(loose)}); it fails in {sum(each['fails'] for each in norms)} "
        f"of {sum(each['runs'] for each in norms)} runs.",
        f"{_at(main)} was not fixed beforehand: the study was first made with {_at(former)}, and B was changed after a "
        f"look at the results. At {_at(former)} f* gains {number(former['constant'])} over a constant and the slope is "
        f"{slope_of(former['excess'])}; at {_at(main)} it gains {number(main['constant'])}, with slope "
        f"{slope_of(main['excess'])}. So the slope further up is that of one class among these.",
        f"At {_at(main)} f* is the lowest of all minimisations of the four risks, elsewhere of those as in the proof.",
    ]
    return " ".join(words)


def _slope_sentence(norms: Sequence[Results]) -> str:
    """The range of the slopes over B, whether they rise or fall with it, and how they stand to −1/2."""
    known = [each for each in norms if each["excess"]["slope"] is not None]
    if len(known) < 2:
        return "There are no slopes to compare."
    slopes = [each["excess"]["slope"] for each in known]
    steep, flat = (choose(known, key=lambda each: each["excess"]["slope"]) for choose in (min, max))
    if _is_falling([-slope for slope in slopes]):
        trend = "the larger the class, the flatter the curve"
    elif _is_falling(slopes):
        trend = "the larger the class, the steeper the curve"
    else:
        trend = "neither always flatter nor always steeper with a larger class"
    sides: dict[str, list[float]] = {}
    for each in known:
        sides.setdefault(_against_half(each["excess"]), []).append(each["norm"])
    return (
        f"The slope lies between {slope_of(steep['excess'])} ({_at(steep)}) and {slope_of(flat['excess'])} "
        f"({_at(flat)}), {trend}; it is "
        + " and ".join(f"{side} at B = {_listed(of_side)}" for side, of_side in sides.items())
        + "."
    )


def _looseness(at_norm: Results, i: int) -> float:
    """How many times the mean excess the mean bound is at the i-th size."""
    return float(at_norm["bound"]["mean"][i] / at_norm["excess"]["mean"][i])


def _is_falling(values: Sequence[float]) -> bool:
    return all(after < before for before, after in pairwise(values))


def _at(at_norm: Results) -> str:
    return f"B = {number(at_norm['norm'])}"


def _listed(norms: Sequence[float]) -> str:
    return ", ".join(map(number, norms))


def _assumptions(results: Results) -> Table:
    study = results["study"]
    rows = [
        (
            "samples",
            "independent rows of one distribution",
            "holds: drawn with replacement from all rows of the data set",
        ),
        (
            "classifier (4.1)",
            "does not depend on the rows",
            "holds for the other half's scores (the halves are drawn apart, though a row may come up in both), not for "
            "training rows",
        ),
        (
            "positives",
            "S_j is a sample of the rows with label j",
            "holds for the even draw; single positives favour rows with few labels",
        ),
        ("constants (4.1)", "c₁ and c₂, not given", "c₁ = (4+2τ)(5+2τ)/τ and c₂ = 4+2τ, as its proof has them"),
        ("priors (4.2)", "known", "known in the first three risks, estimated in the last"),
        ("absolute value (4.2)", "in Eq. (7), left out in the proof", "left out in the first risk, kept in the others"),
        (
            "minimiser (4.2)",
            "of Eq. (7) over the class",
            f"{study['smooth_steps']} steps on a convex stand-in, {study['steps']} on the risk, which is not convex; "
            "f* is the lowest risk of each label found by any of them",
        ),
        (
            "class (4.2)",
            "any, of bounded complexity",
            f"linear, norm at most B = {number(study['norm'])}; chosen after a first look at the results, see above",
        ),
    ]
    cells = [[Cell(text) for text in row] for row in rows]
    header = ["what", "in the theorems", "here"]
    return Table("assumptions", "What is assumed, and what holds here", header, cells, is_prose=True)


# Words and numbers


def _lead(results: Results) -> str:
    study, each = results["study"], results["datasets"]
    populations = " and ".join(f"{data['name']} ({grouped(data['n_rows'])} rows)" for data in each)
    return (
        f"The rows of {populations} are each taken for a whole population. From it come samples of "
        f"{grouped(study['sizes'][0])} to {grouped(study['sizes'][-1])} rows, with replacement, {study['repetitions']} "
        "of each size; each row names one of its labels. So class priors and risk are known exactly, and the theorems "
        "can be held against them; of rows outside the population nothing is said. Beyond the size of its population a "
        f"sample repeats rows. Priors: Eq. (2) with δ = {study['delta']}, τ = {study['tau']}, from the scores of a "
        f"linear network trained with the method {study['scorer']} ({study['epochs']} epochs, batch "
        f"{study['batch_size']}, learning rate {study['lr']:g}). Risk: Eq. (5), linear networks of norm at most "
        f"{number(study['norm'])} (others under “What the norm bound does”). A slope is that of log error against log "
        "n, mean ± standard error over the repetitions; with one and the same classifier the bounds have −1/2."
    )


def _tiles(results: Results) -> list[tuple[str, str]]:
    prior_fails, prior_checks = _prior_fails(results)
    risk_fails = [data["risk"]["fails"]["theorem"] for data in results["datasets"]]
    tiles = [
        (f"{prior_fails} of {grouped(prior_checks)}", "checks of the bounds on the priors fail"),
        (
            f"{sum(each['mended'] for each in risk_fails)} of {sum(each['runs'] for each in risk_fails)}",
            "runs exceed the mended bound on the risk",
        ),
    ]
    for data in results["datasets"]:
        prior, risk = data["priors"]["errors"]["halves"]["mean"], data["risk"]["excess"]["theorem"]
        slopes = f"{_decimals(prior['slope'])} / {_decimals(risk['slope'])}"
        tiles.append((slopes, f"slope of prior error / excess risk on {data['name']}"))
    return tiles


def _against_half(curve: Results) -> str:
    """The slope in words, beside −1/2."""
    slope, error = curve["slope"], curve["slope_error"]
    if slope is None:
        return "no slope"
    if abs(slope + 0.5) <= 2 * error:
        return "−1/2 within two standard errors"
    return "steeper than −1/2" if slope < -0.5 else "flatter than −1/2"


def slope_of(curve: Results) -> str:
    """Slope and its standard error; a dash where there is none."""
    return MISSING if curve["slope"] is None else f"{_decimals(curve['slope'], 3)} ± {curve['slope_error']:.3f}"


def _decimals(value: float | None, digits: int = 2) -> str:
    return MISSING if value is None else f"{value:.{digits}f}".replace("-", "−")


def number(value: float | None) -> str:
    r"""Three digits, without exponents; a dash for what is not known.

    >>> number(0.034445), number(-16485.3), number(0.000012), number(512.4), number(1e-8)
    ('0.0344', '−16\xa0500', '0.000012', '512', '0')
    """
    if value is None:
        return MISSING
    rounded = float(f"{value:.3g}")
    if abs(rounded) >= 100:
        return grouped(round(rounded)).replace("-", "−")
    text = f"{rounded:.6f}" if abs(rounded) < 1e-4 else f"{rounded:.3g}"
    return (text.rstrip("0").rstrip(".") if "." in text else text).replace("-", "−") or "0"


def _cells_csv(results: Results) -> str:
    """Every curve in long format."""
    rows = []
    for data in results["datasets"]:
        priors, risk = data["priors"], data["risk"]
        curves = {
            f"prior {kind} {name}, {how} over labels": curve
            for kind in ("errors", "bounds", "parts")
            for name, both in priors[kind].items()
            for how, curve in both.items()
        }
        curves |= {f"risk {kind} {name}": curve for kind in ("excess", "bounds") for name, curve in risk[kind].items()}
        for each in risk["norms"]:
            if each["norm"] != results["study"]["norm"]:
                curves |= {
                    f"risk excess theorem, B = {each['norm']:g}": each["excess"],
                    f"risk bounds mended, B = {each['norm']:g}": each["bound"],
                }
        for what, curve in curves.items():
            for n, runs in zip(results["study"]["sizes"], curve["runs"], strict=True):
                rows += [[data["name"], what, str(n), str(k), f"{value:g}"] for k, value in enumerate(runs)]
    return csv_table(rows, ["data set", "what", "n", "repetition", "value"])
