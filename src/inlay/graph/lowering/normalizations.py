"""Normalizations, and softmax, which brings sums to 1.

Layer normalization over several axes flattens them, as softmax does before opset 13. Group normalization has a scale
for each channel since opset 21, before it one for each group.
"""

from collections.abc import Callable, Mapping
from math import prod

import numpy as np

from inlay.graph.lowering.draft import Draft, Operand, require
from inlay.layout import Dims

_EPSILON = float(np.float32(1e-5))
_MOST_AXES = 5


def batch_normalization(draft: Draft) -> Operand:
    """(src - mean) / sqrt(variance + epsilon) * scale + shift, with statistics that are given."""
    is_trained = draft.attribute("training_mode", 0) or any(draft.wants(index) for index in range(1, 5))
    require(not is_trained, "it computes statistics, as in training")
    require(draft.attribute("spatial", 1) == 1, "its statistics differ in space")
    src = draft.source(0)
    dims = draft.dims(src)
    require(1 < len(dims) <= _MOST_AXES, f"it has {len(dims)} axes, the primitive has 2 to {_MOST_AXES}")
    names = ("src", "scale", "shift", "mean", "variance")
    operands = {name: draft.operand(index) for index, name in enumerate(names)}
    flags = frozenset({"use_global_stats", "use_scale", "use_shift"})
    return draft.put("batch_normalization", operands, dims, epsilon=_epsilon(draft), flags=flags)


def _epsilon(draft: Draft) -> float:
    return float(draft.attribute("epsilon", _EPSILON))


def layer_normalization(draft: Draft) -> Operand:
    """Mean 0 and variance 1 over the last axes."""
    require(not (draft.wants(1) or draft.wants(2)), "its statistics are asked for")
    return _over_last(draft, ("scale", "shift"), frozenset())


def rms_normalization(draft: Draft) -> Operand:
    """Mean square 1 over the last axes."""
    return _over_last(draft, ("scale",), frozenset({"rms_norm"}))


def _over_last(draft: Draft, names: tuple[str, ...], flags: frozenset[str]) -> Operand:
    """A layer normalization of the axes from the attribute `axis` on, as one."""
    require(draft.attribute("stash_type", 1) == 1, "its statistics are of another type than float32")
    src = draft.source(0)
    dims = draft.dims(src)
    axis = draft.attribute("axis", -1) % len(dims)
    columns = prod(dims[axis:])
    rows = dims[:axis] if 0 < axis <= _MOST_AXES - 1 else (prod(dims[:axis]),)
    operands: dict[str, Operand] = {"src": draft.reshaped(src, (*rows, columns))}
    for index, name in enumerate(names, 1):
        if draft.given(index):
            operands[name] = _spread(draft, draft.operand(index), dims[axis:])
            flags |= {f"use_{name}"}
    result = draft.put("layer_normalization", operands, (*rows, columns), epsilon=_epsilon(draft), flags=flags)
    return draft.reshaped(result, dims)


def _spread(draft: Draft, operand: Operand, dims: Dims) -> Operand:
    """A scale or shift of `dims`, flat."""
    if not isinstance(operand, str):
        require(operand.ndim <= len(dims), "its scale has more axes than are normalized")
        return np.ascontiguousarray(np.broadcast_to(operand, dims)).reshape(-1)
    require(prod(draft.dims(operand)) == prod(dims), "its scale is spread")
    return draft.reshaped(operand, (prod(dims),))


def group_normalization(draft: Draft) -> Operand:
    """Mean 0 and variance 1 over each group of channels."""
    groups = draft.attribute("num_groups")
    require(draft.attribute("stash_type", 1) == 1, "its statistics are of another type than float32")
    return _grouped(draft, groups, draft.opset < 21)


