"""Random nodes that move, count or select elements, and what ONNX Runtime computes for them in every type.

ONNX Runtime lacks many types, so it computes a node in a type that it has:

- A node that only **moves** elements is computed on their numbers (1, 2, 3 ...). The result is then looked up in the
  elements of the type that is tested; the number 0 stands for an element that the node adds.
- A node that **compares** or adds elements is computed in float32 or int64, which hold the elements exactly.

Inputs whose names begin with `x` have the type that is tested.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import ml_dtypes
import numpy as np
from onnx import helper

from tests.support.operator_cases import Array, Case, by_runtime
from tests.support.operator_generators import Generator, dims_of, maybe, pick, picks, some

Drawn = tuple[int, dict[str, Any], dict[str, Any], int]
"""Opset, dims or arrays of inputs by name, attributes, and the number of outputs; None for what is left out."""

INTEGERS = ("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64")
FLOATS = ("float16", "bfloat16", "float32", "float64")
SMALL = ("float8_e4m3fn", "float8_e4m3fnuz", "float8_e5m2", "float8_e5m2fnuz", "float4_e2m1fn", "int4", "uint4")
MOVED = ("bool", *INTEGERS, *FLOATS, *SMALL, "complex64", "complex128")
"""Types of elements that are only moved."""
ACCUMULATED = (*FLOATS, "int32", "int64", "uint32", "uint64")


def type_of(name: str) -> np.dtype[Any]:
    return np.dtype(getattr(ml_dtypes, name, name))


def drawn_case(operator: str, seed: int) -> Case:
    """Return a random node whose inputs of the tested type have numbers from 1 on, as float32."""
    rng = np.random.default_rng([seed, *operator.encode()])
    opset, inputs, attributes, outputs = {**MOVING, **COUNTING}[operator](rng)
    arrays, count = dict[str, Array](), 1
    for name, value in inputs.items():
        if name.startswith("x"):
            n = int(np.prod(value, dtype=int))
            arrays[name] = np.arange(count, count + n, dtype=np.float32).reshape(value)
            count += n
        elif value is not None:
            arrays[name] = np.asarray(value)
    names = [name if name in arrays else "" for name in inputs]
    while names and not names[-1]:
        names.pop()
    attributes = {name: value for name, value in attributes.items() if value is not None}
    node = helper.make_node(operator, names, [f"y{k}" for k in range(outputs)], "node", **attributes)
    return Case(f"{operator}-{seed}", node, opset, arrays, [], False)


def moved_cases(operator: str, seed: int) -> list[Case]:
    """Return a random node in every type, with the results that ONNX Runtime's moved numbers look up."""
    case = drawn_case(operator, seed)
    numbers = by_runtime(case)
    if numbers is None:
        return []
    rng, cases = np.random.default_rng(seed), []
    count = int(sum(array.size for name, array in case.arrays.items() if name.startswith("x")))
    for name in MOVED:
        table = np.concatenate([np.zeros(1, type_of(name)), random_elements(rng, type_of(name), (count,))])
        arrays = {k: table[v.astype(int)] if k.startswith("x") else v for k, v in case.arrays.items()}
        expected = [table[number.astype(int)] for number in numbers]
        cases.append(replace(case, name=f"{case.name} {name}", arrays=arrays, expected=expected))
    return cases


def counted_cases(operator: str, seed: int) -> list[Case]:
    """Return a random node in every type, with the results that ONNX Runtime computes in a wider type."""
    case, cases = drawn_case(operator, seed), []
    rng = np.random.default_rng(seed)
    for name in TYPES.get(operator, (*INTEGERS, *FLOATS)):
        dtype = type_of(name)
        arrays = {
            k: random_elements(rng, dtype, v.shape, few=True) if k.startswith("x") else v
            for k, v in case.arrays.items()
        }
        wide = np.dtype(name) if name in ("float64", "int64") else np.float32 if name in FLOATS else np.int64
        widened = {k: v.astype(wide) if k.startswith("x") else v for k, v in arrays.items()}
        results = by_runtime(replace(case, arrays=widened))
        if results is not None:
            first = results[0] if operator in INDEXING else results[0].astype(dtype)
            cases.append(replace(case, name=f"{case.name} {name}", arrays=arrays, expected=[first, *results[1:]]))
    return cases


