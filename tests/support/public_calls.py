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

Given = Callable[[], dict[str, Any]]
Maker = Callable[[], Any]


@dataclass(frozen=True, slots=True)
class Subject:
    """One public callable."""

    name: str
    """As a user writes it, such as `MemoryDesc.reshape`."""
    call: Callable[..., Any]
    """The function, class or bound method."""
    given: Given
    """Returns valid arguments, by name."""
    parameters: tuple[str, ...]
    """The names of all parameters, given or not."""

    def __call__(self, **changed: Any) -> Any:
        """Call it with valid arguments, `changed` in the place of some."""
        arguments = self.given() | changed
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


def _q4_0_streams() -> dict[str, Any]:
    return {"quants": np.zeros((2, 32), np.uint8), "scale": np.ones((2, 1), np.float16)}


_COUNTER = itertools.count()
_SRC = {"src": _desc(), "engine": "reference"}
_FRAMEWORK = {"framework": "pytorch", "role": "weights", "groups": 4}


def _choose() -> dict[str, Any]:
    return {"choose": t.Seeded(next(_COUNTER))}


def _scoped() -> dict[str, Any]:
    return {**_choose(), "scope": t.Scope()}


def _weighted() -> dict[str, Any]:
    return {**_SRC, "weights": MemoryDesc((8, 16, 3, 3), "f32", "any")}


def _recurrent(gates: int, **more: Any) -> Given:
    """Arguments of a cell with so many gates."""

    def given() -> dict[str, Any]:
        weights = MemoryDesc((1, 1, 4, gates, 4), "f32", "any")
        src = _desc((3, 2, 4), format="abc")
        return {"src_layer": src, "weights_layer": weights, "weights_iter": weights, "engine": "reference", **more}

    return given


_ATTENTION = _desc((3, 2, 1), format="abc")


def _trained(kind: Callable[..., Any], given: Given) -> Given:
    """Arguments of a backward primitive: its forward one, in training."""
    return lambda: {"engine": "reference", "hint_forward": kind(**given(), prop_kind="forward_training")}


_FORWARD: dict[str, Given] = {
    "LSTM": _recurrent(4),
    "GRU": _recurrent(3),
    "LBRGRU": _recurrent(3),
    "AUGRU": _recurrent(3, attention=_ATTENTION),
    "LBRAUGRU": _recurrent(3, attention=_ATTENTION),
    "VanillaRNN": _recurrent(1, activation="relu"),
    "LRN": lambda: {**_SRC, "local_size": 5, "alpha": 1e-4, "beta": 0.75},
    "BatchNormalization": lambda: {**_SRC, "epsilon": 1e-5},
    "LayerNormalization": lambda: {**_SRC, "epsilon": 1e-5},
    "GroupNormalization": lambda: {**_SRC, "epsilon": 1e-5, "groups": 4},
    "Eltwise": lambda: {**_SRC, "algorithm": "relu"},
    "Pooling": lambda: {**_SRC, "algorithm": "max", "kernel": 2},
    "PReLU": lambda: {**_SRC, "weights": _desc((1, 16, 1, 1))},
    "Resampling": lambda: {**_SRC, "factors": 2.0},
    "Shuffle": lambda: {**_SRC, "axis": 1, "group_size": 4},
    "Softmax": lambda: {**_SRC, "axis": 1},
    "Convolution": _weighted,
    "Deconvolution": _weighted,
    "InnerProduct": lambda: {**_SRC, "weights": MemoryDesc((8, 16, 6, 6), "f32", "any")},
}


def _primitives() -> dict[str, Given]:
    found: dict[str, Given] = {
        **_FORWARD,
        "Binary": lambda: {"src_0": _desc(), "src_1": _desc(), "algorithm": "add", "engine": "reference"},
        "Concat": lambda: {"srcs": [_desc(), _desc()], "axis": 1, "engine": "reference"},
        "Sum": lambda: {"srcs": [_desc(), _desc()], "engine": "reference"},
        "MatMul": lambda: {
            "src": _desc((4, 6), format="ab"),
            "weights": _desc((6, 8), format="ab"),
            "engine": "reference",
        },
        "Reduction": lambda: {**_SRC, "dst": _desc((2, 16, 1, 1)), "algorithm": "sum"},
        "Reorder": lambda: {**_SRC, "dst": _desc(format="acdb")},
        "PrimitiveAttributes": dict,
        "get_engine": lambda: {"engine": "reference"},
        "set_engine": lambda: {"engine": None},
    }
    for name in p.__all__:
        if "Backward" in name:
            forward = name.partition("Backward")[0]
            found[name] = _trained(getattr(p, forward), _FORWARD[forward])
    return {f"primitives.{name}": given for name, given in found.items()}


