"""Every public callable with arguments that it takes: functions, constructors and methods, found by what is public.

`CALLS` names what needs arguments; everything else that is public is found and called without. What is neither named
nor callable without arguments is a fault of the table, which a test tells.
"""

import inspect
import itertools
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import numpy as np

import inlay
import inlay.primitives as p
import inlay.testing as t
from inlay import Attributes, Axis, Digit, Extras, FormatTag, Layout, Memory, MemoryDesc, Reorder, Scales
from inlay.memory import frameworks, sparse

Given = Mapping[str, Callable[[], Any]]
Maker = Callable[[], Any]


@dataclass(frozen=True, slots=True)
class Subject:
    """One public callable."""

    name: str
    """As a user writes it, such as `MemoryDesc.reshape`."""
    call: Callable[..., Any]
    """The function, class or bound method."""
    given: Given
    """What makes a valid value of each argument that the call below is given."""
    parameters: tuple[str, ...]
    """The names of all parameters, given or not."""

    def __call__(self, **changed: Any) -> Any:
        """Call it with valid arguments, `changed` in the place of some."""
        arguments = {name: make() for name, make in self.given.items() if name not in changed} | changed
        positional = []
        for parameter in inspect.signature(self.call).parameters.values():
            if parameter.kind is parameter.POSITIONAL_ONLY and parameter.name in arguments:
                positional.append(arguments.pop(parameter.name))
        return self.call(*positional, **arguments)


def _desc(dims: tuple[int, ...] = (2, 16, 6, 6), data_type: str = "f32", format: str = "abcd") -> MemoryDesc:
    return MemoryDesc(dims, data_type, format)


def _memory() -> Memory:
    return inlay.pack(np.ones((2, 17, 3, 4), np.float32), "nChw8c")


def _rows() -> Memory:
    return inlay.pack(np.arange(6, dtype=np.float32).reshape(2, 3), "ab")


_COUNTER = itertools.count()
_CHOOSE: Given = {"choose": lambda: t.Seeded(next(_COUNTER))}
_SCOPED: Given = {**_CHOOSE, "scope": t.Scope}
_SRC: Given = {"src": _desc, "engine": lambda: "reference"}
_WEIGHTED: Given = {**_SRC, "weights": lambda: MemoryDesc((8, 16, 3, 3), "f32", "any")}
_CELL: Given = {
    "src_layer": lambda: _desc((3, 2, 4), format="abc"),
    "weights_layer": lambda: MemoryDesc((1, 1, 4, 4, 4), "f32", "any"),
    "weights_iter": lambda: MemoryDesc((1, 1, 4, 4, 4), "f32", "any"),
    "engine": lambda: "reference",
}
_GRU: Given = {
    **_CELL,
    **dict.fromkeys(("weights_layer", "weights_iter"), lambda: MemoryDesc((1, 1, 4, 3, 4), "f32", "any")),
}
_RNN: Given = {
    **_CELL,
    **dict.fromkeys(("weights_layer", "weights_iter"), lambda: MemoryDesc((1, 1, 4, 1, 4), "f32", "any")),
    "activation": lambda: "relu",
}
_ATTENTION: Given = {"attention": lambda: _desc((3, 2, 1), format="abc")}
_BACK: Given = {"engine": lambda: "reference"}


def _trained(kind: Callable[..., Any], given: Given) -> Given:
    """Arguments of a backward primitive: its forward one, in training."""
    arguments = {name: make() for name, make in given.items()}
    return {**_BACK, "hint_forward": lambda: kind(**arguments, prop_kind="forward_training")}


