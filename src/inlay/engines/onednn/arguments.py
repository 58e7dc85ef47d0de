"""Attributes of a primitive as a `dnnl_primitive_attr_t`, and the arguments of its execution.

Attributes of Inlay, the function of the library that sets them, and the arguments that they add:

    scales {"src": Scales()}            set_scales_mask(attr, SRC, 0)           argument src_scales
    zero_points {"src": ZeroPoints()}   set_zero_points_mask(attr, SRC, 0)      argument src_zero_points
    BinaryPostOp("add", desc)                 post_ops_append_binary                  argument post_op_0_src_1
    PReLUPostOp(mask)                         post_ops_append_prelu                   argument post_op_0_weights
    DepthwiseConvolution(...)           post_ops_append_dw                      arguments post_op_0_weights, _bias

The library always gets the scratchpad mode `user`. If the caller's attributes leave the scratchpad to the engine, the
engine provides its own.

**Defects of recurrent networks** (`find_recurrent_defect`). oneDNN 3.2 and 3.13 both

- compute no network without bias;
- compute wrong diff_weights_iter of vanilla_rnn and lstm if src_iter is missing: they sum h_t da_t^T instead of
  h_(t-1) da_t^T;
- compute wrong gradients of augru and lbr_augru: the gradient of attention has an extra factor u (1 - u), and those of
  o and h_(t-1) are weighted by u instead of (1 - a) u;
- compute wrong numbers for lstm with a projection in bf16, which their documentation calls unsupported;
- divide by a dim of the weights that is 0 if src_layer has no channels;
- add the integers of two directions in 8 bits without subtracting the shift once, and saturate the sum first.

3.2 also computes wrong gradients of lstm with a projection to more channels than all gates have together: rows of one
buffer are stored in the space for rows of the other. 3.13 is correct.

3.13 sometimes ends the process, mostly on a busy machine, in gradients of gru with more inputs than all its gates have
channels: rows of one buffer are stored in the space for rows of the other, beside a table of pointers. This has not
been observed with 3.2.

The engine therefore passes a bias and initial states of zeros where the caller has none (`implicit_descs`), which does
not change the result. It does not support training with attention, with such a projection or with that many inputs,
projections in bf16, and sums in 8 bits.

**Descriptors of arguments.** `resolve_descs` returns the descriptor of each argument when a primitive descriptor is
created. `execution_arguments` adds the codes and native descriptors when a primitive is first executed. Sources:

    a format that the caller chose     the caller's descriptor, without offset0: see `DescriptorTable.convert`
    `any` and packed formats           a query of the primitive descriptor (`dnnl_query_exec_arg_md`)
    workspace and scratchpad           a query; the argument exists if its size is not 0
    values of attributes               one axis; the length follows from the mask

A descriptor that a query returns belongs to the primitive descriptor and lives as long.

Source: defects of recurrent networks: found by comparison with finite differences of the outputs; the last one agrees
with `ref_postgemm_gru.cpp` of oneDNN.
"""

from collections.abc import Callable, Mapping
from ctypes import c_float
from functools import cache, lru_cache, partial
from typing import NamedTuple, assert_never

from inlay import onednn_abi as abi
from inlay.data_type import DATA_TYPES, as_data_type
from inlay.descriptor import MemoryDesc, kinds
from inlay.engines.onednn.descs import DescriptorTable, LibraryEngine
from inlay.engines.onednn.library import Library, LibraryHandle, create_handle
from inlay.errors import InvalidArguments, Unimplemented
from inlay.primitives.attributes import (
    PLAIN,
    BinaryPostOp,
    DepthwiseConvolution,
    EltwisePostOp,
    PostOp,
    PReLUPostOp,
    PrimitiveAttributes,
    RecurrentScales,
    SumPostOp,
)
from inlay.primitives.calls import attribute_value_descs
from inlay.primitives.engine import Operation
from inlay.primitives.rules import RECURRENT, SIGNATURES
from inlay.reordering.attributes import Scales, ZeroPoints

