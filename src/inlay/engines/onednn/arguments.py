"""The attributes of a primitive as the library's, and its arguments, asked of its primitive descriptor.

Attributes are set on a `dnnl_primitive_attr_t`, and add arguments:

    scales {"src": Scales()}            set_scales_mask(attr, SRC, 0)           argument src_scales
    zero_points {"src": ZeroPoints()}   set_zero_points_mask(attr, SRC, 0)      argument src_zero_points
    BinaryPostOp("add", desc)                 post_ops_append_binary                  argument post_op_0_src_1
    PReLUPostOp(mask)                         post_ops_append_prelu                   argument post_op_0_weights
    DepthwiseConvolution(...)           post_ops_append_dw                      arguments post_op_0_weights, _bias

The scratchpad is always the user's to the library: where a caller leaves it to the engine, the engine brings its own.

Recurrent networks need arguments that nobody asked for, `additions`, and have flaws, for which they are declined.
oneDNN 3.2 and 3.13 both

- compute no network without bias;
- compute a wrong diff_weights_iter of vanilla_rnn and lstm where src_iter is left out: they sum h_t da_t^T, not
  h_(t-1) da_t^T;
- compute wrong gradients of augru and lbr_augru: that of attention has a factor u (1 - u) too much, and those of o and
  h_(t-1) are weighed by u, not by (1 - a) u;
- compute wrong numbers where lstm has a projection in bf16, which their documentation calls not supported;
- compute something where src_layer has no channels, though nothing flows in, and divide by dims of weights that are 0;
- add the integers of two directions in 8 bits without taking the shift away once, and saturate the sum first.

3.2 also computes wrong gradients of lstm with a projection to more channels than all gates have together: it keeps rows
of the one where it has room for rows of the other. 3.13 does not.

3.13 also ends the process, now and then on a busy machine, in gradients of gru with more inputs than all its gates have
channels: it keeps rows of the one where it has room for rows of the other, beside a table of pointers. 3.2 was not seen
to do so.

So the engine brings a bias and initial states of zeros, which say the same as nothing, and declines training with
attention, such a projection or so many inputs, projections in bf16 and sums in 8 bits.

`chosen` answers at once what a caller asks for, the descriptor of each argument; `arguments` adds what an execution
needs, when there is one. The library is asked by the code of an argument, and answers with a descriptor of its own that
lives as long as the primitive descriptor.

    given with a format     as it was given, offset0 taken off: see `Descriptors.given`
    given as any, packed    asked
    workspace, scratchpad   asked, and there if they have bytes
    values of attributes    one axis, as many as their mask says

Source: flaws of recurrent networks: found by differences of the outputs; `ref_postgemm_gru.cpp` of oneDNN agrees with
the last one.
"""

from collections.abc import Callable, Mapping
from ctypes import c_float
from functools import cache, lru_cache, partial
from typing import NamedTuple, assert_never

from inlay import onednn_abi as abi
from inlay.data_type import DATA_TYPES, as_data_type
from inlay.descriptor import MemoryDesc, kinds
from inlay.engines.onednn.descs import Descriptors, LibraryEngine
from inlay.engines.onednn.library import Handle, Library, created
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
    calls = _AttributeSetters(library, handle.value, operation.kind)
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


class _AttributeSetters:
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


def _set_recurrent(calls: _AttributeSetters, scales: RecurrentScales) -> None:
    calls.set("rnn_data_qparams", scales.scale, scales.shift)
    for what, values, mask in (
        ("rnn_weights_qparams", scales.weights, _GATES_AND_CHANNELS),
        ("rnn_weights_projection_qparams", scales.projection, _PROJECTED),
    ):
        calls.set(what, len(values), mask if len(values) > 1 else 0, (c_float * len(values))(*values))


def _append(library: Library, descriptors: Descriptors, chain: int, i: int, post_op: PostOp) -> None:
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
    """The library's code of an algorithm.

    Raises:
        InvalidArguments: there is none of this name.
    """
    code = table.get(name) if isinstance(name, str) else None
    if code is None:
        raise InvalidArguments(f"{kind} has no algorithm {name!r}: it has {', '.join(table)}")
    return code