_FORWARD: dict[str, Given] = {
    "LSTM": _CELL,
    "GRU": _GRU,
    "LBRGRU": _GRU,
    "AUGRU": {**_GRU, **_ATTENTION},
    "LBRAUGRU": {**_GRU, **_ATTENTION},
    "VanillaRNN": _RNN,
    "LRN": {**_SRC, "local_size": lambda: 5, "alpha": lambda: 1e-4, "beta": lambda: 0.75},
    "BatchNormalization": {**_SRC, "epsilon": lambda: 1e-5},
    "LayerNormalization": {**_SRC, "epsilon": lambda: 1e-5},
    "GroupNormalization": {**_SRC, "epsilon": lambda: 1e-5, "groups": lambda: 4},
    "Eltwise": {**_SRC, "algorithm": lambda: "relu"},
    "Pooling": {**_SRC, "algorithm": lambda: "max", "kernel": lambda: 2},
    "PReLU": {**_SRC, "weights": lambda: _desc((1, 16, 1, 1))},
    "Resampling": {**_SRC, "factors": lambda: 2.0},
    "Shuffle": {**_SRC, "axis": lambda: 1, "group_size": lambda: 4},
    "Softmax": {**_SRC, "axis": lambda: 1},
    "Convolution": _WEIGHTED,
    "Deconvolution": _WEIGHTED,
    "InnerProduct": {**_SRC, "weights": lambda: MemoryDesc((8, 16, 6, 6), "f32", "any")},
}
_BACKWARD = {
    "ConvolutionBackwardData": "Convolution",
    "ConvolutionBackwardWeights": "Convolution",
    "DeconvolutionBackwardData": "Deconvolution",
    "DeconvolutionBackwardWeights": "Deconvolution",
    "InnerProductBackwardData": "InnerProduct",
    "InnerProductBackwardWeights": "InnerProduct",
}


def _primitives() -> dict[str, Given]:
    found: dict[str, Given] = {
        **_FORWARD,
        "Binary": {"src_0": _desc, "src_1": _desc, "algorithm": lambda: "add", **_BACK},
        "Concat": {"srcs": lambda: [_desc(), _desc()], "axis": lambda: 1, **_BACK},
        "Sum": {"srcs": lambda: [_desc(), _desc()], **_BACK},
        "MatMul": {"src": lambda: _desc((4, 6), format="ab"), "weights": lambda: _desc((6, 8), format="ab"), **_BACK},
        "Reduction": {**_SRC, "dst": lambda: _desc((2, 16, 1, 1)), "algorithm": lambda: "sum"},
        "Reorder": {**_SRC, "dst": lambda: _desc(format="acdb")},
        "PrimitiveAttributes": {},
        "get_engine": {"engine": lambda: "reference"},
        "set_engine": {"engine": lambda: None},
    }
    for name in p.__all__:
        if "Backward" in name:
            forward = _BACKWARD.get(name, name.removesuffix("Backward"))
            found[name] = _trained(getattr(p, forward), _FORWARD[forward])
    return {f"primitives.{name}": given for name, given in found.items()}


