"""The code of a tile at an edge of the tensor: what masks are for.

Of such a tile only some elements may be read and only some written (`emit_mask`). Registers are fetched into a scratch
tile with zeros where nothing may be read, the tile's own code runs on the scratch, and the result is put to its place
under the second mask.
"""

from inlay.reordering.conversion import convert
from inlay.reordering.elements import LINE
from inlay.reordering.emit_mask import FILLED, READ, WRITTEN, Masks, masks_of_tile
from inlay.reordering.emit_tile import TILE_ARGUMENTS, Emitter
from inlay.reordering.emit_values import computed, value_arguments
from inlay.reordering.ir import Code


def edge_function(emitter: Emitter) -> tuple[str, Code]:
    """A tile at an edge: the arguments of a tile, the table, the masks that are kept, the coordinate of each guard."""
    code = Code()
    kernel = emitter.kernel
    coordinates = [f"%c{g}" for g in range(kernel.guards)]
    arguments = ", ".join([TILE_ARGUMENTS, "ptr %table, ptr %masks", *(f"i64 {c}" for c in coordinates)])
    code.label("entry")
    masks = masks_of_tile(code, emitter, coordinates)
    if not kernel.shuffles:
        with code.loop("move", kernel.registers) as r:
            _masked_move(emitter, code, r, masks)
        code.do("ret void")
        return f"define internal void @edge({arguments})", code
    sides = [_scratch(emitter, code, side) for side in (0, 1)]
    with code.loop("fetch", kernel.registers) as r:
        _fetch(emitter, code, r, masks, sides)
    if emitter.keeps_zeros:
        _stored_whole(emitter, code, coordinates, sides[0])
    tile = "scratch_tile" if kernel.stores == "streamed" else "tile"
    pairs = ", ".join(f"ptr {scratch}, ptr {offsets}" for scratch, offsets, _ in sides)
    code.do(f"call void @{tile}({pairs}, ptr {sides[0][0]}{value_arguments(kernel, coordinates)})")
    with code.loop("put", kernel.registers) as r:
        _put(emitter, code, r, masks, sides[1])
    code.do("ret void")
    return f"define internal void @edge({arguments})", code


_Scratch = tuple[str, str, int]
"""A scratch tile: its address, that of its register offsets, the bytes of one register."""


def _scratch(emitter: Emitter, code: Code, side: int) -> _Scratch:
    """Room for a tile as a side holds it, register after register."""
    elements, count = emitter.elements(code, side), emitter.kernel.registers
    align = min(LINE, elements.nbytes)
    room = code.let(f"alloca [{count} x {elements.memory}], align {align}")
    offsets = f"@places.{count}.{elements.nbytes}"
    numbers = ", ".join(f"i64 {r * elements.nbytes}" for r in range(count))
    code.declarations.add(f"{offsets} = private constant [{count} x i64] [{numbers}], align 8")
    return room, offsets, elements.nbytes


def _stored_whole(emitter: Emitter, code: Code, coordinates: list[str], src: tuple[str, str, int]) -> None:
    """Where every element of the tile is stored, padding included, the result goes to its place at once."""
    inside = "true"
    for g in emitter.kernel.bounds:
        limit = code.load_word("%table", emitter.shape.bound(g, 3))
        inside = code.let(f"and i1 {inside}, {code.let(f'icmp sle i64 {coordinates[g]}, {limit}')}")
    code.do(f"br i1 {inside}, label %stored, label %parts")
    code.label("stored")
    code.do(f"call void @tile(ptr {src[0]}, ptr {src[1]}, ptr %dst, ptr %dst_offsets, ptr {src[0]})")
    code.do("ret void")
    code.label("parts")


def _masked_load(emitter: Emitter, code: Code, r: str, masks: Masks) -> str:
    mask, where = masks.at(code, READ, r, code.byte("%src", code.load_word("%src_offsets", r)))
    return emitter.elements(code, 0).load(where, mask)


def _masked_store(emitter: Emitter, code: Code, r: str, masks: Masks, value: str) -> None:
    elements = emitter.elements(code, 1)
    if not emitter.keeps_zeros:
        value = elements.only(value, masks.of(code, FILLED, r))
    mask, where = masks.at(code, WRITTEN, r, code.byte("%dst", code.load_word("%dst_offsets", r)))
    elements.store(value, where, mask)


def _masked_move(emitter: Emitter, code: Code, r: str, masks: Masks) -> None:
    """Where nothing is shuffled, register `r` goes straight across."""
    src, dst = (emitter.elements(code, side) for side in (0, 1))
    value = src.unpacked(_masked_load(emitter, code, r, masks))
    if emitter.kernel.computation is None:
        value = convert(src.lanes, value, src.name, dst.name)
    else:
        old = dst.unpacked(_masked_old(emitter, code, r, masks)) if emitter.kernel.computation.sums else ""
        value = computed(src.lanes, emitter.kernel, emitter.shape, value, r, old)
    _masked_store(emitter, code, r, masks, dst.packed(value))


def _masked_old(emitter: Emitter, code: Code, r: str, masks: Masks) -> str:
    """What the destination holds where register `r` goes."""
    mask, where = masks.at(code, WRITTEN, r, code.byte("%dst", code.load_word("%dst_offsets", r)))
    return emitter.elements(code, 1).load(where, mask)


def _fetch(emitter: Emitter, code: Code, r: str, masks: Masks, sides: list[_Scratch]) -> None:
    """Fill the scratch of the source at `r`, and where there is a sum that of the destination."""
    places = [code.byte(room, code.let(f"mul i64 {r}, {size}")) for room, _, size in sides]
    emitter.elements(code, 0).store(_masked_load(emitter, code, r, masks), places[0])
    if emitter.kernel.computation is not None and emitter.kernel.computation.sums:
        emitter.elements(code, 1).store(_masked_old(emitter, code, r, masks), places[1])


def _put(emitter: Emitter, code: Code, r: str, masks: Masks, scratch: _Scratch) -> None:
    """Store register `r` of the result."""
    place = code.byte(scratch[0], code.let(f"mul i64 {r}, {scratch[2]}"))
    _masked_store(emitter, code, r, masks, emitter.elements(code, 1).load(place))