def value_codes(operation: Operation) -> dict[str, int]:
    """The arguments of scales and zero points, with the code of each; `attribute_value_descs` describes them."""
    attributes = operation.attributes
    kinds = (
        ("scales", attributes.scales, abi.ATTR_SCALES),
        ("zero_points", attributes.zero_points, abi.ATTR_ZERO_POINTS),
    )
    return {
        f"{name}_{what}": added | code_of(operation.kind, name) for what, entries, added in kinds for name in entries
    }


def post_op_codes(attributes: PrimitiveAttributes) -> dict[str, int]:
    """The arguments that post-operations add, and the code of each."""
    found = {}
    for i, post_op in enumerate(attributes.post_ops):
        base = abi.ATTR_POST_OP * (i + 1)
        match post_op:
            case BinaryPostOp():
                found[f"post_op_{i}_src_1"] = base | abi.ARGUMENTS["src_1"]
            case PReLUPostOp():
                found[f"post_op_{i}_weights"] = base | abi.ARGUMENTS["weights"]
            case DepthwiseConvolution():
                found[f"post_op_{i}_weights"] = abi.ATTR_POST_OP_DW | abi.ARGUMENTS["weights"]
                if post_op.bias_type is not None:
                    found[f"post_op_{i}_bias"] = abi.ATTR_POST_OP_DW | abi.ARGUMENTS["bias"]
            case _:
                pass
    return found


_INTEGERS = (DATA_TYPES["u8"], DATA_TYPES["s8"])
_WIDE_SINCE = (3, 13)
_ATTENTIVE = ("augru", "lbr_augru")
_NEED_STATES = ("vanilla_rnn", "lstm")


def flaw(version: tuple[int, ...], operation: Operation) -> str | None:
    """What a library of this version computes wrongly, in the words of what it lacks."""
    if operation.kind not in RECURRENT:
        return None
    if operation.kind in _ATTENTIVE and operation.prop_kind != "forward_inference":
        return f"gradients of {operation.kind} that are those of its outputs"
    source, projection = (operation.descs.get(name) for name in ("src_layer", "weights_projection"))
    if any(0 in desc.dims for name, desc in operation.descs.items() if "weights" in name or name == "bias"):
        return "recurrent networks whose weights have a dim of 0"
    if projection is not None and projection.ndims == 4:
        if projection.data_type == DATA_TYPES["bf16"]:
            return "lstm with projection in bf16 that is right"
        is_wide = operation.prop_kind != "forward_inference" and projection.dims[3] > 4 * projection.dims[2]
        if is_wide and version < _WIDE_SINCE:
            return "right gradients of lstm with a projection to more channels than its four gates have"
    if operation.kind == "gru" and version >= _WIDE_SINCE and operation.prop_kind != "forward_inference":
        weights = operation.descs.get("weights_layer", MemoryDesc())
        if weights.ndims == 5 and weights.dims[2] > 3 * weights.dims[4]:
            return "safe gradients of gru with more inputs than its three gates have channels"
    if source is not None and source.data_type in _INTEGERS and operation.parameters.get("direction") == "sum":
        return "sum of two directions in 8 bits that is right"
    return None