def random_elements(rng: Generator, dtype: np.dtype[Any], dims: Any, few: bool = False) -> Array:
    """Return random elements of a type; if they are to be few, many are equal."""
    numbers: Array = rng.standard_normal(dims) * 3
    if dtype.kind == "b":
        numbers = rng.random(dims) < 0.5
    elif few:
        numbers = rng.integers(0 if dtype.kind == "u" else -3, 4, dims) * (0.5 if "float" in dtype.name else 1)
    elif dtype.kind == "c":
        numbers = numbers + 1j * rng.standard_normal(dims)
    elif "uint" in dtype.name:
        numbers = np.abs(numbers)
    return np.asarray(numbers).astype(dtype)


# Moving


def concat(rng: Generator) -> Drawn:
    dims, axis = list(dims_of(rng, 3, 4)), pick(rng, 0, 1, 2, -1)
    inputs = {}
    for k in range(pick(rng, 1, 2, 3)):
        dims[axis] = pick(rng, 0, 1, 3)
        inputs[f"x{k}"] = tuple(dims)
    return pick(rng, 11, 13), inputs, {"axis": axis}, 1


def expand(rng: Generator) -> Drawn:
    dims = dims_of(rng, 4, 3)
    src = tuple(pick(rng, 1, n) for n in dims)[pick(rng, 0, 1, 2, 4) :]
    return (
        pick(rng, 9, 13),
        {"x": src, "dims": np.array([pick(rng, n, n, 1) if 1 < n in src else n for n in dims])},
        {},
        1,
    )


def tile(rng: Generator) -> Drawn:
    dims = dims_of(rng, pick(rng, 1, 2, 3), 3)
    return pick(rng, 9, 13), {"x": dims, "times": np.array(some(rng, len(dims), 0, 3))}, {}, 1


def trilu(rng: Generator) -> Drawn:
    k = maybe(rng, np.array(some(rng, 1, -7, 7)[0]))
    return (
        14,
        {"x": (*dims_of(rng, pick(rng, 0, 1), 2), *some(rng, 2, 0, 4)), "k": k},
        picks(rng, upper=(0, 1, None)),
        1,
    )


def center_crop_pad(rng: Generator) -> Drawn:
    axes = pick(rng, None, [0], [-1, 0], [2])
    sizes = some(rng, 3 if axes is None else len(axes), 1, 6)
    return 18, {"x": dims_of(rng, 3), "dims": np.array(sizes)}, {"axes": axes}, 1


def split(rng: Generator) -> Drawn:
    opset, axis, outputs = pick(rng, 9, 11, 13, 18), pick(rng, 0, 1, -1), pick(rng, 1, 2, 3)
    dims, sizes = list(dims_of(rng, 2)), maybe(rng, some(rng, outputs, 0, 3))
    dims[axis] = sum(sizes) if sizes else outputs * pick(rng, 1, 2) + (pick(rng, 0, 1) if opset >= 18 else 0)
    if outputs == 3 and dims[axis] == 4:
        dims[axis] = 5
    attributes = {"axis": axis, "split": sizes if opset < 13 else None}
    if opset >= 18 and not sizes:
        attributes["num_outputs"] = outputs
    given = np.array(sizes) if sizes and opset >= 13 else None
    return opset, {"x": tuple(dims), "sizes": given}, attributes, outputs


def tensor_scatter(rng: Generator) -> Drawn:
    axis, mode, extent = pick(rng, 1, 2, -2, -1), pick(rng, "linear", "circular", None), 5
    dims = [2, *dims_of(rng, 3, 3)]
    dims[axis] = extent
    update = list(dims)
    update[axis] = pick(rng, 1, 2, 4)
    most = extent - 1 if mode == "circular" else extent - update[axis]
    starts = maybe(rng, rng.integers(0, most + 1, 2))
    return 24, {"x": tuple(dims), "x1": tuple(update), "starts": starts}, {"axis": axis, "mode": mode}, 1


def flatten(rng: Generator) -> Drawn:
    opset, dims = pick(rng, 9, 11, 13, 21, 25), dims_of(rng, pick(rng, 1, 2, 4), 3)
    return opset, {"x": dims}, {"axis": int(rng.integers(0 if opset < 11 else -len(dims), len(dims) + 1))}, 1


