"""A study and its runs: data sets, methods, networks, search space, selection, seeds; `read_study` reads one.

What a run is follows from the study alone, and not from what else is in it: one more data set or method leaves every
other run as it was. All methods meet the same splits, draws and seeds, and the same points of the shared space (lr,
weight_decay, batch_size, network); their own parameters come from further axes of the same sequence of points.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from onepos.bench.grid import Axis, draw_points, draw_star, hash_bits
from onepos.bench.recipes import find_entry

PUBLISHED_DRAW = -1
"""In place of a seed: the single positives that all published results of the data share."""

SIZE_BIASED_DRAW = -2
"""In place of a seed: single positives of which those of large objects are more frequent, where data come with them."""

_DRAWS = {"published": PUBLISHED_DRAW, "size-biased": SIZE_BIASED_DRAW}


@dataclass(frozen=True)
class ImageSettings:
    """What only images have."""

    size: int  # side of the square they are scaled to
    weights: str  # where the network starts: "pretrained", "random", or the path of a weight file
    precision: str  # "32" or "bf16"
    backbone_lr: float  # learning rate of the network, as a multiple of that of the head
    frozen_epochs: int  # epochs at the start in which only the head learns
    compile: bool


@dataclass(frozen=True)
class Run:
    """One training: everything that decides its result, and where it stands in the study."""

    dataset: str
    method: str  # name in METHODS
    # Of the method, where they are not its defaults. "$cardinality" stands for the mean number of labels of the
    # training rows, "$inverse_cardinality" for the mean of one divided by it.
    parameters: Mapping[str, Any] = field(hash=False)
    network: str  # name in NETWORKS, of images in BACKBONES
    hidden: tuple[int, ...]  # widths of the hidden layers, for networks that have them
    scaling: str  # "standard" or "none"
    bias_init: str  # start of the head, "frequency" or "zero"
    epochs: int  # passes over the training rows
    batch_size: int  # rows per step
    lr: float
    weight_decay: float
    threshold: float | str  # probability above which a label is predicted, or "prior"
    select_metric: str  # the metric that chooses the epoch, a name in METRICS or MAJORITY
    select_labels: str  # what it sees of the validation rows, "full" or "single-positive"
    split_seed: int
    draw_seed: int  # seed of the single positives, or PUBLISHED_DRAW or SIZE_BIASED_DRAW
    seed: int  # seed of the weights and batches
    trial: int  # number of the trial, from 0
    configuration: int  # number of the point of the search space, from 0
    images: ImageSettings | None = None  # for runs on images; None on rows of numbers

    def key(self) -> str:
        """Sixteen hex digits that stand for what decides the result: all but the numbers of trial and configuration."""
        return self._key

    @cached_property
    def _key(self) -> str:
        content = self.to_json()
        del content["trial"], content["configuration"]
        return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()[:16]

    def to_json(self) -> dict[str, Any]:
        """The run in the types of JSON."""
        content = {name: getattr(self, name) for name in _RUN_FIELDS}
        images = {"images": dataclasses.asdict(self.images)} if self.images else {}
        return content | {"parameters": dict(self.parameters), "hidden": list(self.hidden)} | images

    @classmethod
    def from_json(cls, content: Mapping[str, Any]) -> Run:
        """The run that `to_json` wrote."""
        if not isinstance(content, Mapping):
            raise ValueError(f"a run must be a table of fields; it is {str(content)[:40]!r}.")
        odd = sorted((set(content) - {"images"}) ^ set(_RUN_FIELDS))
        if odd:
            raise ValueError(f"a run must have the fields {', '.join(_RUN_FIELDS)}; it differs in {', '.join(odd)}.")
        for name, kinds in _RUN_TYPES.items():
            if not isinstance(content[name], kinds) or isinstance(content[name], bool):
                raise ValueError(f"the field {name} of a run is of another type; it is {str(content[name])[:40]!r}.")
        images = ImageSettings(**content["images"]) if "images" in content else None
        return cls(**{**content, "hidden": tuple(content["hidden"]), "images": images})


_NUMBER = (int, float)
_RUN_TYPES: dict[str, type | tuple[type, ...]] = {
    **dict.fromkeys(("dataset", "method", "network", "scaling", "bias_init", "select_metric", "select_labels"), str),
    **dict.fromkeys(("epochs", "batch_size", "split_seed", "draw_seed", "seed", "trial", "configuration"), int),
    **dict.fromkeys(("lr", "weight_decay"), _NUMBER),
    "parameters": dict,
    "hidden": list,
    "threshold": (int, float, str),
}
_RUN_FIELDS = tuple(each.name for each in dataclasses.fields(Run) if each.name != "images")


@dataclass(frozen=True)
class Budget:
    """What a method may spend on a data set."""

    epochs: int  # passes over the training rows in each run
    trials: int  # repetitions of each configuration
    configurations: int | None  # points of the search space; None means all of a grid
    batch_sizes: tuple[int, ...] | None = None  # points of a grid with these only; None means all of them


@dataclass(frozen=True)
class Selection:
    """How the epoch is chosen."""

    metric: str  # a name in METRICS, or MAJORITY
    labels: str  # what it sees of the validation rows, "full" or "single-positive"


@dataclass(frozen=True)
class Study:
    """Which runs to make. The fields are those of the file, explained in studies/fair.toml."""

    name: str
    datasets: tuple[str, ...]  # names for `load_dataset`
    methods: tuple[str, ...]  # names in METHODS; floor and oracle are always among them
    floor: str  # the method that the others must beat
    oracle: str  # the method that sees all labels
    # "linear", "bottleneck", or "mlp" with its widths, as in "mlp-256"; of images names in BACKBONES.
    networks: tuple[str, ...]
    scaling: str  # as in `Run`
    bias_init: str  # as in `Run`
    split: str  # "new" for every trial, or "fixed"
    draw: str  # the same of the single positives; of images also "published", those of all published results, or
    # "size-biased", which come with some data
    sampler: str  # in SAMPLERS
    seed: int  # the seeds of the runs and the points of the space follow from it
    recipes: bool  # whether methods start from the settings in recipes.toml
    budget: Budget  # for every data set but those in `budgets`
    budgets: Mapping[str, Budget]  # for single data sets
    selection: Selection  # how the epoch is chosen
    threshold: Mapping[str, float | str]  # by method; "*" for all others
    space: Mapping[str, Axis]  # the axes lr, weight_decay and batch_size, in this order
    method_space: Mapping[str, Mapping[str, Axis]]  # axes of each method's own parameters
    # Fixed parameters of each method, on top of the recipe; with the sampler "star" its centre.
    parameters: Mapping[str, Mapping[str, Any]]
    trace: bool = False  # whether each result holds the mean score and the prior of every label after each epoch
    # By data set, the labels, counted from one, whose traces a report shows.
    shown_labels: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    images: ImageSettings | None = None  # for studies of images; None of rows of numbers
    # With the sampler "star", the methods' defaults of searched parameters that the study does not set. For reports
    # only: it follows from the file, and changes no run.
    centre: Mapping[str, Mapping[str, Any]] = field(default_factory=dict, compare=False)

    def runs(self) -> list[Run]:
        """All runs, by data set, method, configuration and trial."""
        return [run for dataset in self.datasets for method in self.methods for run in self._runs_of(dataset, method)]

    def _runs_of(self, dataset: str, method: str) -> Iterator[Run]:
        budget = self.budgets.get(dataset, self.budget)
        fixed = self.fixed_parameters(dataset, method)
        for configuration, (point, own) in enumerate(self._points(method, budget.configurations)):
            named = point.pop("network")
            if budget.batch_sizes and point["batch_size"] not in budget.batch_sizes:
                continue
            network, hidden = (named, ()) if self.images else parse_network(named)
            for trial in range(budget.trials):
                yield Run(
                    dataset=dataset,
                    method=method,
                    parameters=fixed | own,
                    network=network,
                    hidden=hidden,
                    scaling=self.scaling,
                    bias_init=self.bias_init,
                    epochs=budget.epochs,
                    **point,
                    threshold=self.threshold.get(method, self.threshold["*"]),
                    select_metric=self.selection.metric,
                    select_labels=self.selection.labels,
                    split_seed=hash_bits(self.seed, "split", trial if self.split == "new" else 0),
                    draw_seed=self._draw_seed(trial),
                    seed=hash_bits(self.seed, "weights", trial),
                    trial=trial,
                    configuration=configuration,
                    images=self.images,
                )

    def _draw_seed(self, trial: int) -> int:
        if self.draw in _DRAWS:
            return _DRAWS[self.draw]
        return hash_bits(self.seed, "draw", trial if self.draw == "new" else 0)

    def _points(self, method: str, count: int | None) -> list[tuple[dict[str, Any], dict[str, Any]]]:
        """Per configuration the point of the shared space and that of the method's own."""
        own = self._own_axes(method)
        shared = {**self.space, "network": Axis("values", self.networks)}
        if self.sampler == "star":
            (centre,) = draw_points(shared, "grid", None, self.seed)
            return [(dict(centre), point) for point in self.star(method)]
        axes = shared | {f"parameters.{name}": axis for name, axis in own.items()}
        return [
            ({name: point[name] for name in shared}, {name: point[f"parameters.{name}"] for name in own})
            for point in draw_points(axes, self.sampler, count, self.seed)
        ]

    def n_points(self, method: str, count: int | None) -> int:
        """How many configurations a method has at most, without listing them."""
        own = [len(axis.entries) for axis in self._own_axes(method).values()]
        if self.sampler == "star":
            return 1 + sum(own)
        if self.sampler == "grid":
            return math.prod([len(self.networks), *own, *(len(axis.entries) for axis in self.space.values())])
        return count or 1

    def star(self, method: str) -> list[dict[str, Any]]:
        """With the sampler "star", what each configuration of a method sets on its own, the centre first."""
        return draw_star(self._own_axes(method))

    def _own_axes(self, method: str) -> dict[str, Axis]:
        """Sorted, so that two studies that are equal have equal runs in whatever order a file names the parameters."""
        return dict(sorted(self.method_space.get(method, {}).items()))

    def centre_value(self, dataset: str, method: str, name: str) -> Any:
        """With the sampler "star", the value of a searched parameter at the centre; "default" if it is not known."""
        known = {**self.centre.get(method, {}), **self.fixed_parameters(dataset, method)}
        return known.get(name, "default")

    def fixed_parameters(self, dataset: str, method: str) -> dict[str, Any]:
        """Parameters of a method that the study sets, apart from those it searches."""
        entry = find_entry(method, dataset) if self.recipes else {}
        return {**entry.get("parameters", {}), **self.parameters.get(method, {})}


def parse_network(text: str) -> tuple[str, tuple[int, ...]]:
    """Name and hidden widths: "mlp-256-64" is ("mlp", (256, 64)).

    Widths are part of the name since a study states its networks in full.
    """
    name, *widths = text.split("-")
    if not all(width.isdecimal() and int(width) > 0 for width in widths):
        raise ValueError(f"the widths of a network must be whole numbers of at least 1; got {text!r}. Write mlp-256.")
    if name == "mlp" and not widths:
        raise ValueError("the network mlp must state the widths of its hidden layers; it does not. Write mlp-256.")
    if name != "mlp" and widths:
        raise ValueError(f"only the network mlp has widths to state; got {text!r}. Write {name}.")
    return name, tuple(map(int, widths))