def additions(operation: Operation) -> dict[str, MemoryDesc]:
    """The arguments that the engine brings itself: zeros, and room for their gradients.

    >>> descs = {"src_layer": MemoryDesc((3, 2, 5), "f32"), "weights_layer": MemoryDesc((1, 1, 5, 3, 6), "f32")}
    >>> operation = Operation("gru", "forward_inference", descs | {"weights_iter": descs["weights_layer"]})
    >>> {name: desc.dims for name, desc in additions(operation).items()}
    {'bias': (1, 1, 3, 6)}
    """
    descs = operation.descs
    if operation.kind not in RECURRENT or any(
        name not in descs or descs[name].ndims != ndims
        for name, ndims in (("src_layer", 3), ("weights_layer", 5), ("weights_iter", 5))
    ):
        return {}  # what is wrong is said where the primitive is created
    found = {}
    layers, directions, _, gates, channels = descs["weights_layer"].dims
    if "bias" not in descs:
        found["bias"] = MemoryDesc((layers, directions, gates + operation.kind.startswith("lbr_"), channels), "f32")
    if operation.kind in _NEED_STATES and operation.prop_kind != "forward_inference" and "src_iter" not in descs:
        batch, source = descs["src_layer"].dims[1], descs["src_layer"].data_type
        both = (layers, directions, batch)
        assert source is not None
        found["src_iter"] = MemoryDesc((*both, descs["weights_iter"].dims[2]), source)
        if operation.kind == "lstm":
            after = descs.get("dst_iter_c")
            cell = "f32" if after is None or after.data_type is None else after.data_type
            found["src_iter_c"] = MemoryDesc((*both, channels), cell)
    if operation.direction == "backward":
        found |= {f"diff_{name}": MemoryDesc(desc.dims, "f32") for name, desc in found.items()}
    return found


_BESIDE = frozenset(("mean", "variance", "scale", "shift", "diff_scale", "diff_shift"))
"""Arguments that creators are not told about, so that nobody has looked at their descriptors."""

_KEEP = frozenset(key for key, row in SIGNATURES.items() if "workspace" in (*row.reads, *row.writes))


class Argument(NamedTuple):
    """One argument of a primitive."""

    name: str
    """As the signature calls it."""
    code: int
    """As the library calls it."""
    desc: MemoryDesc
    """What its memory is."""
    handle: Handle
    """The library's descriptor of it, or what that belongs to."""
    pointer: int
    """The library's descriptor of it."""
    shift: int
    """Bytes from the address of the memory to the address that the library is given."""


def chosen(engine: LibraryEngine, operation: Operation, descriptor: Handle) -> dict[str, MemoryDesc]:
    """The descriptor of each argument that is read or written, none `any`.

    Raises:
        InvalidArguments: an argument is `any` that may not be, or is not what the primitive takes.
        Unimplemented: the library chose what no descriptor here can say, or another packed order than the given one.
    """
    query, read = engine.library.functions["primitive_desc_query_md"], engine.descriptors.read
    codes, pointer = _codes(operation.kind), descriptor.value
    found = dict(operation.descs)
    for name, desc in found.items():
        if name in _BESIDE:
            found[name] = _agreed(operation, name, read(query(pointer, abi.QUERY_ARGUMENT, codes(name)), desc))
        elif isinstance(desc.layout, kinds.Packed):
            found[name] = _packed(operation, name, read(query(pointer, abi.QUERY_ARGUMENT, codes(name)), desc))
        elif isinstance(desc.layout, kinds.Any):
            found[name] = its = read(query(pointer, abi.QUERY_ARGUMENT, codes(name)), desc)
            if isinstance(its.layout, kinds.Any) or not its.dims:
                raise InvalidArguments(
                    f"{name} of {operation.kind} {operation.prop_kind} may not be any: give the format that it has"
                )
    attributes = operation.attributes
    if attributes is not PLAIN:
        values = attribute_value_descs(operation)
        found |= {name: values[name] for name in value_codes(operation)}
        for name, code in post_op_codes(attributes).items():
            asked = values.get(name)
            if asked is None or asked.kind == "any":
                asked = read(query(pointer, abi.QUERY_ARGUMENT, code), asked)
            found[name] = asked
        if attributes.scratchpad_mode == "user":
            found |= _sized(engine, descriptor, "scratchpad")
    if _keeps(operation):
        found |= _sized(engine, descriptor, "workspace")
    return found


def _packed(operation: Operation, name: str, its: MemoryDesc) -> MemoryDesc:
    """What a packed argument became; the library chooses its order even where one is given."""
    desc = operation.descs[name]
    assert isinstance(desc.layout, kinds.Packed)
    if desc.layout.tag and desc != its:
        raise Unimplemented(
            f"{name} of {operation.kind} {operation.prop_kind} is {desc!r}, and the library computes with {its!r}: "
            "reorder it to that"
        )
    return its