_SPARSE: dict[str, Given] = {
    "to_coo": lambda: {"source": _rows()},
    "to_csr": lambda: {"source": _rows()},
    "to_dense": lambda: {"memory": inlay.to_csr(_rows())},
}
_BESIDE: dict[str, Given] = {
    "interop.AxisOrder": lambda: {"letters": "NHWC", "logical": "NCHW"},
    "interop.conv_orders": lambda: {"dimension_numbers": ("NHWC", "HWIO", "NHWC")},
    "interop.framework_desc": lambda: {**_FRAMEWORK, "shape": (64, 16, 3, 3), "data_type": "f32"},
    "interop.framework_dims": lambda: {**_FRAMEWORK, "shape": (64, 16, 3, 3)},
    "interop.framework_shape": lambda: {
        "framework": "tensorflow",
        "role": "weights",
        "dims": (2, 8, 4, 3, 3),
        "grouped": True,
    },
    "interop.from_array": lambda: {"array": np.ones((2, 3), np.float32)},
    "interop.from_logical": lambda: {"value": np.ones((2, 3, 4, 5)), "order": "NHWC"},
    "interop.to_logical": lambda: {"value": (2, 3, 4, 5), "order": "NHWC"},
    "interop.to_numpy": lambda: {"memory": _rows()},
    "interop.permute_with_reorder": lambda: {"memory": _rows(), "permutation": (1, 0)},
    "sparse.check": lambda: {"memory": inlay.to_csr(_rows())},
    **{f"sparse.{name}": given for name, given in _SPARSE.items()},
}
_SCOPED_NAMES = ("any_kind", "blocked", "by_strides", "by_tag", "pair", "permute", "reshape", "submemory")
_DRAWN: dict[str, Given] = {
    **{name: _choose for name in t.__all__ if name.startswith("draw_")},
    **{f"draw_{name}": _scoped for name in _SCOPED_NAMES},
    "ByStrides": lambda: {"dims": (2,), "data_type": inlay.DataType("f32"), "strides": (1,)},
    "ByTag": lambda: {"dims": (2,), "data_type": inlay.DataType("f32"), "tag": "a"},
    "Pair": lambda: {"desc": _desc(), "other": _desc()},
    "Permute": lambda: {"desc": _desc(), "permutation": (0, 1, 3, 2)},
    "Reshape": lambda: {"desc": _desc(), "dims": (2, 16, 36)},
    "Submemory": lambda: {"desc": _desc(), "dims": (1, 1, 1, 1), "offsets": (0, 0, 0, 0)},
    "Seeded": lambda: {"seed": 3},
    "attributes": lambda: {"src": _desc(), "dst": _desc()},
    "draw_attributes": lambda: {**_choose(), "src": _desc(), "dst": _desc()},
    "extras": lambda: {"ndims": 4},
    "draw_extras": lambda: {**_choose(), "ndims": 4},
}