_FRAMEWORK: Given = {"framework": lambda: "pytorch", "role": lambda: "weights", "groups": lambda: 4}
_BESIDE: dict[str, Given] = {
    "interop.AxisOrder": {"letters": lambda: "NHWC", "logical": lambda: "NCHW"},
    "interop.conv_orders": {"dimension_numbers": lambda: ("NHWC", "HWIO", "NHWC")},
    "interop.framework_desc": {**_FRAMEWORK, "shape": lambda: (64, 16, 3, 3), "data_type": lambda: "f32"},
    "interop.framework_dims": {**_FRAMEWORK, "shape": lambda: (64, 16, 3, 3)},
    "interop.framework_shape": {
        "framework": lambda: "tensorflow",
        "role": lambda: "weights",
        "dims": lambda: (2, 8, 4, 3, 3),
        "grouped": lambda: True,
    },
    "interop.from_array": {"array": lambda: np.ones((2, 3), np.float32)},
    "interop.from_logical": {"value": lambda: np.ones((2, 3, 4, 5)), "order": lambda: "NHWC"},
    "interop.to_logical": {"value": lambda: (2, 3, 4, 5), "order": lambda: "NHWC"},
    "interop.to_numpy": {"memory": _rows},
    "interop.permute_with_reorder": {"memory": _rows, "permutation": lambda: (1, 0)},
    "sparse.check": {"memory": lambda: inlay.to_csr(_rows())},
    "sparse.to_coo": {"source": _rows},
    "sparse.to_csr": {"source": _rows},
    "sparse.to_dense": {"memory": lambda: inlay.to_csr(_rows())},
}
_SCOPED_NAMES = ("any_kind", "blocked", "by_strides", "by_tag", "pair", "permute", "reshape", "submemory")
_DRAWN: dict[str, Given] = {
    **{name: _CHOOSE for name in t.__all__ if name.startswith("draw_")},
    **{f"draw_{name}": _SCOPED for name in _SCOPED_NAMES},
    "ByStrides": {"dims": lambda: (2,), "data_type": lambda: inlay.DataType("f32"), "strides": lambda: (1,)},
    "ByTag": {"dims": lambda: (2,), "data_type": lambda: inlay.DataType("f32"), "tag": lambda: "a"},
    "Pair": {"desc": _desc, "other": _desc},
    "Permute": {"desc": _desc, "permutation": lambda: (0, 1, 3, 2)},
    "Reshape": {"desc": _desc, "dims": lambda: (2, 16, 36)},
    "Submemory": {"desc": _desc, "dims": lambda: (1, 1, 1, 1), "offsets": lambda: (0, 0, 0, 0)},
    "Seeded": {"seed": lambda: 3},
    "attributes": {"src": _desc, "dst": _desc},
    "draw_attributes": {**_CHOOSE, "src": _desc, "dst": _desc},
    "extras": {"ndims": lambda: 4},
    "draw_extras": {**_CHOOSE, "ndims": lambda: 4},
}