_TWO_SOURCES = {name: code for name, code in abi.BINARY.items() if name != "select"}  # the third would be a NULL
_GATES_AND_CHANNELS = 0b11000  # of weights (layers, directions, inputs, gates, channels)
_PROJECTED = 0b1000  # of weights_projection (layers, directions, inputs, channels)


def argument_code(kind: str, name: str) -> int:
    """Return the library's code of an argument of primitives of this kind; arguments of attributes are not included.

    Raises:
        InvalidArguments: the kind has no such argument.

    >>> argument_code("concat", "src_2"), argument_code("binary", "src_1")
    (1026, 2)
    """
    if kind in ("concat", "sum") and name.startswith("src_") and name[4:].isdecimal():
        return abi.MULTIPLE_SRC + int(name[4:])
    code = abi.ARGUMENTS.get(name)
    if code is None:
        raise InvalidArguments(f"{kind} has no argument {name!r} in oneDNN: the names are those of its signature")
    return code


def create_attributes(library: Library, descriptors: DescriptorTable, operation: Operation) -> LibraryHandle:
    """Create the `dnnl_primitive_attr_t` of an operation.

    Raises:
        InvalidArguments: the library refuses an attribute, or an algorithm or argument of this name does not exist.
        Unimplemented: the library does not support an attribute.
    """
    attributes = operation.attributes
    handle = create_handle(library, "primitive_attr_create", "primitive_attr")
    calls = _AttributeSetters(library, handle.value, operation.kind)
    calls.set("scratchpad_mode", abi.SCRATCHPAD_USER)
    if attributes.fpmath_mode != "strict":
        calls.set("fpmath_mode", abi.FPMATH_MODES[attributes.fpmath_mode])
    for name, scales in attributes.scales.items():
        calls.set_values("scales", name, scales, "f32")
    for name, zero_points in attributes.zero_points.items():
        calls.set_values("zero_points", name, zero_points, "s32")
    if attributes.recurrent is not None:
        _set_recurrent(calls, attributes.recurrent)
    if attributes.post_ops:
        chain = create_handle(library, "post_ops_create", "post_ops")
        for i, post_op in enumerate(attributes.post_ops):
            _append_post_op(library, descriptors, chain.value, i, post_op)
        calls.set("post_ops", chain.value)
    return handle


class _AttributeSetters:
    """The setter functions of one `dnnl_primitive_attr_t`."""

    def __init__(self, library: Library, handle: int, kind: str) -> None:
        self._library = library
        self._handle = handle
        self._kind = kind

    def set(self, setting: str, *values: object) -> None:
        """Call `dnnl_primitive_attr_set_{setting}`."""
        status = self._library.functions[f"primitive_attr_set_{setting}"](self._handle, *values)
        self._library.require(status, lambda: f"the attribute {setting} of {self._kind}")

    def set_values(self, setting: str, name: str, entry: Scales | ZeroPoints, plain: str) -> None:
        """Set the scales or zero points of an argument; 3.2 has only the form for one type, `plain`, without groups."""
        code = argument_code(self._kind, name)
        if not entry.groups and entry.data_type == plain:
            self.set(f"{setting}_mask", code, entry.mask)
        else:
            groups = abi.DIMS(*entry.groups) if entry.groups else None
            self.set(setting, code, entry.mask, len(entry.groups), groups, entry.type.code)


def _set_recurrent(calls: _AttributeSetters, scales: RecurrentScales) -> None:
    """Set the scales of data and weights of a recurrent network in 8 bits."""
    calls.set("rnn_data_qparams", scales.scale, scales.shift)
    for setting, values, mask in (
        ("rnn_weights_qparams", scales.weights, _GATES_AND_CHANNELS),
        ("rnn_weights_projection_qparams", scales.projection, _PROJECTED),
    ):
        calls.set(setting, len(values), mask if len(values) > 1 else 0, (c_float * len(values))(*values))


