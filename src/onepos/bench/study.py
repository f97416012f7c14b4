"""A study and its runs: data sets, methods, networks, search space, selection, seeds; `read_study` reads one.

What a run is follows from the study alone, and not from what else is in it: one more data set or method leaves every
other run as it was. All methods meet the same splits, draws and seeds, and the same points of the shared space (lr,
weight_decay, batch_size, network); their own parameters come from further axes of the same sequence of points.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from onepos.bench.grid import Axis, draw_points, draw_star, hash_bits
from onepos.bench.recipes import find_entry

PUBLISHED_DRAW = -1
"""In place of a seed: the single positives that come with the data."""


@dataclass(frozen=True)
class ImageSettings:
    """What only images have.

    Attributes:
        size: Side of the square they are scaled to.
        weights: Where the network starts: "pretrained", "random", or the path of a weight file.
        precision: "32" or "bf16".
        backbone_lr: Learning rate of the network, as a multiple of that of the head.
        frozen_epochs: Epochs at the start in which only the head learns.
        compile: Whether the network is compiled.
    """

    size: int
    weights: str
    precision: str
    backbone_lr: float
    frozen_epochs: int
    compile: bool


@dataclass(frozen=True)
class Run:
    """One training: everything that decides its result, and where it stands in the study.

    Attributes:
        dataset: Name of the data set.
        method: Name in METHODS.
        parameters: Of the method, where they are not its defaults. "$cardinality" stands for the mean number of labels
            of the training rows, "$inverse_cardinality" for the mean of one divided by it.
        network: Name in NETWORKS, of images in BACKBONES.
        hidden: Widths of the hidden layers, for networks that have them.
        scaling: "standard" or "none".
        bias_init: Start of the head, "frequency" or "zero".
        epochs: Passes over the training rows.
        batch_size: Rows per step.
        lr: Learning rate.
        weight_decay: Weight decay.
        threshold: Probability above which a label is predicted, or "prior".
        select_metric: The metric that chooses the epoch, a name in METRICS or MAJORITY.
        select_labels: What it sees of the validation rows, "full" or "single-positive".
        split_seed: Seed of the split.
        draw_seed: Seed of the single positives, or PUBLISHED_DRAW.
        seed: Seed of the weights and batches.
        trial: Number of the trial, from 0.
        configuration: Number of the point of the search space, from 0.
        images: For runs on images; None on rows of numbers.
    """

    dataset: str
    method: str
    parameters: Mapping[str, Any] = field(hash=False)
    network: str
    hidden: tuple[int, ...]
    scaling: str
    bias_init: str
    epochs: int
    batch_size: int
    lr: float
    weight_decay: float
    threshold: float | str
    select_metric: str
    select_labels: str
    split_seed: int
    draw_seed: int
    seed: int
    trial: int
    configuration: int
    images: ImageSettings | None = None

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
        odd = sorted((set(content) - {"images"}) ^ set(_RUN_FIELDS))
        if odd:
            raise ValueError(f"a run must have the fields {', '.join(_RUN_FIELDS)}; it differs in {', '.join(odd)}.")
        images = ImageSettings(**content["images"]) if "images" in content else None
        return cls(**{**content, "hidden": tuple(content["hidden"]), "images": images})


_RUN_FIELDS = tuple(each.name for each in dataclasses.fields(Run) if each.name != "images")


@dataclass(frozen=True)
class Budget:
    """What a method may spend on a data set.

    Attributes:
        epochs: Passes over the training rows in each run.
        trials: Repetitions of each configuration.
        configurations: Points of the search space; None means all of a grid.
        batch_sizes: Points of a grid with these only; None means all of them.
    """

    epochs: int
    trials: int
    configurations: int | None
    batch_sizes: tuple[int, ...] | None = None


@dataclass(frozen=True)
class Selection:
    """How the epoch is chosen.

    Attributes:
        metric: A name in METRICS, or MAJORITY.
        labels: What it sees of the validation rows, "full" or "single-positive".
    """

    metric: str
    labels: str


@dataclass(frozen=True)
class Study:
    """Which runs to make. The fields are those of the file, explained in studies/fair.toml.

    Attributes:
        name: Name of the study.
        datasets: Names for `load_dataset`.
        methods: Names in METHODS; floor and oracle are always among them.
        floor: The method that the others must beat.
        oracle: The method that sees all labels.
        networks: "linear", "bottleneck", or "mlp" with its widths, as in "mlp-256"; of images names in BACKBONES.
        scaling: As in `Run`.
        bias_init: As in `Run`.
        split: "new" for every trial, or "fixed".
        draw: The same of the single positives; of images also "published", those that come with the data.
        sampler: One of SAMPLERS.
        seed: The seeds of the runs and the points of the space follow from it.
        recipes: Whether methods start from the settings in recipes.toml.
        budget: For every data set but those in `budgets`.
        budgets: For single data sets.
        selection: How the epoch is chosen.
        threshold: By method; "*" for all others.
        space: The axes lr, weight_decay and batch_size, in this order.
        method_space: Axes of each method's own parameters.
        parameters: Fixed parameters of each method, on top of the recipe; with the sampler "star" its centre.
        trace: Whether each result holds the mean score and the prior of every label after each epoch.
        shown_labels: By data set, the labels, counted from one, whose traces a report shows.
        images: For studies of images; None of rows of numbers.
        centre: With the sampler "star", the methods' defaults of searched parameters that the study does not set. For
            reports only: it follows from the file, and changes no run.
    """

    name: str
    datasets: tuple[str, ...]
    methods: tuple[str, ...]
    floor: str
    oracle: str
    networks: tuple[str, ...]
    scaling: str
    bias_init: str
    split: str
    draw: str
    sampler: str
    seed: int
    recipes: bool
    budget: Budget
    budgets: Mapping[str, Budget]
    selection: Selection
    threshold: Mapping[str, float | str]
    space: Mapping[str, Axis]
    method_space: Mapping[str, Mapping[str, Axis]]
    parameters: Mapping[str, Mapping[str, Any]]
    trace: bool = False
    shown_labels: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    images: ImageSettings | None = None
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
        if self.draw == "published":
            return PUBLISHED_DRAW
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
