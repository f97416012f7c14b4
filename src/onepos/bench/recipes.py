"""Recipes: the settings of a method on a data set, with their source (recipes.toml)."""

from __future__ import annotations

import tomllib
import warnings
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt


@dataclass(frozen=True)
class Recipe:
    """Settings of a method on a data set."""

    parameters: dict[str, Any] = field(default_factory=dict)  # of the method
    plan: dict[str, Any] = field(default_factory=dict)  # of the classifier: threshold, lr, batch_size …
    source: str = "defaults"  # where the numbers come from


def find_recipe(method: str, dataset: str, Y: npt.NDArray[Any] | None = None) -> Recipe:
    """The recipe of a method on a data set; the method's defaults where there is none.

    Some need the mean number of labels per row, from the full labels `Y` of the training rows. Published methods decide
    at one half, unless the recipe has another threshold.
    """
    entry = find_entry(method, dataset)
    if not entry:
        return Recipe()
    parameters = {name: resolve(value, method, Y) for name, value in entry.get("parameters", {}).items()}
    return Recipe(parameters, {"threshold": 0.5} | entry.get("plan", {}), entry["source"])


def check_recipe(method: str, dataset: str) -> None:
    """Refuse a data set that no recipe is for, and warn where this method has none."""
    known = sorted({name for entries in read_recipes().values() for name in entries})
    if dataset not in known:
        names = ", ".join(name for name in known if name != "*")
        raise ValueError(f"a recipe must be for one of {names}, or '*' for another data set; got '{dataset}'.")
    if not find_entry(method, dataset):
        warnings.warn(f"{method} has no recipe for {dataset}; its defaults are taken.", UserWarning, stacklevel=2)


def find_entry(method: str, dataset: str) -> dict[str, Any]:
    """The recipe as it stands in the file, with its placeholders; empty where there is none."""
    entries = read_recipes().get(method, {})
    return entries.get(dataset, entries.get("*", {}))


@cache
def read_recipes() -> dict[str, dict[str, dict[str, Any]]]:
    """The whole table: method → data set → entry."""
    return tomllib.loads(Path(__file__).with_name("recipes.toml").read_text(encoding="utf-8"))


def resolve(value: Any, method: str, Y: npt.NDArray[Any] | None) -> Any:
    """What is computed from full labels where the recipe needs it."""
    if value not in ("$cardinality", "$inverse_cardinality", "$class_prior"):
        return value
    if Y is None:
        raise ValueError(
            f"the recipe of {method} needs the {value[1:].replace('_', ' ')}, which only full labels tell; "
            "none were given. Set the parameter yourself."
        )
    if value == "$class_prior":
        return tuple(np.asarray(Y).mean(0).tolist())
    count = np.asarray(Y).sum(1)
    return float(count.mean() if value == "$cardinality" else (1 / count[count > 0]).mean())