def _append_post_op(library: Library, descriptors: DescriptorTable, chain: int, i: int, post_op: PostOp) -> None:
    """Append post-operation number `i` to the `dnnl_post_ops_t` at `chain`."""
    functions = library.functions
    match post_op:
        case SumPostOp():
            code = 0 if post_op.data_type is None else as_data_type(post_op.data_type).code
            status = functions["post_ops_append_sum"](chain, post_op.scale, post_op.zero_point, code)
        case EltwisePostOp():
            algorithm = algorithm_code(abi.ELTWISE, "eltwise", post_op.algorithm)
            status = functions["post_ops_append_eltwise"](chain, algorithm, post_op.alpha, post_op.beta)
        case BinaryPostOp():
            algorithm = algorithm_code(_TWO_SOURCES, "binary", post_op.algorithm)
            other = descriptors.handle(post_op.src_1)
            status = functions["post_ops_append_binary"](chain, algorithm, other.value)
        case PReLUPostOp():
            status = functions["post_ops_append_prelu"](chain, post_op.mask)
        case DepthwiseConvolution(kernel=kernel, stride=stride, padding=padding):
            names = (post_op.weights_type, post_op.bias_type, post_op.dst_type)
            types = [0 if name is None else as_data_type(name).code for name in names]
            status = functions["post_ops_append_dw"](chain, *types, kernel, stride, padding)
        case _:
            assert_never(post_op)
    library.require(status, lambda: f"post-operation {i}, {post_op!r}")


def algorithm_code(table: Mapping[str, int], kind: str, name: object) -> int:
    """Return the library's code of the algorithm `name`.

    Raises:
        InvalidArguments: the table has no such algorithm.
    """
    code = table.get(name) if isinstance(name, str) else None
    if code is None:
        raise InvalidArguments(f"{kind} has no algorithm {name!r}: it has {', '.join(table)}")
    return code


def value_codes(operation: Operation) -> dict[str, int]:
    """Return the codes of the arguments that scales and zero points add, by name (see `attribute_value_descs`)."""
    attributes = operation.attributes
    kinds = (
        ("scales", attributes.scales, abi.ATTR_SCALES),
        ("zero_points", attributes.zero_points, abi.ATTR_ZERO_POINTS),
    )
    return {
        f"{name}_{setting}": added | argument_code(operation.kind, name)
        for setting, entries, added in kinds
        for name in entries
    }


def post_op_codes(attributes: PrimitiveAttributes) -> dict[str, int]:
    """Return the codes of the arguments that post-operations add, by name."""
    codes = {}
    for i, post_op in enumerate(attributes.post_ops):
        base = abi.ATTR_POST_OP * (i + 1)
        match post_op:
            case BinaryPostOp():
                codes[f"post_op_{i}_src_1"] = base | abi.ARGUMENTS["src_1"]
            case PReLUPostOp():
                codes[f"post_op_{i}_weights"] = base | abi.ARGUMENTS["weights"]
            case DepthwiseConvolution():
                codes[f"post_op_{i}_weights"] = abi.ATTR_POST_OP_DW | abi.ARGUMENTS["weights"]
                if post_op.bias_type is not None:
                    codes[f"post_op_{i}_bias"] = abi.ATTR_POST_OP_DW | abi.ARGUMENTS["bias"]
            case _:
                pass
    return codes


_INTEGERS = (DATA_TYPES["u8"], DATA_TYPES["s8"])
_WIDE_PROJECTION_SINCE = (3, 13)
"""The first release that computes gradients of wide projections correctly."""
_GRU_CRASH_SINCE = (3, 13)
"""The first release that may end the process in gradients of gru with many inputs."""
_WITH_ATTENTION = ("augru", "lbr_augru")
_NEED_STATES = ("vanilla_rnn", "lstm")
"""Kinds whose gradients are wrong without an initial state."""


