"""The arguments of a primitive, asked of its primitive descriptor: which there are, and what each of them is.

`chosen` answers at once what a caller asks for, the descriptor of each argument; `arguments` adds what an execution
needs, when there is one. The library is asked by the code of an argument, and answers with a descriptor of its own that
lives as long as the primitive descriptor.

    given with a format     as it was given, offset0 taken off: see `Descriptors.given`
    given as any, packed    asked
    workspace, scratchpad   asked, and there if they have bytes
    values of attributes    one axis, as many as their mask says
"""

from collections.abc import Callable, Mapping
from functools import cache, lru_cache, partial
from typing import NamedTuple, Protocol

from inlay.descriptor import MemoryDesc, kinds
from inlay.engine.onednn.attributes import code_of, post_op_codes, value_arguments
from inlay.engine.onednn.descs import Descriptors
from inlay.engine.onednn.handles import Handle
from inlay.engine.onednn.library import Library
from inlay.engine.onednn.recurrent import additions
from inlay.errors import InvalidArguments, Unimplemented
from inlay.onednn_abi import ARGUMENTS, QUERY_ARGUMENT
from inlay.primitives.attributes import PLAIN, Binary, PReLU
from inlay.primitives.operation import Operation
from inlay.primitives.signatures import RECURRENT, SIGNATURES

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


class Answering(Protocol):
    """What questions are put to."""

    library: Library
    """That answers."""
    descriptors: Descriptors
    """Of that library."""


def chosen(engine: Answering, operation: Operation, descriptor: Handle) -> dict[str, MemoryDesc]:
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
            found[name] = _agreed(operation, name, read(query(pointer, QUERY_ARGUMENT, codes(name)), desc))
        elif isinstance(desc.layout, kinds.Packed):
            found[name] = _packed(operation, name, read(query(pointer, QUERY_ARGUMENT, codes(name)), desc))
        elif isinstance(desc.layout, kinds.Any):
            found[name] = its = read(query(pointer, QUERY_ARGUMENT, codes(name)), desc)
            if isinstance(its.layout, kinds.Any) or not its.dims:
                raise InvalidArguments(
                    f"{name} of {operation.kind} {operation.prop_kind} may not be any: give the format that it has"
                )
    attributes = operation.attributes
    if attributes is not PLAIN:
        found |= {name: desc for name, (_, desc) in value_arguments(operation).items()}
        for name, code in post_op_codes(attributes).items():
            asked = _post_op(operation, name)
            if asked is None or asked.kind == "any":
                asked = read(query(pointer, QUERY_ARGUMENT, code), asked)
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


def _post_op(operation: Operation, name: str) -> MemoryDesc | None:
    """What a post-operation was told that it reads, if it was told."""
    post_op = operation.attributes.post_ops[int(name.split("_")[2])]
    if isinstance(post_op, Binary):
        return post_op.src_1
    if isinstance(post_op, PReLU):
        dims = operation.descs["dst"].dims
        return MemoryDesc([n if post_op.mask >> k & 1 else 1 for k, n in enumerate(dims)], "f32")
    return None


def _pointer(engine: Answering, descriptor: Handle, code: int) -> int:
    query = engine.library.functions["primitive_desc_query_md"]
    return int(query(descriptor.value, QUERY_ARGUMENT, code) or 0)


def size_of(engine: Answering, descriptor: Handle, name: str) -> int:
    """Bytes of the workspace or the scratchpad; 0 if the primitive has none."""
    pointer = _pointer(engine, descriptor, ARGUMENTS[name])
    return int(engine.library.functions["memory_desc_get_size"](pointer)) if pointer else 0


def _sized(engine: Answering, descriptor: Handle, name: str) -> dict[str, MemoryDesc]:
    size = size_of(engine, descriptor, name)
    if not size:
        return {}
    # Most are so many bytes in a row.
    asked = MemoryDesc((size,), "u8")
    return {name: engine.descriptors.read(_pointer(engine, descriptor, ARGUMENTS[name]), asked)}


def arguments(
    engine: Answering, operation: Operation, descriptor: Handle, descs: Mapping[str, MemoryDesc], spelled: Operation
) -> list[Argument]:
    """What an execution is given, where `descs` is what was chosen; what the primitive has no use for is left out.

    `spelled` is the operation as the primitive descriptor was created for (see `spellings`).
    """
    kind, attributes = operation.kind, operation.attributes
    codes = post_op_codes(attributes) | {name: code for name, (code, _) in value_arguments(operation).items()}
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


def _given(engine: Answering, name: str, code: int, desc: MemoryDesc) -> Argument:
    """An argument of a format that was given."""
    given = engine.descriptors.given(desc)
    return Argument(name, code, desc, given.handle, given.pointer, given.shift)


def hidden(engine: Answering, operation: Operation, descriptor: Handle) -> list[Argument]:
    """What the library asks for and nobody gives: zeros of recurrent networks, and a shift.

    3.2 counts that among the arguments of a layer normalization on its way back, and does not read it.
    """
    if operation.kind in RECURRENT:
        added = additions(operation)
        return [_given(engine, name, code_of(operation.kind, name), desc) for name, desc in added.items()]
    if operation.kind != "layer_normalization" or operation.direction == "forward" or "shift" in operation.descs:
        return []
    descs = _sized(engine, descriptor, "shift")
    code = ARGUMENTS["shift"]
    pointer = _pointer(engine, descriptor, code)
    return [Argument(name, code, desc, descriptor, pointer, 0) for name, desc in descs.items()]
