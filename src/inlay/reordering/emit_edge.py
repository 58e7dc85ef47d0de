"""The code of a tile at an edge of the tensor: what masks are for.

Of such a tile only some elements may be read and only some written. Whether one may is decided per guard: the
coordinate of the tile, plus what the register adds, plus what the lane adds, must be below the bound. Registers are
fetched into a scratch tile with zeros where nothing may be read, the tile's own code runs on the scratch, and the
result is put to its place under the second mask.
"""

from collections.abc import Callable

from inlay.reordering.conversion import convert
from inlay.reordering.elements import LINE
from inlay.reordering.emit_tile import TILE_ARGUMENTS, Emitter
from inlay.reordering.emit_values import computed, lane_coordinates, value_arguments
from inlay.reordering.ir import Code

_FAR = 1 << 30  # more lanes than any register has, small enough for 32 bits


def edge_function(emitter: Emitter) -> tuple[str, Code]:
    """A tile at an edge: the arguments of a tile, the table, and the coordinate of each guard."""
    code = Code()
    kernel = emitter.kernel
    coordinates = [f"%c{g}" for g in range(kernel.guards)]
    arguments = ", ".join([TILE_ARGUMENTS, "ptr %table", *(f"i64 {c}" for c in coordinates)])
    code.label("entry")
    if not kernel.shuffles:
        _register_loop(emitter, code, "move", lambda r: _masked_move(emitter, code, r, coordinates))
        code.do("ret void")
        return f"define internal void @edge({arguments})", code
    sides = []
    for elements in (emitter.elements(code, side) for side in (0, 1)):
        align = min(LINE, elements.nbytes)
        scratch = code.let(f"alloca [{kernel.registers} x {elements.memory}], align {align}")
        offsets = code.let(f"alloca [{kernel.registers} x i64], align 8")
        sides.append((scratch, offsets, elements.nbytes))
    _register_loop(emitter, code, "fetch", lambda r: _fetch(emitter, code, r, coordinates, sides))
    if emitter.keeps_zeros:
        _stored_whole(emitter, code, coordinates, sides[0])
    tile = "scratch_tile" if kernel.stores == "streamed" else "tile"
    pairs = ", ".join(f"ptr {scratch}, ptr {offsets}" for scratch, offsets, _ in sides)
    code.do(f"call void @{tile}({pairs}, ptr {sides[0][0]}{value_arguments(kernel, coordinates)})")
    _register_loop(emitter, code, "put", lambda r: _put(emitter, code, r, coordinates, sides[1]))
    code.do("ret void")
    return f"define internal void @edge({arguments})", code


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


def _register_loop(emitter: Emitter, code: Code, name: str, body: Callable[[str], None]) -> None:
    """Run `body` for every register of the tile, as a loop in the code."""
    with code.loop(name, emitter.kernel.registers) as index:
        body(index)


def _mask(emitter: Emitter, code: Code, side: int, r: str, coordinates: list[str], bounds: int | None = None) -> str:
    """Which lanes of register `r` of a side lie below every bound: of reading (0), of writing (1); else the side's."""
    shape, lanes = emitter.shape, emitter.lanes
    bounds = side if bounds is None else bounds
    mask = ""
    for g in emitter.kernel.bounds:
        coordinate = coordinates[g]
        at = shape.coordinates(side, g)
        bound = code.load_word("%table", shape.bound(g, bounds))
        base = code.let(f"add i64 {coordinate}, {code.load_word(code.word('%table', at), r)}")
        room = code.let(f"sub i64 {bound}, {base}")
        for limit, name in ((_FAR, "smin"), (0, "smax")):
            room = code.minmax(name, room, limit)
        narrow = code.let(f"trunc i64 {room} to i32")
        one = code.let(f"insertelement <{lanes} x i32> poison, i32 {narrow}, i64 0")
        all_ = code.let(f"shufflevector <{lanes} x i32> {one}, <{lanes} x i32> poison, <{lanes} x i32> zeroinitializer")
        where = lane_coordinates(code, shape, side, at + shape.registers, r)
        lane = code.let(f"load <{lanes} x i32>, ptr {where}, align 4")
        below = code.let(f"icmp slt <{lanes} x i32> {lane}, {all_}")
        mask = code.let(f"and <{lanes} x i1> {mask}, {below}") if mask else below
    return mask


def _masked_load(emitter: Emitter, code: Code, r: str, coordinates: list[str]) -> str:
    mask = _mask(emitter, code, 0, r, coordinates)
    offset = code.load_word("%src_offsets", r)
    return emitter.elements(code, 0).load(code.byte("%src", offset), mask)


def _masked_store(emitter: Emitter, code: Code, r: str, coordinates: list[str], value: str) -> None:
    elements = emitter.elements(code, 1)
    if not emitter.keeps_zeros:
        value = elements.only(value, _mask(emitter, code, 1, r, coordinates, bounds=0))
    mask = _mask(emitter, code, 1, r, coordinates)
    offset = code.load_word("%dst_offsets", r)
    elements.store(value, code.byte("%dst", offset), mask)


def _masked_move(emitter: Emitter, code: Code, r: str, coordinates: list[str]) -> None:
    """Where nothing is shuffled, register `r` goes straight across."""
    src, dst = (emitter.elements(code, side) for side in (0, 1))
    value = src.unpacked(_masked_load(emitter, code, r, coordinates))
    if emitter.kernel.computation is None:
        value = convert(src.lanes, value, src.name, dst.name)
    else:
        old = dst.unpacked(_masked_old(emitter, code, r, coordinates)) if emitter.kernel.computation.sums else ""
        value = computed(src.lanes, emitter.kernel, emitter.shape, value, r, old)
    _masked_store(emitter, code, r, coordinates, dst.packed(value))


def _masked_old(emitter: Emitter, code: Code, r: str, coordinates: list[str]) -> str:
    """What the destination holds where register `r` goes."""
    mask = _mask(emitter, code, 1, r, coordinates)
    offset = code.load_word("%dst_offsets", r)
    return emitter.elements(code, 1).load(code.byte("%dst", offset), mask)


_Scratch = tuple[str, str, int]
"""A scratch tile: its address, that of its register offsets, the bytes of one register."""


def _fetch(emitter: Emitter, code: Code, r: str, coordinates: list[str], sides: list[_Scratch]) -> None:
    """Fill the scratch of the source at `r`, and note where both scratch tiles keep register `r`."""
    value = _masked_load(emitter, code, r, coordinates)
    places = []
    for scratch, offsets, size in sides:
        offset = code.let(f"mul i64 {r}, {size}")
        code.do(f"store i64 {offset}, ptr {code.word(offsets, r)}, align 8")
        places.append(code.byte(scratch, offset))
    emitter.elements(code, 0).store(value, places[0])
    if emitter.kernel.computation is not None and emitter.kernel.computation.sums:
        emitter.elements(code, 1).store(_masked_old(emitter, code, r, coordinates), places[1])


def _put(emitter: Emitter, code: Code, r: str, coordinates: list[str], scratch: _Scratch) -> None:
    """Store register `r` of the result."""
    place = code.byte(scratch[0], code.let(f"mul i64 {r}, {scratch[2]}"))
    _masked_store(emitter, code, r, coordinates, emitter.elements(code, 1).load(place))