def find_recurrent_defect(version: tuple[int, ...], operation: Operation) -> str | None:
    """Return a defect of this release for a recurrent network, as the end of `oneDNN has no ...`; None if none."""
    if operation.kind not in RECURRENT:
        return None
    if operation.kind in _WITH_ATTENTION and operation.prop_kind != "forward_inference":
        return f"correct gradients of {operation.kind}"
    source, projection = (operation.descs.get(name) for name in ("src_layer", "weights_projection"))
    if any(0 in desc.dims for name, desc in operation.descs.items() if "weights" in name or name == "bias"):
        return "recurrent networks whose weights have a dim of 0"
    if projection is not None and projection.ndims == 4:
        if projection.data_type == DATA_TYPES["bf16"]:
            return "correct lstm with a projection in bf16"
        is_wide = operation.prop_kind != "forward_inference" and projection.dims[3] > 4 * projection.dims[2]
        if is_wide and version < _WIDE_PROJECTION_SINCE:
            return "correct gradients of lstm with a projection to more channels than its four gates have"
    if operation.kind == "gru" and version >= _GRU_CRASH_SINCE and operation.prop_kind != "forward_inference":
        weights = operation.descs.get("weights_layer", MemoryDesc())
        if weights.ndims == 5 and weights.dims[2] > 3 * weights.dims[4]:
            return "safe gradients of gru with more inputs than its three gates have channels"
    if source is not None and source.data_type in _INTEGERS and operation.parameters.get("direction") == "sum":
        return "correct sum of two directions in 8 bits"
    return None


def implicit_descs(operation: Operation) -> dict[str, MemoryDesc]:
    """Return descriptors of the arguments that the engine binds itself: zeros, and memory for their gradients.

    >>> descs = {"src_layer": MemoryDesc((3, 2, 5), "f32"), "weights_layer": MemoryDesc((1, 1, 5, 3, 6), "f32")}
    >>> operation = Operation("gru", "forward_inference", descs | {"weights_iter": descs["weights_layer"]})
    >>> {name: desc.dims for name, desc in implicit_descs(operation).items()}
    {'bias': (1, 1, 3, 6)}
    """
    descs = operation.descs
    if operation.kind not in RECURRENT or any(
        name not in descs or descs[name].ndims != ndims
        for name, ndims in (("src_layer", 3), ("weights_layer", 5), ("weights_iter", 5))
    ):
        return {}  # creating the primitive raises the error
    added = {}
    layers, directions, _, gates, channels = descs["weights_layer"].dims
    if "bias" not in descs:
        added["bias"] = MemoryDesc((layers, directions, gates + operation.kind.startswith("lbr_"), channels), "f32")
    if operation.kind in _NEED_STATES and operation.prop_kind != "forward_inference" and "src_iter" not in descs:
        batch, source = descs["src_layer"].dims[1], descs["src_layer"].data_type
        outer = (layers, directions, batch)
        assert source is not None
        added["src_iter"] = MemoryDesc((*outer, descs["weights_iter"].dims[2]), source)
        if operation.kind == "lstm":
            after = descs.get("dst_iter_c")
            cell = "f32" if after is None or after.data_type is None else after.data_type
            added["src_iter_c"] = MemoryDesc((*outer, channels), cell)
    if operation.direction == "backward":
        added |= {f"diff_{name}": MemoryDesc(desc.dims, "f32") for name, desc in added.items()}
    return added


_UNLISTED = frozenset(("mean", "variance", "scale", "shift", "diff_scale", "diff_shift"))
"""Arguments that are not parameters of create functions, so the library has not checked their descriptors."""

_WITH_WORKSPACE = frozenset(key for key, row in SIGNATURES.items() if "workspace" in (*row.reads, *row.writes))
"""Kind and direction of the primitives that can have a workspace."""


