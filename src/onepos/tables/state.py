"""The checks that a stored encoder passes before it is believed, and lists of texts as arrays of bytes."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

Facts: TypeAlias = dict[str, Any]
Arrays: TypeAlias = dict[str, npt.NDArray[Any]]


def wrong(what: str, found: Any) -> ValueError:
    """The error about a stored encoder that can not be."""
    shown = found if isinstance(found, str) and found.startswith("it ") else f"got {str(found)[:60]!r}"
    return ValueError(f"A stored table encoder must hold {what}; {shown}. Save the encoder again.")


def get(facts: Mapping[str, Any], key: str) -> Any:
    """An entry of a dictionary that must be there."""
    if not isinstance(facts, Mapping) or key not in facts:
        raise wrong(f"the entry {key!r}", "it does not")
    return facts[key]


def get_text(facts: Mapping[str, Any], key: str, choices: Sequence[str] | None = None) -> str:
    """An entry that must be text, one of a few where there are choices."""
    value = get(facts, key)
    if not isinstance(value, str) or (choices is not None and value not in choices):
        raise wrong(f"as {key!r} {'text' if choices is None else 'one of ' + ', '.join(choices)}", value)
    return value


def get_flag(facts: Mapping[str, Any], key: str) -> bool:
    """An entry that must be true or false."""
    value = get(facts, key)
    if not isinstance(value, bool):
        raise wrong(f"as {key!r} true or false", value)
    return value


def get_count(facts: Mapping[str, Any], key: str) -> int:
    """An entry that must be a whole number from 0."""
    value = get(facts, key)
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value < 2**53:
        raise wrong(f"as {key!r} a whole number from 0", value)
    return value


def get_number(facts: Mapping[str, Any], key: str, *, positive: bool = False) -> float:
    """An entry that must be a finite number."""
    value = get(facts, key)
    is_number = isinstance(value, int | float) and not isinstance(value, bool) and -1e308 < value < 1e308
    if not is_number or not math.isfinite(value) or (positive and value <= 0):
        raise wrong(f"as {key!r} a finite{' positive' if positive else ''} number", value)
    return float(value)


def get_rising(facts: Mapping[str, Any], key: str) -> npt.NDArray[np.float64]:
    """An entry that must be a list of finite numbers, each larger than the one before; two are too few, none is not."""
    value = get(facts, key)
    if not isinstance(value, list | tuple) or len(value) in (1, 2):
        raise wrong(f"as {key!r} no numbers, or at least three", value)
    numbers = np.array([get_number({key: each}, key) for each in value], dtype=np.float64)
    if not (np.diff(numbers) > 0).all():
        raise wrong(f"as {key!r} numbers that rise", value)
    return numbers


def get_texts(facts: Mapping[str, Any], key: str) -> list[str]:
    """An entry that must be a list of different texts."""
    value = get(facts, key)
    if not isinstance(value, list | tuple) or not all(isinstance(text, str) for text in value):
        raise wrong(f"as {key!r} a list of texts", value)
    if len(set(value)) != len(value):
        raise wrong(f"as {key!r} texts that differ", "it holds one twice")
    return list(value)


def pack_texts(texts: Sequence[str]) -> npt.NDArray[np.uint8]:
    """Texts without line ends as UTF-8, one per line."""
    return np.frombuffer("\n".join(texts).encode("utf-8", "surrogatepass"), dtype=np.uint8)


def get_packed(arrays: Mapping[str, Any], key: str) -> list[str]:
    """The texts of `pack_texts`, all of them different and none empty."""
    array = _get_array(arrays, key, np.dtype(np.uint8))
    try:
        joined = array.tobytes().decode("utf-8", "surrogatepass")
    except UnicodeDecodeError:
        raise wrong(f"in the array {key!r} UTF-8", "it does not") from None
    texts = joined.split("\n") if joined else []
    if len(set(texts)) != len(texts) or "" in texts:
        raise wrong(f"in the array {key!r} texts that differ", "it holds one twice, or an empty one")
    return texts


def get_numbers(arrays: Mapping[str, Any], key: str, length: int) -> npt.NDArray[np.float32]:
    """An array of so many finite float32 numbers."""
    array = _get_array(arrays, key, np.dtype(np.float32))
    if len(array) != length or not np.isfinite(array).all():
        raise wrong(f"in the array {key!r} {length} finite numbers", "it does not")
    return array


def _get_array(arrays: Mapping[str, Any], key: str, dtype: np.dtype[Any]) -> npt.NDArray[Any]:
    array = get(arrays, key)
    if not isinstance(array, np.ndarray) or array.dtype != dtype or array.ndim != 1:
        raise wrong(f"the array {key!r} with one dimension and the type {dtype}", "it does not")
    return array
