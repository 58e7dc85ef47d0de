"""Functions that bring one tile of pixels to the products, and their results to one tile."""

from inlay.engine.inlay.table import Word
from inlay.engine.inlay.tiles import A_PAIRED, OUT, TILE, B
from inlay.engine.inlay.vectors import Registers, Vectors, constants, paired, transformed
from inlay.reordering.ir import Code


def places_function(registers: Registers) -> tuple[str, Code]:
    """Addresses of `side` x `side` pixels from (y, x) on, each with the bytes to its next vector."""
    code = Code()
    code.label("entry")
    with code.loop("down", "%side") as i:
        y = code.let(f"add i64 %y, {i}")
        is_row = code.let(f"icmp ult i64 {y}, %h")
        row = code.let(f"mul i64 {y}, %row")
        line = code.let(f"mul i64 {i}, %side")
        with code.loop("across", "%side") as j:
            x = code.let(f"add i64 %x, {j}")
            is_in = code.let(f"and i1 {is_row}, {code.let(f'icmp ult i64 {x}, %w')}")
            offset = code.let(f"add i64 {row}, {code.let(f'mul i64 {x}, %pixel')}")
            place = code.let(f"select i1 {is_in}, ptr {code.byte('%image', offset)}, ptr %outside")
            step = code.let(f"select i1 {is_in}, i64 %vector, i64 0")
            entry = code.let(f"shl i64 {code.let(f'add i64 {line}, {j}')}, 1")
            code.do(f"store ptr {place}, ptr {code.word('%places', entry)}")
            code.do(f"store i64 {step}, ptr {code.word('%places', code.let(f'or i64 {entry}, 1'))}")
    code.do("ret void")
    arguments = ("%y", "%x", "%h", "%w", "%row", "%pixel", "%vector", "%side")
    numbers = ", ".join(f"i64 {name}" for name in arguments)
    return f"define internal void @places(ptr %places, ptr %image, ptr %outside, {numbers})", code


def tile_function(registers: Registers) -> tuple[str, Code]:
    """The image, row and column of tiles of tile number `tile`, as words."""
    code = Code()
    code.label("entry")
    down, across = (code.load_word("%table", word) for word in (Word.TILES_DOWN, Word.TILES_ACROSS))
    line = code.let(f"udiv i64 %tile, {across}")
    for i, value in enumerate((f"udiv i64 {line}, {down}", f"urem i64 {line}, {down}", f"urem i64 %tile, {across}")):
        code.do(f"store i64 {code.let(value)}, ptr {code.word('%found', i)}")
    code.do("ret void")
    return "define internal void @tile_of(ptr %table, i64 %tile, ptr %found)", code


def input_function(registers: Registers) -> tuple[str, Code]:
    """One tile: `count` vectors of channels from `places` to the 36 matrices from `v` on, by way of `temporary`."""
    code = Code()
    vectors = Vectors(code, registers)
    code.label("entry")
    splats = constants(vectors, B)
    with code.loop("channel", "%count") as c:
        for j in range(TILE):
            column = [vectors.load(_placed(code, i * TILE + j, c)) for i in range(TILE)]
            for i, value in enumerate(transformed(vectors, B, splats, column)):
                vectors.store(value, code.byte("%temporary", (i * TILE + j) * vectors.bytes))
        at = code.byte("%v", code.let(f"mul i64 {c}, {vectors.bytes}"))
        for i in range(TILE):
            row = [vectors.load("%temporary", i * TILE + j) for j in range(TILE)]
            for j, value in enumerate(transformed(vectors, B, splats, row)):
                vectors.store(value, code.byte(at, code.let(f"mul i64 %matrix, {i * TILE + j}")))
    code.do("ret void")
    return "define internal void @input(ptr %places, i64 %count, ptr %v, i64 %matrix, ptr %temporary)", code


def output_function(registers: Registers) -> tuple[str, Code]:
    """One tile: `count` vectors of channels from the 36 matrices from `m` on to `places`, from channel `first` on."""
    code = Code()
    vectors = Vectors(code, registers)
    code.label("entry")
    splats = constants(vectors, A_PAIRED)
    bound = vectors.splat("%bound")
    with code.loop("channel", "%count") as c:
        at = code.byte("%m", code.let(f"mul i64 {c}, {vectors.bytes}"))
        for j in range(TILE):
            places = [code.byte(at, code.let(f"mul i64 %matrix, {i * TILE + j}")) for i in range(TILE)]
            column = paired(vectors, [vectors.load(place) for place in places])
            for i, value in enumerate(transformed(vectors, A_PAIRED, splats, column)):
                vectors.store(value, code.byte("%temporary", (i * TILE + j) * vectors.bytes))
        channel = code.let(f"add i64 %first, {c}")
        bias = vectors.load(code.byte("%bias", code.let(f"mul i64 {channel}, {vectors.bytes}")))
        for i in range(OUT):
            row = paired(vectors, [vectors.load("%temporary", i * TILE + j) for j in range(TILE)])
            for j, value in enumerate(transformed(vectors, A_PAIRED, splats, row)):
                total = vectors.two("fadd", value, bias)
                is_less = code.let(f"fcmp olt {vectors.type} {total}, {bound}")
                bools = f"<{registers.lanes} x i1>"
                kept = code.let(f"select {bools} {is_less}, {vectors.type} {bound}, {vectors.type} {total}")
                vectors.store(kept, _placed(code, i * OUT + j, channel))
    code.do("ret void")
    arguments = "ptr %places, i64 %first, i64 %count, ptr %m, i64 %matrix, ptr %bias, float %bound, ptr %temporary"
    return f"define internal void @output({arguments})", code


def _placed(code: Code, pixel: int, channel: str) -> str:
    """The address of a vector of channels of a pixel in the table of places."""
    place = code.let(f"load ptr, ptr {code.word('%places', 2 * pixel)}")
    step = code.load_word("%places", 2 * pixel + 1)
    return code.byte(place, code.let(f"mul i64 {step}, {channel}"))