class Argument(NamedTuple):
    """One argument of a primitive."""

    name: str
    """Name in the signature of the primitive."""
    code: int
    """Code of the argument in the library (`DNNL_ARG_*`)."""
    desc: MemoryDesc
    """Descriptor of the memory."""
    handle: LibraryHandle
    """Owner of the native descriptor."""
    pointer: int
    """Address of the native descriptor."""
    shift: int
    """Bytes from the address of the memory to the address that is passed to the library."""


def resolve_descs(engine: LibraryEngine, operation: Operation, descriptor: LibraryHandle) -> dict[str, MemoryDesc]:
    """Return the descriptor of each argument that is read or written; none of them is `any`.

    Raises:
        InvalidArguments: an argument is `any` although it must have a format, or has another format than the primitive.
        Unimplemented: `MemoryDesc` cannot represent the format that the library chose, or the library chose another
            packed order than that of the argument.
    """
    query, read = engine.library.functions["primitive_desc_query_md"], engine.descriptors.read
    codes, pointer = _codes(operation.kind), descriptor.value
    descs = dict(operation.descs)
    for name, desc in descs.items():
        if name in _UNLISTED:
            descs[name] = _check_unlisted(operation, name, read(query(pointer, abi.QUERY_ARGUMENT, codes(name)), desc))
        elif isinstance(desc.layout, kinds.Packed):
            descs[name] = _check_packed(operation, name, read(query(pointer, abi.QUERY_ARGUMENT, codes(name)), desc))
        elif isinstance(desc.layout, kinds.Any):
            descs[name] = chosen = read(query(pointer, abi.QUERY_ARGUMENT, codes(name)), desc)
            if isinstance(chosen.layout, kinds.Any) or not chosen.dims:
                raise InvalidArguments(
                    f"{name} of {operation.kind} {operation.prop_kind} cannot be any: give the format that it has"
                )
    attributes = operation.attributes
    if attributes is not PLAIN:
        values = attribute_value_descs(operation)
        descs |= {name: values[name] for name in value_codes(operation)}
        for name, code in post_op_codes(attributes).items():
            operand = values.get(name)
            if operand is None or operand.kind == "any":
                operand = read(query(pointer, abi.QUERY_ARGUMENT, code), operand)
            descs[name] = operand
        if attributes.scratchpad_mode == "user":
            descs |= _query_desc(engine, descriptor, "scratchpad")
    if _may_have_workspace(operation):
        descs |= _query_desc(engine, descriptor, "workspace")
    return descs


def _check_packed(operation: Operation, name: str, chosen: MemoryDesc) -> MemoryDesc:
    """Return the packed format that the library chose; it ignores the order of the caller's descriptor.

    Raises:
        Unimplemented: the caller's descriptor has another order.
    """
    desc = operation.descs[name]
    assert isinstance(desc.layout, kinds.Packed)
    if desc.layout.tag and desc != chosen:
        raise Unimplemented(
            f"{name} of {operation.kind} {operation.prop_kind} is {desc!r}, and the library computes with {chosen!r}: "
            "reorder it to that"
        )
    return chosen


@cache
def _codes(kind: str) -> Callable[[str], int]:
    """Return a cached `argument_code` for one kind."""
    return lru_cache(maxsize=256)(partial(argument_code, kind))


def _check_unlisted(operation: Operation, name: str, expected: MemoryDesc) -> MemoryDesc:
    """Return the descriptor of an argument that is no argument of creation; `expected` is the format in use.

    Raises:
        InvalidArguments: the caller's descriptor has another format, or the primitive has no such argument.
    """
    desc = operation.descs[name]
    if desc.kind == "any" and expected.dims:
        return expected
    if desc == expected or (not expected.dims and desc.kind != "any"):
        return desc
    used = repr(expected) if expected.dims else "none"
    raise InvalidArguments(
        f"{name} of {operation.kind} {operation.prop_kind} is {desc!r}, but the primitive takes {used}: describe it "
        "so, or leave it out"
    )


