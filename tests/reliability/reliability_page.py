"""The page of a run of the harness: every number on it was counted by that run."""

import os
import platform

from onepos import __version__
from onepos.report.tables import markdown_table

_LEAD = """# What damage, kills and failing disks do

For those who want to know what happens to their work when something goes wrong. The harness damages valid files and
reads them, kills work at random moments and takes it up again, lets the disk fail while something is written, and fits
to numbers at the edge of what a computer can hold. Two outcomes are allowed: a result, or one sentence that names the
file.

This page is written by

    ./test --reliability{minutes} --seed {seed} --out research/results/reliability.md

This run took {seconds:.0f} seconds in {processes} on a machine with {cores} cores ({python}, onepos {version}). Another
seed makes other inputs. Without `--minutes` there are 20,000 inputs per format, in less than twenty minutes.
"""

_ABOUT = {
    "inputs": (
        "Damaged inputs",
        """Valid files of each kind, one or two of them damaged: bits, cuts, words, entries, members of archives,
headers. Each is read in a process with caps on memory and time. *Foreign* is an error that is not one of our
sentences, or does not name the file; *hang* is more than ten seconds; the last but two columns count processes that
died, and inputs that took more than 2 GiB.""",
    ),
    "kills": (
        "Killed work",
        """`kill -9` at random moments, again and again, until the work is done. *Lost*: a model that was saved, an
answer that was acknowledged, or the work itself can not be read or taken up. *Different*: the end differs from that of
work that was never killed, times of day and durations left out.""",
    ),
    "faults": (
        "Failing disks, and writers at the same time",
        """The layer that writes files meets short writes, full disks, errors of input and output, refused renames and
syncs, and interrupts, while a new content is written over an old one. Writers at the same time all have the same
process number.""",
    ),
    "numbers": (
        "Numbers at the edge",
        """Fits to {cases} kinds of rows and settings: constant, duplicate and single rows, one label for all, as many
labels as rows, features from 1e-300 to 1.7e308, learning rates up to 1e30, and others. A fit gives probabilities
strictly between 0 and 1, or one sentence.""",
    ),
    "long": ("Long runs", "Growth between the first fifth of the work and its end."),
}


def render(parts, options, seconds):
    """The page as Markdown."""
    texts = [
        _LEAD.format(
            minutes="" if options.minutes is None else f" --minutes {options.minutes:g}",
            processes="one process" if options.workers < 2 else f"{options.workers} processes",
            seed=options.seed,
            seconds=seconds,
            cores=os.cpu_count(),
            python=f"Python {platform.python_version()}",
            version=__version__,
        )
    ]
    texts.append("## In all\n\n" + _totals(parts))
    for part, results in parts.items():
        title, about = _ABOUT[part]
        texts.append(f"## {title}\n\n{about.format(cases=_n_cases())}\n\n{_table(part, results)}")
        texts += _faults(results)
    return "\n\n".join(text.rstrip() for text in texts) + "\n"


def _n_cases():
    from numerics import CASES

    return len(CASES)


def _sum(results, *names):
    return sum(result["counts"].get(name, 0) for result in results for name in names)


def _totals(parts):
    inputs, kills, faults = (parts.get(part, []) for part in ("inputs", "kills", "faults"))
    both = [*kills, *faults]
    rows = [
        ["inputs read", sum(result["inputs"] for result in inputs)],
        ["foreign exceptions", _sum(inputs, "foreign")],
        ["hangs", _sum(inputs, "hang")],
        ["crashes", _sum(inputs, "crash")],
        ["memory over 2 GiB", _sum(inputs, "memory")],
        ["kills", _sum(kills, "kills")],
        ["faults of the disk", _sum(faults, "faults")],
        ["writes at the same time", _sum(faults, "writes")],
        ["results lost", _sum(both, "lost")],
        ["results different", _sum(both, "different")],
        ["fits at the edge", sum(sum(result["counts"].values()) for result in parts.get("numbers", []))],
        ["of them neither a result nor a sentence", _sum(parts.get("numbers", []), "foreign")],
    ]
    return markdown_table([[name, f"{number:,}"] for name, number in rows], ["", "count"])


def _table(part, results):
    if part == "inputs":
        header = [
            "input",
            "inputs",
            "read",
            "refused",
            "foreign",
            "hangs",
            "crashes",
            "> 2 GiB",
            "largest MiB",
            "slowest s",
        ]
        kinds = ("result", "sentence", "foreign", "hang", "crash", "memory")
        rows = [
            [
                result["target"],
                f"{result['inputs']:,}",
                *(f"{result['counts'].get(kind, 0):,}" for kind in kinds),
                f"{result['memory'] >> 20:,}",
                f"{result['slowest']:.2f}",
            ]
            for result in results
        ]
        return markdown_table(rows, header)
    names = list(dict.fromkeys(name for result in results for name in result["counts"]))
    rows = [
        [result["target"], *(f"{result['counts'][name]:,}" if name in result["counts"] else "" for name in names)]
        for result in results
    ]
    return markdown_table(rows, ["", *names])


def _faults(results):
    """The first faults of each target, each with what it was."""
    lines = [
        f"- {result['target']}, {fault['kind']}, case {fault['case']}: {' '.join(fault['text'].split())[:300]}"
        for result in results
        for fault in result["faults"][:3]
    ]
    return ["Found:\n\n" + "\n".join(lines)] if lines else []