CALLS: Mapping[str, Given] = MappingProxyType(
    {
        "Attributes": lambda: {"src_scales": Scales()},
        "Axis": lambda: {"stride": 3, "inner": (Digit(2, 1),)},
        "CompoundDesc": lambda: {"format": inlay.compound("ggml:Q4_0"), "dims": (2, 32)},
        "CompoundMemory": lambda: {
            "desc": inlay.CompoundDesc(inlay.compound("ggml:Q4_0"), (2, 32)),
            "buffer": np.zeros(36, np.uint8),
        },
        "assemble": lambda: {"format": "ggml:Q4_0", "streams": _q4_0_streams(), "dims": (2, 32)},
        "compound": lambda: {"name": "ggml:Q4_0"},
        "describe_compensated": lambda: {
            "desc": MemoryDesc((16, 4), "s8", "ab", extras=Extras(1, compensation_mask=1))
        },
        "pack_compound": lambda: {"array": np.ones((2, 32), np.float32), "format": "ggml:Q4_0"},
        "DataType": lambda: {"value": "f32"},
        "Digit": lambda: {"extent": 2, "stride": 3},
        "Swizzle": lambda: {"bits": 2, "base": 1, "shift": 3},
        "Extras": lambda: {"flags": 1, "compensation_mask": 1},
        "FormatTag": lambda: {"order": (0, 1), "inner_blocks": ((1, 8),)},
        "Layout": lambda: {"dims": (2, 3), "axes": (Axis(3), Axis(1))},
        "Memory": lambda: {"desc": _desc(), "buffer": np.zeros(1152, np.float32)},
        "MemoryDesc": lambda: {"dims": (2, 16), "data_type": "f32", "format": "ab"},
        "Refusal": lambda: {"rule": "stride", "axes": (0,), "problem": "text"},
        "Reorder": lambda: {"src": _desc(), "dst": _desc(format="acdb")},
        "Scales": lambda: {"mask": 2},
        "ZeroPoints": lambda: {"mask": 2},
        "as_strided": lambda: {"elements": np.arange(12), "layout": Layout.row_major((3, 4))},
        "check_padding": lambda: {"memory": _memory()},
        "emit": lambda: {"src": _desc(), "dst": _desc(format="acdb")},
        "NamedLayout": lambda: {"name": "a:b", "pattern": "a -> a", "roles": (), "data_types": (), "source": "text"},
        "ascontiguous": lambda: {"x": np.ones((2, 3), np.float32), "order": "F"},
        "rearrange": lambda: {"x": np.ones((2, 3), np.float32), "pattern": "a b -> (b a)"},
        "repeat": lambda: {"x": np.ones((2, 3), np.float32), "pattern": "a b -> a b 2"},
        "transpose": lambda: {"x": np.ones((2, 3), np.float32)},
        "map_padded": lambda: {"f": np.tanh, "memory": _memory()},
        "named": lambda: {"text": "tensorrt:CHW32"},
        "pack": lambda: {"array": np.ones((2, 3), np.float32), "format": "ba"},
        "preserves_padding": lambda: {"f": np.tanh},
        "reorder": lambda: {"src": _rows(), "dst": "ba"},
        "set_num_threads": lambda: {"n": 1},
        "show": lambda: {"desc": _desc(), "width": 60},
        **_SPARSE,
        "zero_padding": lambda: {"memory": _memory()},
        "Attributes.entry": lambda: {"name": "src_scales"},
        "Axis.bounds": lambda: {"n": 6},
        "Axis.digits": lambda: {"dim": 6},
        "Axis.offset": lambda: {"x": 3},
        "Extras.buffer_sizes": lambda: {"padded_dims": (16, 16)},
        "Diagnosis": lambda: {"rule": "lost", "problem": "text"},
        "InferredLayout": lambda: {"desc": _desc(), "tag": "abcd", "length": 1152, "notes": ()},
        "InferredCompound": lambda: {
            "desc": inlay.CompoundDesc(inlay.compound("ggml:Q4_0"), (2, 32)),
            "streams": (("quants", "quants"), ("scale", "scale")),
            "length": 36,
            "notes": (),
        },
        "CompoundVerification": lambda: {
            "desc": inlay.CompoundDesc(inlay.compound("ggml:Q4_0"), (2, 32)),
            "stream": None,
            "coordinate": None,
            "expected": None,
            "found": None,
            "bit": None,
            "problem": "text",
        },
        "Verification": lambda: {
            "desc": _desc(),
            "coordinate": None,
            "expected": None,
            "found": None,
            "byte": None,
            "problem": "text",
            "repair": None,
        },
        "infer": lambda: {"source": np.arange(12).reshape(3, 4), "dims": (3, 4)},
        "verify": lambda: {"desc": _desc((3, 4), format="ab"), "source": np.arange(12).reshape(3, 4)},
        "Extras.require_axes": lambda: {"ndims": 4},
        "Extras.size_with": lambda: {"nbytes": 256, "padded_dims": (16, 16)},
        "Extras.start": lambda: {"nbytes": 256},
        "FormatTag.blocks": lambda: {"axis": 1},
        "Swizzle.apply": lambda: {"offsets": 5},
        "Swizzle.round_up": lambda: {"count": 5},
        "FormatTag.layout": lambda: {"dims": (2, 17)},
        "FormatTag.parse": lambda: {"text": "nChw8c"},
        "Layout.add_axis": lambda: {"i": 1, "dim": 2, "stride": 0},
        "Layout.broadcast": lambda: {"dims": (5, 4, 6)},
        "Layout.byte_offset": lambda: {"coordinates": (1, 2), "itemsize": 4},
        "Layout.byte_span": lambda: {"itemsize": 4},
        "Layout.byte_strides": lambda: {"itemsize": 4},
        "Layout.column_major": lambda: {"dims": (2, 3)},
        "Layout.dimshuffle": lambda: {"order": (1, 0)},
        "Layout.equivalent": lambda: {"other": Layout.row_major((4, 6))},
        "Layout.from_array": lambda: {"array": np.zeros((2, 3))},
        "Layout.from_strides": lambda: {"dims": (2, 3), "strides": (12, 4), "itemsize": 4},
        "Layout.offset": lambda: {"coordinates": (1, 2)},
        "Layout.remove_axis": lambda: {"i": 1},
        "Layout.reshape": lambda: {"dims": (24,)},
        "Layout.row_major": lambda: {"dims": (2, 3)},
        "Layout.try_reshape": lambda: {"dims": (24,)},
        "MemoryDesc.bind": lambda: {"dims": (2, 17, 3, 4)},
        "MemoryDesc.byte_offset": lambda: {"coordinates": (1, 2, 0, 1)},
        "Filled": lambda: {"value": 1},
        "fill_padding": lambda: {"memory": _memory(), "value": 1},
        "poison_padding": lambda: {"memory": _memory()},
        "Memory.note_padding": lambda: {"contents": inlay.ZERO},
        "Memory.permute_axes": lambda: {"permutation": (0, 2, 3, 1)},
        "Memory.reshape": lambda: {"dims": (2, 17, -1)},
        "Memory.submemory": lambda: {"dims": (1, 8, 3, 4), "offsets": (0, 8, 0, 0)},
        "MemoryDesc.coo": lambda: {"dims": (3, 4), "data_type": "f32", "nnz": 2},
        "MemoryDesc.csr": lambda: {"dims": (3, 4), "data_type": "f32", "nnz": 2},
        "MemoryDesc.coordinate": lambda: {"offset": 5},
        "MemoryDesc.equivalent": lambda: {"other": _desc()},
        "MemoryDesc.from_blob": lambda: {"blob": _desc().to_blob()},
        "MemoryDesc.from_json": lambda: {"text": _desc().to_json()},
        "MemoryDesc.from_layout": lambda: {"layout": Layout.row_major((2, 3)), "data_type": "f32"},
        "MemoryDesc.from_onednn": lambda: {"source": b"", "library": None},
        "MemoryDesc.has_tag": lambda: {"tag": "nChw8c"},
        "MemoryDesc.host_scalar": lambda: {"data_type": "f32"},
        "MemoryDesc.is_padding": lambda: {"coordinates": (1, 2, 0, 1)},
        "MemoryDesc.offset": lambda: {"coordinates": (1, 2, 0, 1)},
        "MemoryDesc.opaque": lambda: {"dims": (3, 4), "data_type": "f32", "name": "wino", "nbytes": 64},
        "MemoryDesc.packed": lambda: {"dims": (3, 4), "data_type": "f32", "nnz": 2},
        "MemoryDesc.permute_axes": lambda: {"permutation": (0, 2, 3, 1)},
        "MemoryDesc.reinterpret_axes": lambda: {"permutation": (0, 2, 3, 1)},
        "MemoryDesc.rename_axes": lambda: {"order": (0, 2, 3, 1)},
        "MemoryDesc.require_layout": lambda: {"purpose": "test"},
        "MemoryDesc.reshape": lambda: {"dims": (2, 17, 12)},
        "MemoryDesc.submemory": lambda: {"dims": (1, 8, 3, 4), "offsets": (0, 8, 0, 0)},
        "MemoryDesc.try_reshape": lambda: {"dims": (2, 17, 12)},
        "NamedLayout.layout": lambda: {"dims": (2, 17, 3, 4)},
        "Reorder.__call__": lambda: {"src": Memory(_desc()), "dst": Memory(_desc(format="acdb"))},
        "Scales.shape": lambda: {"dims": (2, 16)},
        "ZeroPoints.shape": lambda: {"dims": (2, 16)},
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
        "Swizzle": lambda: inlay.Swizzle(2, 1, 3),
        "Extras": lambda: Extras(1, compensation_mask=1),
        "FormatTag": lambda: FormatTag((0, 1), ((1, 8),)),
        "Layout": lambda: Layout.row_major((4, 6)),
        "Memory": lambda: inlay.pack(np.ones((2, 17, 3, 4), np.float32), "nhwc"),
        "MemoryDesc": lambda: MemoryDesc((2, 17, 3, 4), "f32", "nChw8c"),
        "NamedLayout": lambda: inlay.named("tensorrt:CHW32"),
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
        "compile": "measures kernels, as plan",
        "DecodingState": "is made by Session.new_state, which checks its argument",
        "Session": "is made by inlay.compile and Plan.compile, which check their arguments",
        "from_torch": "exports modules of PyTorch, which is not always installed: tests/graph/torch",
        "torch_backend": "is called by torch.compile",
        "torch_report": "needs a package that is not always installed",
        "TorchModule": "is made by inlay.from_torch",
        "TorchReport": "is made by TorchModule.report",
        "Memory.load": "reads files: tests of memory damage them",
        "Memory.save": "writes a file",
        "Memory.torch": "needs a package that is not always installed",
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
        Subject(name, call, calls.get(name, dict), _parameters(call)) for name, call in public() if name not in LEFT_OUT
    ]
