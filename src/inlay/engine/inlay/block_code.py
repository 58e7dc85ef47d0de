"""Functions that bring a block of tiles to the products, and their results to a block of tiles."""

from inlay.engine.inlay.table import Word, pointer
from inlay.engine.inlay.tiles import OUT, POINTS, TILE
from inlay.engine.inlay.vectors import Registers
from inlay.reordering.ir import Code

_SRC = (Word.SRC_H, Word.SRC_W, Word.SRC_ROW, Word.SRC_PIXEL, Word.SRC_VECTOR)
_DST = (Word.DST_H, Word.DST_W, Word.DST_ROW, Word.DST_PIXEL, Word.DST_VECTOR)


def inputs_function(registers: Registers) -> tuple[str, Code]:
    """`count` tiles from number `first` on, to the rows of the matrices from `v` on."""
    code = Code()
    code.label("entry")
    places, found, temporary = _room(code, registers)
    vectors, matrix = code.load_word("%table", Word.IC_VECTORS), code.load_word("%table", Word.V_MATRIX)
    row = code.let(f"mul i64 {vectors}, {4 * registers.lanes}")
    top, left = (code.load_word("%table", word) for word in (Word.TOP, Word.LEFT))
    with code.loop("tile", "%count") as t:
        image, y, x = _position(code, t, found)
        base = code.byte(pointer(code, Word.SRC), _times(code, image, code.load_word("%table", Word.SRC_IMAGE)))
        y, x = (code.let(f"sub i64 {value}, {less}") for value, less in ((y, top), (x, left)))
        told = ", ".join(f"i64 {value}" for value in (y, x, *(code.load_word("%table", word) for word in _SRC), TILE))
        code.do(f"call void @places(ptr {places}, ptr {base}, ptr %outside, {told})")
        at = code.byte("%v", _times(code, t, row))
        code.do(f"call void @input(ptr {places}, i64 {vectors}, ptr {at}, i64 {matrix}, ptr {temporary})")
    code.do("ret void")
    return "define internal void @inputs(ptr %table, i64 %first, i64 %count, ptr %v, ptr %outside)", code


def outputs_function(registers: Registers) -> tuple[str, Code]:
    """The rows of the matrices from `m` on to `count` tiles from number `first` on, for so many panels of channels."""
    code = Code()
    code.label("entry")
    places, found, temporary = _room(code, registers)
    matrix, row = (code.load_word("%table", word) for word in (Word.M_MATRIX, Word.M_ROW))
    bias, low = pointer(code, Word.BIAS), code.let(f"load float, ptr {code.word('%table', Word.BOUND)}")
    begin, many = _vectors(code, registers)
    with code.loop("tile", "%count") as t:
        image, y, x = _position(code, t, found)
        base = code.byte(pointer(code, Word.DST), _times(code, image, code.load_word("%table", Word.DST_IMAGE)))
        told = ", ".join(f"i64 {value}" for value in (y, x, *(code.load_word("%table", word) for word in _DST), OUT))
        code.do(f"call void @places(ptr {places}, ptr {base}, ptr %spare, {told})")
        at = code.byte("%m", _times(code, t, row))
        told = f"i64 {begin}, i64 {many}, ptr {at}, i64 {matrix}, ptr {bias}, float {low}, ptr {temporary}"
        code.do(f"call void @output(ptr {places}, {told})")
    code.do("ret void")
    words = ", ".join(f"i64 %{name}" for name in ("first", "count", "panel", "panels"))
    return f"define internal void @outputs(ptr %table, {words}, ptr %m, ptr %spare)", code


def _room(code: Code, registers: Registers) -> list[str]:
    """Room for the places of a tile, for its number, and for a tile of registers."""
    sizes = (16 * POINTS, 3 * 8, 4 * registers.lanes * POINTS)
    return [code.let(f"alloca [{size} x i8], align 64") for size in sizes]


def _vectors(code: Code, registers: Registers) -> tuple[str, str]:
    """The first vector of channels of the panels, and how many there are: the last panel may not be full."""
    begin = code.let(f"mul i64 %panel, {registers.panel}")
    left = code.let(f"sub i64 {code.load_word('%table', Word.OC_VECTORS)}, {begin}")
    full = code.let(f"mul i64 %panels, {registers.panel}")
    is_less = code.let(f"icmp ult i64 {full}, {left}")
    return begin, code.let(f"select i1 {is_less}, i64 {full}, i64 {left}")


def _position(code: Code, t: str, found: str) -> tuple[str, str, str]:
    """The image, and the row and column of the first result, of tile number `t` of the block."""
    code.do(f"call void @tile_of(ptr %table, i64 {code.let(f'add i64 %first, {t}')}, ptr {found})")
    image, y, x = (code.load_word(found, i) for i in range(3))
    return image, _times(code, y, str(OUT)), _times(code, x, str(OUT))


def _times(code: Code, one: str, other: str) -> str:
    return code.let(f"mul i64 {one}, {other}")