def _may_have_workspace(operation: Operation) -> bool:
    """Return whether the primitive may have a workspace that the caller has not described."""
    if operation.prop_kind == "forward_inference" or "workspace" in operation.descs:
        return False
    return (operation.kind, operation.direction) in _WITH_WORKSPACE


def _pointer(engine: LibraryEngine, descriptor: LibraryHandle, code: int) -> int:
    """Return the address of the native descriptor of an argument; 0 if the primitive has no such argument."""
    query = engine.library.functions["primitive_desc_query_md"]
    return int(query(descriptor.value, abi.QUERY_ARGUMENT, code) or 0)


def query_size(engine: LibraryEngine, descriptor: LibraryHandle, name: str) -> int:
    """Return the size in bytes of an argument, such as the scratchpad; 0 if the primitive does not have it."""
    pointer = _pointer(engine, descriptor, abi.ARGUMENTS[name])
    return int(engine.library.functions["memory_desc_get_size"](pointer)) if pointer else 0


def _query_desc(engine: LibraryEngine, descriptor: LibraryHandle, name: str) -> dict[str, MemoryDesc]:
    """Return the descriptor of an argument that the library sizes, by its name; nothing if the size is 0."""
    size = query_size(engine, descriptor, name)
    if not size:
        return {}
    likely = MemoryDesc((size,), "u8")  # most are a row of bytes
    return {name: engine.descriptors.read(_pointer(engine, descriptor, abi.ARGUMENTS[name]), likely)}


def execution_arguments(
    engine: LibraryEngine,
    operation: Operation,
    descriptor: LibraryHandle,
    descs: Mapping[str, MemoryDesc],
    variant: Operation,
) -> list[Argument]:
    """Return the arguments that the caller binds for an execution, without those that the primitive does not use.

    Args:
        engine: the engine of the primitive descriptor.
        operation: the operation as the caller described it.
        descriptor: the primitive descriptor.
        descs: the result of `resolve_descs`.
        variant: the stride variant of the operation that the primitive descriptor was created for.
    """
    kind, attributes = operation.kind, operation.attributes
    codes = post_op_codes(attributes) | value_codes(operation)
    arguments = []
    for name, desc in descs.items():
        code = codes.get(name) or argument_code(kind, name)
        if name in _UNLISTED and not engine.descriptors.read(_pointer(engine, descriptor, code), desc).dims:
            continue
        if name in operation.descs and operation.descs[name] is desc:
            arguments.append(_argument(engine, name, code, variant.descs[name]))
            continue
        pointer = _pointer(engine, descriptor, code) if name not in codes else 0
        handle = descriptor
        if not pointer:
            native = engine.descriptors.convert(desc)
            handle, pointer = native.handle, native.pointer
        arguments.append(Argument(name, code, desc, handle, pointer, 0))
    return arguments


def _argument(engine: LibraryEngine, name: str, code: int, desc: MemoryDesc) -> Argument:
    """Return an argument whose format the caller chose."""
    native = engine.descriptors.convert(desc)
    return Argument(name, code, desc, native.handle, native.pointer, native.shift)


def implicit_arguments(engine: LibraryEngine, operation: Operation, descriptor: LibraryHandle) -> list[Argument]:
    """Return the arguments that the engine binds itself: zeros of recurrent networks, and an unused shift.

    3.2 counts the shift among the arguments of a backward layer normalization, but does not read it.
    """
    if operation.kind in RECURRENT:
        added = implicit_descs(operation)
        return [_argument(engine, name, argument_code(operation.kind, name), desc) for name, desc in added.items()]
    if operation.kind != "layer_normalization" or operation.direction == "forward" or "shift" in operation.descs:
        return []
    descs = _query_desc(engine, descriptor, "shift")
    code = abi.ARGUMENTS["shift"]
    pointer = _pointer(engine, descriptor, code)
    return [Argument(name, code, desc, descriptor, pointer, 0) for name, desc in descs.items()]