def reshape(rng: Generator) -> Drawn:
    a, b, c = dims_of(rng, 3, 4)
    dims = pick(rng, [a * b, c], [-1], [0, -1], [0, 0, c], [c, -1, a], [a, 1, -1, 1], [b, a, 0])
    opset = pick(rng, 9, 13, 14, 19, 25)
    if opset >= 14 and rng.random() < 0.3:
        return opset, {"x": (a, 0, c), "dims": np.array(pick(rng, [0, 7], [2, 0, 3], [0]))}, {"allowzero": 1}, 1
    return opset, {"x": (a, b, c), "dims": np.array(dims)}, {}, 1


def axes_node(opset: int, dims: tuple[int, ...], axes: list[int] | None) -> Drawn:
    """Return a node with axes, an attribute before opset 13 and an input from then on."""
    given = np.array(axes) if axes is not None and opset >= 13 else None
    return opset, {"x": dims, "axes": given}, {"axes": axes if opset < 13 else None}, 1


def squeeze(rng: Generator) -> Drawn:
    return axes_node(pick(rng, 9, 13, 21, 25), pick(rng, (1, 3, 1), (1, 2, 1)), pick(rng, None, [0], [2], [0, 2]))


def unsqueeze(rng: Generator) -> Drawn:
    return axes_node(pick(rng, 11, 13, 21, 25), pick(rng, (), (3,), (2, 3)), pick(rng, [0], [-1], [1, 0], [0, -1]))


def transpose(rng: Generator) -> Drawn:
    dims = dims_of(rng, pick(rng, 1, 3, 4), 4)
    return pick(rng, 9, 13, 21, 25), {"x": dims}, {"perm": maybe(rng, list(map(int, rng.permutation(len(dims)))))}, 1


def compress(rng: Generator) -> Drawn:
    dims, axis = dims_of(rng, pick(rng, 1, 2, 3)), pick(rng, None, 0, -1)
    extent = int(np.prod(dims)) if axis is None else dims[axis]
    return pick(rng, 9, 11, 28), {"x": dims, "c": rng.random(int(rng.integers(1, extent + 1))) < 0.6}, {"axis": axis}, 1


def depth_to_space(rng: Generator) -> Drawn:
    opset, block = pick(rng, 9, 11, 13, 28), pick(rng, 1, 2, 3)
    mode = pick(rng, "DCR", "CRD", None) if opset >= 11 else None
    return opset, {"x": (2, 2 * block**2, *dims_of(rng, 2, 3))}, {"blocksize": block, "mode": mode}, 1


def space_to_depth(rng: Generator) -> Drawn:
    opset, block = pick(rng, 9, 13, 28), pick(rng, 1, 2, 3)
    mode = pick(rng, "DCR", "CRD", None) if opset >= 28 else None
    height, width = dims_of(rng, 2, 3)
    return opset, {"x": (2, 3, height * block, width * block)}, {"blocksize": block, "mode": mode}, 1


def reverse_sequence(rng: Generator) -> Drawn:
    batch, time = pick(rng, (0, 1), (1, 0))
    dims = dims_of(rng, pick(rng, 2, 3), 4)
    lengths = rng.integers(1, dims[time] + 1, dims[batch])
    return pick(rng, 10, 28), {"x": dims, "n": lengths}, {"batch_axis": batch, "time_axis": time}, 1


def one_hot(rng: Generator) -> Drawn:
    kind = pick(rng, np.int64, np.float32, np.int32)
    indices = rng.integers(-6, 6, dims_of(rng, pick(rng, 1, 2), 3)).astype(kind)
    depth = np.array(pick(rng, 4, [4]), pick(rng, np.int64, np.float32))
    return pick(rng, 9, 11, 28), {"k": indices, "depth": depth, "x": (2,)}, picks(rng, axis=(None, 0, 1, -1)), 1


# Counting


def argument(rng: Generator) -> Drawn:
    opset, dims = pick(rng, 9, 11, 12, 13), dims_of(rng, pick(rng, 1, 3))
    last = (0, 1, None) if opset >= 12 else (None,)
    low = 0 if opset < 11 else -len(dims)
    axis = pick(rng, None, *range(low, len(dims)))
    return opset, {"x": dims}, {"axis": axis, **picks(rng, keepdims=(0, 1, None), select_last_index=last)}, 1


