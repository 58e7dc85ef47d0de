"""Random numbers and arrays of which the nodes of `operator_generators` are made."""

from typing import Any, TypeAlias

import numpy as np

from tests.support.operator_cases import Array, Arrays

Generator: TypeAlias = np.random.Generator
Made: TypeAlias = tuple[int, Arrays, int, dict[str, Any]]
"""Opset, inputs by name in their order (`""` stands before one that is left out), number of outputs, attributes."""


def real(rng: Generator, *dims: int) -> Array:
    return rng.standard_normal(dims).astype(np.float32)


def pick(rng: Generator, *values: Any) -> Any:
    return values[rng.integers(len(values))]


def dims_of(rng: Generator, count: int, most: int = 5) -> tuple[int, ...]:
    return tuple(int(n) for n in rng.integers(1, most + 1, count))


def some(rng: Generator, count: int, low: int, high: int) -> list[int]:
    return [int(n) for n in rng.integers(low, high + 1, count)]