CALLS: Mapping[str, Given] = MappingProxyType(
    {
        "Attributes": {"src_scales": Scales},
        "Axis": {"stride": lambda: 3, "inner": lambda: (Digit(2, 1),)},
        "DataType": {"value": lambda: "f32"},
        "Digit": {"extent": lambda: 2, "stride": lambda: 3},
        "Extras": {"flags": lambda: 1, "compensation_mask": lambda: 1},
        "FormatTag": {"order": lambda: (0, 1), "inner_blocks": lambda: ((1, 8),)},
        "Layout": {"dims": lambda: (2, 3), "axes": lambda: (Axis(3), Axis(1))},
        "Memory": {"desc": _desc, "buffer": lambda: np.zeros(1152, np.float32)},
        "MemoryDesc": {"dims": lambda: (2, 16), "data_type": lambda: "f32", "format": lambda: "ab"},
        "Refusal": {"rule": lambda: "stride", "axes": lambda: (0,), "problem": lambda: "text"},
        "Reorder": {"src": _desc, "dst": lambda: _desc(format="acdb")},
        "Scales": {"mask": lambda: 2},
        "ZeroPoints": {"mask": lambda: 2},
        "as_strided": {"elements": lambda: np.arange(12), "layout": lambda: Layout.row_major((3, 4))},
        "check_padding": {"memory": _memory},
        "map_padded": {"f": lambda: np.tanh, "memory": _memory},
        "pack": {"array": lambda: np.ones((2, 3), np.float32), "format": lambda: "ba"},
        "preserves_padding": {"f": lambda: np.tanh},
        "reorder": {"src": _rows, "dst": lambda: "ba"},
        "set_num_threads": {"n": lambda: 1},
        "show": {"desc": _desc, "width": lambda: 60},
        "to_coo": {"source": _rows},
        "to_csr": {"source": _rows},
        "to_dense": {"memory": lambda: inlay.to_csr(_rows())},
        "zero_padding": {"memory": _memory},
        "Attributes.entry": {"name": lambda: "src_scales"},
        "Axis.bounds": {"n": lambda: 6},
        "Axis.digits": {"dim": lambda: 6},
        "Axis.offset": {"x": lambda: 3},
        "Extras.buffer_sizes": {"padded_dims": lambda: (16, 16)},
        "Extras.require_axes": {"ndims": lambda: 4},
        "Extras.size_with": {"nbytes": lambda: 256, "padded_dims": lambda: (16, 16)},
        "Extras.start": {"nbytes": lambda: 256},
        "FormatTag.blocks": {"axis": lambda: 1},
        "FormatTag.layout": {"dims": lambda: (2, 17)},
        "FormatTag.parse": {"text": lambda: "nChw8c"},
        "Layout.add_axis": {"i": lambda: 1, "dim": lambda: 2, "stride": lambda: 0},
        "Layout.broadcast": {"dims": lambda: (5, 4, 6)},
        "Layout.byte_offset": {"coordinates": lambda: (1, 2), "itemsize": lambda: 4},
        "Layout.byte_span": {"itemsize": lambda: 4},
        "Layout.byte_strides": {"itemsize": lambda: 4},
        "Layout.column_major": {"dims": lambda: (2, 3)},
        "Layout.dimshuffle": {"order": lambda: (1, 0)},
        "Layout.equivalent": {"other": lambda: Layout.row_major((4, 6))},
        "Layout.from_array": {"array": lambda: np.zeros((2, 3))},
        "Layout.from_strides": {"dims": lambda: (2, 3), "strides": lambda: (12, 4), "itemsize": lambda: 4},
        "Layout.offset": {"coordinates": lambda: (1, 2)},
        "Layout.remove_axis": {"i": lambda: 1},
        "Layout.reshape": {"dims": lambda: (24,)},
        "Layout.row_major": {"dims": lambda: (2, 3)},
        "Layout.try_reshape": {"dims": lambda: (24,)},
        "MemoryDesc.bind": {"dims": lambda: (2, 17, 3, 4)},
        "MemoryDesc.byte_offset": {"coordinates": lambda: (1, 2, 0, 1)},
        "MemoryDesc.coo": {"dims": lambda: (3, 4), "data_type": lambda: "f32", "nnz": lambda: 2},
        "MemoryDesc.csr": {"dims": lambda: (3, 4), "data_type": lambda: "f32", "nnz": lambda: 2},
        "MemoryDesc.equivalent": {"other": _desc},
        "MemoryDesc.from_blob": {"blob": lambda: _desc().to_blob()},
        "MemoryDesc.from_json": {"text": lambda: _desc().to_json()},
        "MemoryDesc.from_layout": {"layout": lambda: Layout.row_major((2, 3)), "data_type": lambda: "f32"},
        "MemoryDesc.from_onednn": {"source": lambda: b"", "library": lambda: None},
        "MemoryDesc.has_tag": {"tag": lambda: "nChw8c"},
        "MemoryDesc.host_scalar": {"data_type": lambda: "f32"},
        "MemoryDesc.offset": {"coordinates": lambda: (1, 2, 0, 1)},
        "MemoryDesc.opaque": {
            "dims": lambda: (3, 4),
            "data_type": lambda: "f32",
            "name": lambda: "wino",
            "nbytes": lambda: 64,
        },
        "MemoryDesc.packed": {"dims": lambda: (3, 4), "data_type": lambda: "f32", "nnz": lambda: 2},
        "MemoryDesc.permute_axes": {"permutation": lambda: (0, 2, 3, 1)},
        "MemoryDesc.reinterpret_axes": {"permutation": lambda: (0, 2, 3, 1)},
        "MemoryDesc.rename_axes": {"order": lambda: (0, 2, 3, 1)},
        "MemoryDesc.require_layout": {"purpose": lambda: "test"},
        "MemoryDesc.reshape": {"dims": lambda: (2, 17, 12)},
        "MemoryDesc.submemory": {"dims": lambda: (1, 8, 3, 4), "offsets": lambda: (0, 8, 0, 0)},
        "MemoryDesc.try_reshape": {"dims": lambda: (2, 17, 12)},
        "Reorder.__call__": {"src": lambda: Memory(_desc()), "dst": lambda: Memory(_desc(format="acdb"))},
        "Scales.shape": {"dims": lambda: (2, 16)},
        "ZeroPoints.shape": {"dims": lambda: (2, 16)},
        **_BESIDE,
        **{f"testing.{name}": given for name, given in _DRAWN.items()},
    }
)
"""Valid arguments of what needs some, by the name that a user writes."""