def top_k(rng: Generator) -> Drawn:
    opset, axis = pick(rng, 9, 10, 11, 24), pick(rng, None, 0, 1, -1)
    k = pick(rng, 1, 2, 3)
    more = {"largest": pick(rng, 0, 1), "sorted": 1} if opset >= 11 else {}
    inputs = {"x": tuple(some(rng, 2, 3, 6)), "k": np.array([k]) if opset >= 10 else None}
    return opset, inputs, {"axis": axis, "k": k if opset < 10 else None, **more}, 2


def accumulation(*opsets: int) -> Callable[[Generator], Drawn]:
    def make(rng: Generator) -> Drawn:
        axis = np.array(pick(rng, 0, 1, -1, [2]), pick(rng, np.int32, np.int64))
        return pick(rng, *opsets), {"x": dims_of(rng, 3), "a": axis}, picks(rng, exclusive=(0, 1), reverse=(0, 1)), 1

    return make


def unique(rng: Generator) -> Drawn:
    dims = pick(rng, (3, 4), (12,), (5, 2, 2))
    return pick(rng, 11, 28), {"x": dims}, picks(rng, axis=(None, 0, -1), sorted=(0, 1)), 4


def non_zero(rng: Generator) -> Drawn:
    return pick(rng, 9, 13), {"x": dims_of(rng, pick(rng, 1, 3))}, {}, 1


def sequence(rng: Generator) -> Drawn:
    step = pick(rng, 1, 2, 3, -1, -2) * pick(rng, 1, 0.5)
    dtype = pick(rng, np.int16, np.int32, np.int64, np.float32, np.float64)
    numbers = {"a": pick(rng, 0, 1, -2.5), "b": some(rng, 1, -9, 9)[0], "d": step if dtype(step) else 1}
    return pick(rng, 11, 27), {name: np.array(value, dtype) for name, value in numbers.items()}, {}, 1


def suppression(rng: Generator) -> Drawn:
    batch, classes, count = pick(rng, 1, 2), pick(rng, 1, 3), some(rng, 1, 1, 12)[0]
    boxes = rng.integers(0, 6, (batch, count, 4)).astype(np.float32) / 2
    scores = rng.integers(0, 5, (batch, classes, count)).astype(np.float32) / 4
    inputs = {"boxes": boxes, "scores": scores, "most": np.array([pick(rng, 0, 1, 3, 99)])}
    inputs |= {"iou": maybe(rng, np.array(pick(rng, 0, 0.25, 0.5, 1), np.float32))}
    inputs |= {"least": maybe(rng, np.array(pick(rng, 0, 0.5), np.float32))}
    return pick(rng, 10, 11), inputs, picks(rng, center_point_box=(0, 1, None)), 1


MOVING: Mapping[str, Callable[[Generator], Drawn]] = {
    "CenterCropPad": center_crop_pad,
    "Compress": compress,
    "Concat": concat,
    "DepthToSpace": depth_to_space,
    "Expand": expand,
    "Flatten": flatten,
    "OneHot": one_hot,
    "Reshape": reshape,
    "ReverseSequence": reverse_sequence,
    "SpaceToDepth": space_to_depth,
    "Split": split,
    "Squeeze": squeeze,
    "TensorScatter": tensor_scatter,
    "Tile": tile,
    "Transpose": transpose,
    "Trilu": trilu,
    "Unsqueeze": unsqueeze,
}
"""Generator of each operator whose results consist of elements of its inputs, and of zeros."""

COUNTING: Mapping[str, Callable[[Generator], Drawn]] = {
    "ArgMax": argument,
    "ArgMin": argument,
    "CumProd": accumulation(26),
    "CumSum": accumulation(11, 14),
    "NonMaxSuppression": suppression,
    "NonZero": non_zero,
    "Range": sequence,
    "TopK": top_k,
    "Unique": unique,
}
"""Generator of each operator that compares, counts or accumulates elements."""

TYPES: Mapping[str, tuple[str, ...]] = {
    "CumProd": ACCUMULATED,
    "CumSum": ACCUMULATED,
    "NonZero": ("bool", *INTEGERS, *FLOATS),
    **dict.fromkeys(("NonMaxSuppression", "Range"), ("float32",)),
}
"""Types that are tested; integers and floats if an operator has no row."""
INDEXING = frozenset({"ArgMax", "ArgMin", "NonMaxSuppression", "NonZero", "Range"})
"""Operators whose first result does not have the type of `x`."""