@cache
def _codes(kind: str) -> Callable[[str], int]:
    """The code of each argument of a kind, remembered."""
    return lru_cache(maxsize=256)(partial(code_of, kind))


def _agreed(operation: Operation, name: str, its: MemoryDesc) -> MemoryDesc:
    """What an argument is that the creator was not told about; `its` is what the primitive takes."""
    desc = operation.descs[name]
    if desc.kind == "any" and its.dims:
        return its
    if desc == its or (not its.dims and desc.kind != "any"):
        return desc
    takes = repr(its) if its.dims else "none"
    raise InvalidArguments(
        f"{name} of {operation.kind} {operation.prop_kind} is {desc!r}, but the primitive takes {takes}: describe it "
        "so, or leave it out"
    )


def _keeps(operation: Operation) -> bool:
    """Whether there may be a workspace that nobody described."""
    if operation.prop_kind == "forward_inference" or "workspace" in operation.descs:
        return False
    return (operation.kind, operation.direction) in _KEEP


def _pointer(engine: LibraryEngine, descriptor: Handle, code: int) -> int:
    query = engine.library.functions["primitive_desc_query_md"]
    return int(query(descriptor.value, abi.QUERY_ARGUMENT, code) or 0)


def size_of(engine: LibraryEngine, descriptor: Handle, name: str) -> int:
    """Bytes of the workspace or the scratchpad; 0 if the primitive has none."""
    pointer = _pointer(engine, descriptor, abi.ARGUMENTS[name])
    return int(engine.library.functions["memory_desc_get_size"](pointer)) if pointer else 0


def _sized(engine: LibraryEngine, descriptor: Handle, name: str) -> dict[str, MemoryDesc]:
    size = size_of(engine, descriptor, name)
    if not size:
        return {}
    # Most are so many bytes in a row.
    asked = MemoryDesc((size,), "u8")
    return {name: engine.descriptors.read(_pointer(engine, descriptor, abi.ARGUMENTS[name]), asked)}


def arguments(
    engine: LibraryEngine, operation: Operation, descriptor: Handle, descs: Mapping[str, MemoryDesc], spelled: Operation
) -> list[Argument]:
    """What an execution is given, where `descs` is what was chosen; what the primitive has no use for is left out.

    `spelled` is the operation as the primitive descriptor was created for (see `creation.spellings`).
    """
    kind, attributes = operation.kind, operation.attributes
    codes = post_op_codes(attributes) | value_codes(operation)
    found = []
    for name, desc in descs.items():
        code = codes.get(name) or code_of(kind, name)
        if name in _BESIDE and not engine.descriptors.read(_pointer(engine, descriptor, code), desc).dims:
            continue
        if name in operation.descs and operation.descs[name] is desc:
            found.append(_given(engine, name, code, spelled.descs[name]))
            continue
        pointer = _pointer(engine, descriptor, code) if name not in codes else 0
        handle = descriptor
        if not pointer:
            known = engine.descriptors.given(desc)
            handle, pointer = known.handle, known.pointer
        found.append(Argument(name, code, desc, handle, pointer, 0))
    return found


def _given(engine: LibraryEngine, name: str, code: int, desc: MemoryDesc) -> Argument:
    """An argument of a format that was given."""
    given = engine.descriptors.given(desc)
    return Argument(name, code, desc, given.handle, given.pointer, given.shift)


def hidden(engine: LibraryEngine, operation: Operation, descriptor: Handle) -> list[Argument]:
    """What the library asks for and nobody gives: zeros of recurrent networks, and a shift.

    3.2 counts that among the arguments of a layer normalization on its way back, and does not read it.
    """
    if operation.kind in RECURRENT:
        added = additions(operation)
        return [_given(engine, name, code_of(operation.kind, name), desc) for name, desc in added.items()]
    if operation.kind != "layer_normalization" or operation.direction == "forward" or "shift" in operation.descs:
        return []
    descs = _sized(engine, descriptor, "shift")
    code = abi.ARGUMENTS["shift"]
    pointer = _pointer(engine, descriptor, code)
    return [Argument(name, code, desc, descriptor, pointer, 0) for name, desc in descs.items()]