def instance_normalization(draft: Draft) -> Operand:
    """Mean 0 and variance 1 over each channel of each image.

    With the channels of all images as those of one, it is a batch normalization that computes its statistics: a
    primitive of every release of oneDNN, which group normalization is not.
    """
    src = draft.source(0)
    dims = draft.dims(src)
    require(2 < len(dims) <= _MOST_AXES, f"it has {len(dims)} axes, the primitive has 3 to {_MOST_AXES}")
    numbers = [draft.operand(index) for index in (1, 2)]
    if dims[0] > 1 and any(isinstance(operand, str) for operand in numbers):
        return _grouped(draft, dims[1], False)
    flat = (1, dims[0] * dims[1], *dims[2:])
    operands: dict[str, Operand] = {"src": draft.reshaped(src, flat)}
    for name, operand, nothing in zip(("scale", "shift"), numbers, (1, 0), strict=True):
        if isinstance(operand, str):
            operands[name] = operand
        elif not (operand == nothing).all():
            operands[name] = np.tile(operand, dims[0])
    flags = frozenset(f"use_{name}" for name in operands if name != "src")
    result = draft.put("batch_normalization", operands, flat, epsilon=_epsilon(draft), flags=flags)
    return draft.reshaped(result, dims)


def _grouped(draft: Draft, groups: int, is_by_group: bool) -> Operand:
    src = draft.source(0)
    dims = draft.dims(src)
    require(2 < len(dims) <= _MOST_AXES, f"it has {len(dims)} axes, the primitive has 3 to {_MOST_AXES}")
    operands: dict[str, Operand] = {"src": src}
    for index, name in ((1, "scale"), (2, "shift")):
        operand = draft.constant(index, name) if is_by_group and groups != dims[1] else draft.operand(index)
        if is_by_group and not isinstance(operand, str):
            operand = np.repeat(operand, dims[1] // groups)
        operands[name] = operand
    flags = frozenset({"use_scale", "use_shift"})
    return draft.put("group_normalization", operands, dims, groups=groups, epsilon=_epsilon(draft), flags=flags)


def local_response(draft: Draft) -> Operand:
    """src / (bias + alpha / size * sum of squares over `size` channels)^beta."""
    src, size = draft.source(0), draft.attribute("size")
    dims = draft.dims(src)
    require(2 < len(dims) <= _MOST_AXES, f"it has {len(dims)} axes, the primitive has 3 to {_MOST_AXES}")
    require(size % 2 == 1, f"its window of {size} channels has no middle")
    alpha, beta = draft.attribute("alpha", float(np.float32(1e-4))), draft.attribute("beta", 0.75)
    numbers = {"local_size": size, "alpha": alpha, "beta": beta, "k": float(draft.attribute("bias", 1.0))}
    return draft.put("lrn", {"src": src}, dims, algorithm="across_channels", **numbers)


def softmax(algorithm: str) -> Callable[[Draft], Operand]:
    """The rule of softmax or its logarithm: along one axis, or before opset 13 over all from it on."""

    def rule(draft: Draft) -> Operand:
        src = draft.source(0)
        dims = draft.dims(src)
        axis = draft.attribute("axis", -1 if draft.opset >= 13 else 1) % len(dims)
        if draft.opset >= 13 or prod(dims[axis + 1 :]) == 1:
            return draft.put("softmax", {"src": src}, dims, algorithm=algorithm, axis=axis)
        rows = (prod(dims[:axis]), prod(dims[axis:]))
        flat = draft.reshaped(src, rows)
        return draft.reshaped(draft.put("softmax", {"src": flat}, rows, algorithm=algorithm, axis=1), dims)

    return rule


NORMALIZATIONS: Mapping[str, Callable[[Draft], Operand]] = {
    "BatchNormalization": batch_normalization,
    "GroupNormalization": group_normalization,
    "InstanceNormalization": instance_normalization,
    "LRN": local_response,
    "LayerNormalization": layer_normalization,
    "LogSoftmax": softmax("log"),
    "RMSNormalization": rms_normalization,
    "Softmax": softmax("accurate"),
}
"""The rule of each operator."""