INSTANCES: Mapping[str, Maker] = MappingProxyType(
    {
        "Attributes": lambda: Attributes(src_scales=Scales(2)),
        "Axis": lambda: Axis(8, (Digit(4, 2), Digit(2, 1))),
        "DataType": lambda: inlay.DataType("f32"),
        "Digit": lambda: Digit(2, 3),
        "Extras": lambda: Extras(1, compensation_mask=1),
        "FormatTag": lambda: FormatTag((0, 1), ((1, 8),)),
        "Layout": lambda: Layout.row_major((4, 6)),
        "Memory": _memory,
        "MemoryDesc": lambda: MemoryDesc((2, 17, 3, 4), "f32", "nChw8c"),
        "Refusal": lambda: inlay.Refusal("stride", (0,), "text"),
        "Reorder": lambda: Reorder(_desc(), _desc(format="acdb")),
        "Scales": lambda: Scales(2),
        "ZeroPoints": lambda: inlay.ZeroPoints(2),
    }
)
"""What the methods of each public class are called on."""

LEFT_OUT: Mapping[str, str] = MappingProxyType(
    {
        "load": "reads files: tests of reading mutate models",
        "plan": "measures kernels: tests of planning do it",
        "MemoryDesc.from_onednn": "believes an address, which nothing can check",
        **{
            f"{room}.{way}_{name}": "needs a package that is not always installed"
            for room, name in (("interop", "jax"), ("interop", "torch"), ("sparse", "torch"), ("sparse", "scipy"))
            for way in ("from", "to")
        },
        "interop.Role": "the literal names of roles",
        "testing.Choices": "a protocol, which is not made",
        "testing.Drawn": "is made by Hypothesis",
        "testing.strategy": "wraps any function",
        "primitives.Primitive": "the base of primitives, which is not made",
    }
)
"""What is not called, and why."""

PACKAGES = (("", inlay), ("primitives.", p), ("testing.", t), ("interop.", frameworks), ("sparse.", sparse))


def _bound(descriptor: Any, owner: type, instance: Any, name: str) -> Callable[..., Any]:
    found: Callable[..., Any] = getattr(
        owner if isinstance(descriptor, (classmethod, staticmethod)) else instance, name
    )
    return found


def _parameters(call: Callable[..., Any]) -> tuple[str, ...]:
    every = inspect.signature(call).parameters.values()
    return tuple(q.name for q in every if q.kind not in (q.VAR_POSITIONAL, q.VAR_KEYWORD))


def public() -> Iterator[tuple[str, Callable[..., Any]]]:
    """Every public function, class and method, by the name that a user writes; exceptions are left out."""
    for prefix, package in PACKAGES:
        for name in package.__all__:
            value = getattr(package, name)
            if (isinstance(value, type) and issubclass(value, BaseException)) or not callable(value):
                continue
            yield prefix + name, value
            if isinstance(value, type) and prefix + name in INSTANCES:
                yield from _methods(name, value)


def _methods(name: str, owner: type) -> Iterator[tuple[str, Callable[..., Any]]]:
    instance = INSTANCES[name]()
    for method in dir(owner):
        static = inspect.getattr_static(owner, method)
        if (method.startswith("_") and method != "__call__") or isinstance(static, property):
            continue
        if callable(getattr(owner, method)) and inspect.isroutine(getattr(instance, method)):
            yield f"{name}.{method}", _bound(static, owner, instance, method)


def subjects() -> list[Subject]:
    """All that is called."""
    calls = {**CALLS, **_primitives()}
    return [
        Subject(name, call, calls.get(name, {}), _parameters(call)) for name, call in public() if name not in LEFT_OUT
    ]
