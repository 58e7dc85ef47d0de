"""Attributes of a primitive as the library's: what is set on a `dnnl_primitive_attr_t`, and which arguments they add.

    scales {"src": Scales()}            set_scales_mask(attr, SRC, 0)           argument src_scales
    zero_points {"src": ZeroPoints()}   set_zero_points_mask(attr, SRC, 0)      argument src_zero_points
    Binary("add", desc)                 post_ops_append_binary                  argument post_op_0_src_1
    PReLU(mask)                         post_ops_append_prelu                   argument post_op_0_weights
    DepthwiseConvolution(...)           post_ops_append_dw                      arguments post_op_0_weights, _bias

The scratchpad is always the user's to the library: where a caller leaves it to the engine, the engine brings its own.
"""

from collections.abc import Mapping
from ctypes import c_float
from math import prod
from typing import assert_never

from inlay import onednn_abi as abi
from inlay.data_type import as_data_type
from inlay.descriptor import MemoryDesc
from inlay.engine.onednn.descs import Descriptors
from inlay.engine.onednn.handles import Handle, created
from inlay.engine.onednn.library import Library
from inlay.errors import InvalidArguments
from inlay.primitives.attributes import (
    Binary,
    DepthwiseConvolution,
    Eltwise,
    PostOp,
    PReLU,
    PrimitiveAttributes,
    RecurrentScales,
    Sum,
)
from inlay.primitives.operation import Operation
from inlay.reordering.attributes import Scales, ZeroPoints

_TWO_SOURCES = {name: code for name, code in abi.BINARY.items() if name != "select"}  # the third would be a NULL
_GATES_AND_CHANNELS = 0b11000  # of weights (layers, directions, inputs, gates, channels)
_PROJECTED = 0b1000  # of weights_projection (layers, directions, inputs, channels)


def code_of(kind: str, name: str) -> int:
    """The code of an argument that a primitive of this kind reads or writes, attributes' left out.

    Raises:
        InvalidArguments: there is no such argument.

    >>> code_of("concat", "src_2"), code_of("binary", "src_1")
    (1026, 2)
    """
    if kind in ("concat", "sum") and name.startswith("src_") and name[4:].isdecimal():
        return abi.MULTIPLE_SRC + int(name[4:])
    code = abi.ARGUMENTS.get(name)
    if code is None:
        raise InvalidArguments(f"{kind} has no argument {name!r} in oneDNN: the names are those of its signature")
    return code


def attributes_handle(library: Library, descriptors: Descriptors, operation: Operation) -> Handle:
    """The library's attributes of an operation.

    Raises:
        InvalidArguments: the library refuses one, or an algorithm or argument has no such name.
        Unimplemented: the library does not know one.
    """
    attributes = operation.attributes
    handle = created(library, "primitive_attr_create", "primitive_attr")
    calls = _Calls(library, handle.value, operation.kind)
    calls.set("scratchpad_mode", abi.SCRATCHPAD_USER)
    if attributes.fpmath_mode != "strict":
        calls.set("fpmath_mode", abi.FPMATH_MODES[attributes.fpmath_mode])
    for name, scales in attributes.scales.items():
        calls.values("scales", name, scales, "f32")
    for name, zero_points in attributes.zero_points.items():
        calls.values("zero_points", name, zero_points, "s32")
    if attributes.recurrent is not None:
        _set_recurrent(calls, attributes.recurrent)
    if attributes.post_ops:
        chain = created(library, "post_ops_create", "post_ops")
        for i, post_op in enumerate(attributes.post_ops):
            _append(library, descriptors, chain.value, i, post_op)
        calls.set("post_ops", chain.value)
    return handle


class _Calls:
    """The setters of one `dnnl_primitive_attr_t`."""

    def __init__(self, library: Library, handle: int, kind: str) -> None:
        self._library = library
        self._handle = handle
        self._kind = kind

    def set(self, what: str, *values: object) -> None:
        status = self._library.functions[f"primitive_attr_set_{what}"](self._handle, *values)
        self._library.require(status, lambda: f"the attribute {what} of {self._kind}")

    def values(self, what: str, name: str, entry: Scales | ZeroPoints, plain: str) -> None:
        code = code_of(self._kind, name)
        if not entry.groups and entry.data_type == plain:
            self.set(f"{what}_mask", code, entry.mask)
        else:
            groups = abi.DIMS(*entry.groups) if entry.groups else None
            self.set(what, code, entry.mask, len(entry.groups), groups, entry.type.code)


