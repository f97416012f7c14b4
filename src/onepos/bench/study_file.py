"""Study files: TOML read into a `Study`, every entry checked and none assumed, and a `Study` written as TOML.

The file of a user is checked against the methods and networks there are, which imports torch. A study that onepos has
stored itself (`parse_stored`) is not: results stay readable when a method is renamed, and a report needs no torch.
"""

from __future__ import annotations

import dataclasses
import json
import math
import os
import re
import tomllib
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

from onepos.bench.grid import SAMPLERS, Axis
from onepos.bench.study import Budget, ImageSettings, Selection, Study, parse_network
from onepos.metrics import METRICS
from onepos.reading import naming, read_bytes, shorten
from onepos.training.selection import MAJORITY
from onepos.validation import suggest

STUDIES = Path(__file__).with_name("studies")

MOST_RUNS = 100_000
"""Runs of a method on a data set."""


class _Kind(NamedTuple):
    """What an entry of the file may be, in words and as a check."""

    name: str
    includes: Callable[[Any], bool]
    is_continuous: bool = False

    def convert(self, value: Any) -> Any:
        """Whole numbers become floats where a float is meant: 1 and 1.0 are the same run."""
        return float(value) if self.is_continuous else value


def _is_whole(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _is_number(value: Any) -> bool:
    return _is_whole(value) or (isinstance(value, float) and math.isfinite(value))


def _whole(least: int) -> _Kind:
    return _Kind(f"a whole number of at least {least}", lambda value: _is_whole(value) and value >= least)


_TEXT = _Kind("a text in quotes", lambda value: isinstance(value, str) and value != "")
_FLAG = _Kind("true or false", lambda value: isinstance(value, bool))
_POSITIVE = _Kind("a positive number", lambda value: _is_number(value) and value > 0, is_continuous=True)
_NOT_NEGATIVE = _Kind("a number of at least 0", lambda value: _is_number(value) and value >= 0, is_continuous=True)
_STORED = _Kind("what onepos has stored", lambda value: True)

# Each entry with what it may be: of a kind, or one of these names.
_Check: TypeAlias = _Kind | Collection[str]
_IMAGE_DRAWS = ("published", "size-biased")  # draws that only images have
_CHOICES: dict[str, _Check] = {
    "scaling": ("standard", "none"),
    "bias_init": ("frequency", "zero"),
    "split": ("new", "fixed"),
    "draw": ("new", "fixed", *_IMAGE_DRAWS),
    "sampler": SAMPLERS,
}
_PLAIN: dict[str, _Check] = {"name": _TEXT, "seed": _whole(0), "recipes": _FLAG}
_IMAGES: dict[str, _Check] = {
    "size": _whole(8),
    "weights": _TEXT,
    "precision": ("32", "bf16"),
    "backbone_lr": _NOT_NEGATIVE,
    "frozen_epochs": _whole(0),
    "compile": _FLAG,
}
_SELECTION: dict[str, _Check] = {"metric": (*METRICS, MAJORITY), "labels": ("full", "single-positive")}
_AXES = {"lr": _POSITIVE, "weight_decay": _NOT_NEGATIVE, "batch_size": _whole(1)}

# In the order in which they are written; after them come the budget and the tables.
_KEYS = ("name", "datasets", "methods", "floor", "oracle", "networks", "seed", "recipes", *_CHOICES)
_BUDGET_KEYS = ("epochs", "trials", "configurations")
_WHOLE_SAMPLERS = ("grid", "star")  # which take all of their points

# Numbers that are computed from the full labels of the training rows, as in recipes.toml.
_FROM_LABELS = ("$cardinality", "$inverse_cardinality")


def read_study(
    source: str | os.PathLike[str], *, labels: str | None = None, metric: str | None = None, seed: int | None = None
) -> Study:
    """Read and check a study file.

    Args:
        source: A TOML file, or the name of a study that ships with onepos, with or without ".toml".
        labels: In place of the file's `selection.labels`; where that changes it, it is added to the study's name.
        metric: In place of the file's `selection.metric`.
        seed: In place of the file's `seed`; where that changes it, it is added to the study's name.
    """
    path = _find_study(source)
    with naming(path):
        study = _read(_parse(read_bytes(path), path.name), _load_names())
    asked = {"metric": metric or study.selection.metric, "labels": labels or study.selection.labels}
    selection = Selection(**_Table(asked, path.name, "selection").all(_SELECTION))
    name = study.name if selection.labels == study.selection.labels else f"{study.name}-{selection.labels}"
    seed = study.seed if seed is None else seed
    name = name if seed == study.seed else f"{name}-seed-{seed}"
    return dataclasses.replace(study, name=name, selection=selection, seed=seed)


def read_studies(
    source: str | os.PathLike[str], *, labels: str | None = None, seed: int | None = None
) -> tuple[str, dict[str, Study]]:
    """The name of a file, and its studies by the folder of each: "." for a study, or one each of those it names.

    As `read_study`, but the file may hold a name and a list of `studies` that lie beside it or ship along.
    """
    path = _find_study(source)
    with naming(path):
        file = _parse(read_bytes(path), path.name)
        if "studies" not in file.content:
            study = read_study(path, labels=labels, seed=seed)
            return study.name, {".": study}
        file.check_keys(["name", "studies"])
        beside = [path.with_name(f"{name}.toml") for name in file.names("studies")]
        studies = [read_study(each if each.is_file() else each.stem, labels=labels, seed=seed) for each in beside]
        return file.get("name", _TEXT), {study.name: study for study in studies}


def parse_stored(text: str, file: str = "study.toml") -> Study:
    """The study of a text that `write_study` made; names of methods, parameters and networks are taken as they are."""
    with naming(file):
        return _read(_parse(text.encode(), file), _Names())


def write_study(study: Study) -> str:
    """The text of a file that `read_study` turns into an equal study."""
    tables = {
        "selection": dataclasses.asdict(study.selection),
        "threshold": study.threshold,
        "space": {**study.space, "parameters": study.method_space},
        "parameters": study.parameters,
        "budget": {dataset: _stated(budget) for dataset, budget in study.budgets.items()},
        "shown_labels": study.shown_labels,
        "images": dataclasses.asdict(study.images) if study.images else {},
        "centre": study.centre,
    }
    plain = {key: getattr(study, key) for key in (*_KEYS, "trace")}
    return "\n".join(_toml_lines(plain | _stated(study.budget) | tables)) + "\n"


def _find_study(source: str | os.PathLike[str]) -> Path:
    path = Path(source)
    if path.is_file():
        return path
    shipped = sorted(each.stem for each in STUDIES.glob("*.toml"))
    name = str(source).removesuffix(".toml")
    if name in shipped:
        return STUDIES / f"{name}.toml"
    raise FileNotFoundError(f"there is no study file {source}, and no study of that name; {suggest(name, shipped)}")


class _Names(NamedTuple):
    """The names that a study may hold; None where any will do."""

    methods: Mapping[str, Mapping[str, Any]] | None = None  # with the defaults of the parameters of each
    images_only: Collection[str] = ()
    networks: Collection[str] | None = None  # for rows of numbers
    backbones: Collection[str] | None = None  # for images

    def parameters(self, method: str) -> Mapping[str, Any] | None:
        return None if self.methods is None else self.methods[method]


def _load_names() -> _Names:
    """All there are; imports torch."""
    from onepos.images.networks import BACKBONES
    from onepos.methods import METHODS
    from onepos.training.backbones import NETWORKS

    made = {name: make() for name, make in METHODS.items()}
    images_only = [name for name, method in made.items() if method.requires & {"maps", "views"}]
    return _Names({name: method.get_params() for name, method in made.items()}, images_only, NETWORKS, BACKBONES)


def _parse(content: bytes, file: str) -> _Table:
    try:
        return _Table(tomllib.loads(content.decode()), file)
    except (ValueError, RecursionError, OverflowError) as error:
        raise ValueError(f"{file} must be TOML in UTF-8; {shorten(str(error))}. Mend the file.") from error


class _Table:
    """A table of the file: gives its entries checked; an error names the file and the key."""

    def __init__(self, content: Any, file: str, path: str = "") -> None:
        if not isinstance(content, dict):
            raise ValueError(f"{file}: {path} must be a table; got {content!r}.")
        self.content, self.file, self.path = content, file, path

    def name(self, key: str) -> str:
        return f"{self.path}.{key}" if self.path else key

    def wrong(self, key: str, must: str, advice: str = "") -> ValueError:
        found = f"{self.file}: {self.name(key)} must be {must}; got {self.content[key]!r}."
        return ValueError(f"{found} {advice}".rstrip())

    def check_keys(self, required: Iterable[str], optional: Iterable[str] | None = ()) -> None:
        """Refuse missing keys, and unknown ones unless `optional` is None."""
        required = list(required)
        known = [*required, *(optional or ())]
        for key in self.content:
            if optional is not None and key not in known:
                hint = suggest(key, known) if known else "there is nothing to set here."
                raise ValueError(f"{self.file}: unknown key {self.name(key)!r}; {hint}")
        for key in required:
            if key not in self.content:
                raise ValueError(f"{self.file}: {self.name(key)} must be stated; it is missing. Nothing is assumed.")

    def check_known(self, key: str, value: str, known: Collection[str] | None) -> None:
        if known is not None and value not in known:
            raise ValueError(f"{self.file}: unknown name {value!r} in {self.name(key)}; {suggest(value, list(known))}")

    def table(self, key: str) -> _Table:
        """A table within, empty where there is none."""
        return _Table(self.content.get(key, {}), self.file, self.name(key))

    def tables(self) -> dict[str, _Table]:
        """The tables within that hold something."""
        return {key: self.table(key) for key, value in self.content.items() if value != {}}

    def get(self, key: str, check: _Check | None) -> Any:
        """An entry of a kind, or one of these names; None stands for any name."""
        kind = check if isinstance(check, _Kind) else _TEXT
        value = self.content[key]
        if not kind.includes(value):
            raise self.wrong(key, kind.name)
        if not isinstance(check, _Kind):
            self.check_known(key, value, check)
        return kind.convert(value)

    def all(self, checks: Mapping[str, _Check]) -> dict[str, Any]:
        """All entries of the table."""
        self.check_keys(checks)
        return {key: self.get(key, check) for key, check in checks.items()}

    def entries(self, key: str, kind: _Kind, must: str = "") -> tuple[Any, ...]:
        """A list of entries of a kind, each of them once."""
        found = self.content[key]
        if not isinstance(found, list) or not found or not all(map(kind.includes, found)):
            raise self.wrong(key, must or f"a list in which each entry is {kind.name}")
        if any(entry in found[:k] for k, entry in enumerate(found)):
            raise self.wrong(key, "a list without repetition")
        return tuple(map(kind.convert, found))

    def names(self, key: str) -> tuple[str, ...]:
        return self.entries(key, _TEXT, 'a list of names, such as ["a", "b"]')


def _read(file: _Table, names: _Names) -> Study:
    file.check_keys(
        [*_KEYS, "epochs", "trials", "selection", "threshold", "space"],
        ["configurations", "parameters", "budget", "trace", "shown_labels", "images", "centre"],
    )
    plain = {key: file.get(key, check) for key, check in (_PLAIN | _CHOICES).items()}
    # The one entry that may be left out for a default: it came after studies had been stored, and changes no run.
    trace = file.get("trace", _FLAG) if "trace" in file.content else False
    images = ImageSettings(**file.table("images").all(_IMAGES)) if "images" in file.content else None
    if images and plain["scaling"] != "none":
        raise file.wrong("scaling", "'none' with [images]", "Each network has its own normalization of pixels.")
    if images is None and plain["draw"] in _IMAGE_DRAWS:
        raise file.wrong("draw", "'new' or 'fixed' without [images]")
    floor, oracle = (file.get(key, names.methods) for key in ("floor", "oracle"))
    datasets, budget = file.names("datasets"), _read_budget(file, plain["sampler"])
    space = file.table("space")
    space.check_keys(_AXES, ["parameters"])
    method_space, parameters = space.table("parameters"), file.table("parameters")
    for table in (method_space, parameters):
        table.check_keys((), names.methods)
    study = Study(
        datasets=datasets,
        methods=tuple(dict.fromkeys([*_read_methods(file, images, names), floor, oracle])),
        floor=floor,
        oracle=oracle,
        networks=_read_networks(file, images, names),
        budget=budget,
        budgets=_read_budgets(file, datasets, plain["sampler"], budget),
        selection=Selection(**file.table("selection").all(_SELECTION)),
        threshold=_read_threshold(file.table("threshold"), names),
        space={name: _read_axis(space, name, kind) for name, kind in _AXES.items()},
        method_space={
            name: _read_own_axes(table, names.parameters(name)) for name, table in method_space.tables().items()
        },
        parameters={
            name: _read_parameters(table, names.parameters(name)) for name, table in parameters.tables().items()
        },
        trace=trace,
        shown_labels=_read_shown_labels(file, datasets, trace),
        images=images,
        centre=_read_centre(file, names),
        **plain,
    )
    _check_axes(file, study)
    _check_count(file, study)
    return study


def _read_methods(file: _Table, images: ImageSettings | None, names: _Names) -> tuple[str, ...]:
    if file.content["methods"] == "all" and names.methods is not None:
        return tuple(name for name in names.methods if images or name not in names.images_only)
    if isinstance(file.content["methods"], str):
        raise file.wrong("methods", '"all" or a list of names')
    found = file.names("methods")
    for name in found:
        file.check_known("methods", name, names.methods)
    return found


def _read_networks(file: _Table, images: ImageSettings | None, names: _Names) -> tuple[str, ...]:
    found = file.names("networks")
    for name in found:
        if images:
            file.check_known("networks", name, names.backbones)
            continue
        try:
            network, _ = parse_network(name)
        except ValueError as error:
            raise ValueError(f"{file.file}: {error}") from error
        file.check_known("networks", network, names.networks)
    return found


def _read_centre(file: _Table, names: _Names) -> dict[str, dict[str, Any]]:
    """As stored, or of a user's file the defaults of the parameters that a star varies."""
    if names.methods is None:
        return dict(file.content.get("centre", {}))
    searched = file.table("space").table("parameters").content if file.content["sampler"] == "star" else {}
    return {
        method: {name: names.methods[method][name] for name in axes if names.methods[method][name] is not None}
        for method, axes in searched.items()
    }


def _read_budget(table: _Table, sampler: str, base: Budget | None = None) -> Budget:
    """The budget a table states; what it leaves out is that of `base`."""
    values: dict[str, Any] = dataclasses.asdict(base) if base else {"configurations": None}
    values |= {key: table.get(key, _whole(1)) for key in _BUDGET_KEYS if key in table.content}
    if "batch_sizes" in table.content:
        if sampler != "grid":
            raise table.wrong("batch_sizes", "left out with a sampler other than 'grid'", "Others take single points.")
        values["batch_sizes"] = table.entries("batch_sizes", _whole(1))
    budget = Budget(**values)
    configurations = budget.configurations
    if sampler in _WHOLE_SAMPLERS and configurations is not None:
        must = f"left out with sampler = {sampler!r}"
        raise table.wrong("configurations", must, f"A {sampler} takes all of its points.")
    if sampler not in _WHOLE_SAMPLERS and configurations is None:
        raise ValueError(f"{table.file}: configurations must be stated with sampler = {sampler!r}; it is missing.")
    if sampler == "sobol" and configurations is not None and configurations & (configurations - 1):
        raise table.wrong("configurations", "a power of two with sampler = 'sobol'", "Other numbers are not balanced.")
    return budget


def _read_budgets(file: _Table, datasets: Sequence[str], sampler: str, base: Budget) -> dict[str, Budget]:
    tables = file.table("budget")
    tables.check_keys((), datasets)
    for table in tables.tables().values():
        table.check_keys((), (*_BUDGET_KEYS, "batch_sizes"))
    return {dataset: _read_budget(table, sampler, base) for dataset, table in tables.tables().items()}


def _read_threshold(table: _Table, names: _Names) -> dict[str, float | str]:
    table.check_keys(["*"], names.methods)
    for key, value in table.content.items():
        if value != "prior" and not (_is_number(value) and 0 <= value <= 1):
            raise table.wrong(key, "a number from 0 to 1, or 'prior'")
    return {key: value if value == "prior" else float(value) for key, value in table.content.items()}


def _read_shown_labels(file: _Table, datasets: Sequence[str], trace: bool) -> dict[str, tuple[int, ...]]:
    table = file.table("shown_labels")
    table.check_keys((), datasets)
    if table.content and not trace:
        raise ValueError(
            f"{file.file}: shown_labels must come with trace = true; it does not. There is nothing to show."
        )
    return {key: table.entries(key, _whole(1), "a list of labels, counted from 1") for key in table.content}


def _read_axis(table: _Table, key: str, kind: _Kind) -> Axis:
    """An axis whose entries are all of a kind."""
    content = table.content[key]
    if not isinstance(content, dict) or len(content) != 1:
        raise table.wrong(key, "one of {values = […]}, {log = [low, high]} and {linear = [low, high]}")
    axis = table.table(key)
    axis.check_keys((), ["values", "log", "linear"])
    (form,) = content
    entries = axis.entries(form, kind)
    if form != "values" and not (kind.is_continuous or kind is _STORED):
        raise table.wrong(key, "of the form {values = […]}", f"An entry is {kind.name}.")
    if form != "values" and not (len(entries) == 2 and entries[0] < entries[1]):
        raise axis.wrong(form, "two numbers, the lower first")
    if form == "log" and entries[0] <= 0:
        raise axis.wrong(form, "two positive numbers, the lower first")
    return Axis(form, entries)


def _read_own_axes(table: _Table, defaults: Mapping[str, Any] | None) -> dict[str, Axis]:
    """The axes of a method's parameters, of the kinds its defaults are of."""
    table.check_keys((), defaults)
    return {key: _read_axis(table, key, _kind_of(defaults, key)) for key in table.content}


def _read_parameters(table: _Table, defaults: Mapping[str, Any] | None) -> dict[str, Any]:
    """Fixed parameters, of the kinds the method's defaults are of."""
    table.check_keys((), defaults)
    parameters = {}
    for key, value in table.content.items():
        kind = _kind_of(defaults, key)
        if kind.is_continuous and value in _FROM_LABELS:
            parameters[key] = value
        else:
            parameters[key] = table.get(key, kind)
    return parameters


def _check_axes(file: _Table, study: Study) -> None:
    """Axes must suit the sampler; what is searched is not fixed, but at the centre of a star."""
    for axes in (study.space, *study.method_space.values()) if study.sampler in _WHOLE_SAMPLERS else ():
        for name, axis in axes.items():
            if axis.kind != "values":
                raise ValueError(
                    f"{file.file}: the axis {name} must have values with sampler = {study.sampler!r}; it is "
                    f"{axis.kind}. List its values."
                )
    if study.sampler == "star":
        _check_star(file, study)
        return
    for method, axes in study.method_space.items():
        for name in axes.keys() & study.parameters.get(method, {}).keys():
            raise ValueError(
                f"{file.file}: {name} of {method} must be fixed or searched, not both; it stands in "
                f"[parameters.{method}] and in [space.parameters.{method}]. Take it out of one."
            )


def _check_count(file: _Table, study: Study) -> None:
    """Refuse more runs than anyone can make, before they are listed."""
    for dataset, method in product(study.datasets, study.methods):
        budget = study.budgets.get(dataset, study.budget)
        n_runs = study.n_points(method, budget.configurations) * budget.trials
        if n_runs > MOST_RUNS:
            raise ValueError(
                f"{file.file}: a method must have at most {MOST_RUNS:,} runs on a data set; {method} has {n_runs:,} "
                f"on {dataset}. Lower trials or configurations."
            )


def _check_star(file: _Table, study: Study) -> None:
    """One value on each shared axis; on a method's own, values that are not those of the centre."""
    shared = {f"space.{name}": axis.entries for name, axis in study.space.items()} | {"networks": study.networks}
    for name, entries in shared.items():
        if len(entries) > 1:
            raise ValueError(
                f"{file.file}: {name} must have one value with sampler = 'star'; it has {len(entries)}. A star varies "
                "the methods' own parameters alone."
            )
    own = [(method, name, axis) for method, axes in study.method_space.items() for name, axis in axes.items()]
    for (method, name, axis), dataset in product(own, study.datasets):
        centre = study.centre_value(dataset, method, name)
        if centre in axis.entries:
            raise ValueError(
                f"{file.file}: the axis {name} of {method} must have values beside that of the centre of the star; "
                f"it has {centre!r} too. Take it out: the centre is run once for all axes."
            )


def _kind_of(defaults: Mapping[str, Any] | None, key: str) -> _Kind:
    """What a parameter may be, by its default; a default of None is a number that is not known yet."""
    if defaults is None:
        return _STORED
    default = defaults[key]
    if isinstance(default, bool):
        return _FLAG
    if isinstance(default, int):
        return _Kind("a whole number", _is_whole)
    if default is None or isinstance(default, float):
        return _Kind("a number", _is_number, is_continuous=True)
    return _Kind("a text, a number or a list", lambda value: isinstance(value, str | int | float | list))


def _stated(budget: Budget) -> dict[str, Any]:
    return {name: value for name, value in dataclasses.asdict(budget).items() if value is not None}


def _toml_lines(table: Mapping[str, Any], path: str = "") -> Iterator[str]:
    """The lines of a table: its values, then the tables within."""
    plain = {key: value for key, value in table.items() if not isinstance(value, Mapping)}
    if path and plain:
        yield f"\n[{path}]"
    for key, value in plain.items():
        is_axis = isinstance(value, Axis)
        yield f"{_key(key)} = " + (f"{{ {value.kind} = {_value(value.entries)} }}" if is_axis else _value(value))
    for key in [key for key in table if key not in plain]:
        yield from _toml_lines(table[key], f"{path}.{_key(key)}".lstrip("."))


def _key(text: str) -> str:
    return text if re.fullmatch(r"[\w-]+", text, re.ASCII) else _value(text)


def _value(value: Any) -> str:
    """Texts, numbers and lists look in TOML as they do in JSON."""
    return json.dumps(value, ensure_ascii=False)