def _set_recurrent(calls: _Calls, scales: RecurrentScales) -> None:
    calls.set("rnn_data_qparams", scales.scale, scales.shift)
    for what, values, mask in (
        ("rnn_weights_qparams", scales.weights, _GATES_AND_CHANNELS),
        ("rnn_weights_projection_qparams", scales.projection, _PROJECTED),
    ):
        calls.set(what, len(values), mask if len(values) > 1 else 0, (c_float * len(values))(*values))


def _append(library: Library, descriptors: Descriptors, chain: int, i: int, post_op: PostOp) -> None:
    functions = library.functions
    match post_op:
        case Sum():
            code = 0 if post_op.data_type is None else as_data_type(post_op.data_type).code
            status = functions["post_ops_append_sum"](chain, post_op.scale, post_op.zero_point, code)
        case Eltwise():
            algorithm = algorithm_code(abi.ELTWISE, "eltwise", post_op.algorithm)
            status = functions["post_ops_append_eltwise"](chain, algorithm, post_op.alpha, post_op.beta)
        case Binary():
            algorithm = algorithm_code(_TWO_SOURCES, "binary", post_op.algorithm)
            other = descriptors.handle(post_op.src_1)
            status = functions["post_ops_append_binary"](chain, algorithm, other.value)
        case PReLU():
            status = functions["post_ops_append_prelu"](chain, post_op.mask)
        case DepthwiseConvolution():
            status = functions["post_ops_append_dw"](chain, *_depthwise(post_op))
        case _:
            assert_never(post_op)
    library.require(status, lambda: f"post-operation {i}, {post_op!r}")


def _depthwise(post_op: DepthwiseConvolution) -> tuple[int, ...]:
    names = (post_op.weights_type, post_op.bias_type, post_op.dst_type)
    types = [0 if name is None else as_data_type(name).code for name in names]
    return (*types, post_op.kernel, post_op.stride, post_op.padding)


def algorithm_code(table: Mapping[str, int], kind: str, name: object) -> int:
    """The library's code of an algorithm.

    Raises:
        InvalidArguments: there is none of this name.
    """
    code = table.get(name) if isinstance(name, str) else None
    if code is None:
        raise InvalidArguments(f"{kind} has no algorithm {name!r}: it has {', '.join(table)}")
    return code


def value_arguments(operation: Operation) -> dict[str, tuple[int, MemoryDesc]]:
    """The arguments that scales and zero points add: the code of each, and its descriptor, a list of the values."""
    found = {}
    attributes = operation.attributes
    for what, entries, added in (
        ("scales", attributes.scales, abi.ATTR_SCALES),
        ("zero_points", attributes.zero_points, abi.ATTR_ZERO_POINTS),
    ):
        for name, entry in entries.items():
            argument = f"{name}_{what}"
            count = prod(entry.shape(operation.descs[name].dims))
            found[argument] = (added | code_of(operation.kind, name), MemoryDesc((count,), entry.type))
    return found


def post_op_codes(attributes: PrimitiveAttributes) -> dict[str, int]:
    """The arguments that post-operations add, and the code of each."""
    found = {}
    for i, post_op in enumerate(attributes.post_ops):
        base = abi.ATTR_POST_OP * (i + 1)
        match post_op:
            case Binary():
                found[f"post_op_{i}_src_1"] = base | abi.ARGUMENTS["src_1"]
            case PReLU():
                found[f"post_op_{i}_weights"] = base | abi.ARGUMENTS["weights"]
            case DepthwiseConvolution():
                found[f"post_op_{i}_weights"] = abi.ATTR_POST_OP_DW | abi.ARGUMENTS["weights"]
                if post_op.bias_type is not None:
                    found[f"post_op_{i}_bias"] = abi.ATTR_POST_OP_DW | abi.ARGUMENTS["bias"]
            case _:
                pass
    return found
