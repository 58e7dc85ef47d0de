"""The machine code of a Winograd convolution, as LLVM IR: one module for convolutions of all sizes.

    inlay_winograd(table)       what one thread of a team does; the words of the table are `Word`

A thread has a run of work items, each a block of tiles by a group of destination channels. For each item:

    input      6x6 pixels of each tile, for one vector of channels at a time: B^T d B, into 36 matrices V (tiles x ic)
    products   each of the 36: M = V U, by a tile of registers of up to ROWS rows by PANEL vectors
    output     A^T m A: 4x4 pixels, the bias added, bounded below, stored

Where pixels lie outside of an image, zeros are read and a spare line is written: a table of addresses, with the bytes
from one vector of channels to the next, says so for each tile.
"""

from inlay.engine.inlay.block_code import inputs_function, outputs_function
from inlay.engine.inlay.product_code import (
    ROWS,
    micro_function,
    product_function,
    products_function,
    share,
    widths,
)
from inlay.engine.inlay.table import Word, pointer
from inlay.engine.inlay.tile_code import input_function, output_function, places_function, tile_function
from inlay.engine.inlay.vectors import Registers
from inlay.reordering.ir import Code

ENTRY = "inlay_winograd"
"""The function."""
_MAKERS = (
    places_function,
    tile_function,
    input_function,
    inputs_function,
    product_function,
    products_function,
    output_function,
    outputs_function,
)


def module(registers: Registers, attributes: str) -> str:
    """The module, with the function attributes of a target."""
    sizes = [(rows, width) for rows in range(1, ROWS + 1) for width in widths(registers)]
    functions = [make(registers) for make in (*_MAKERS, _entry)]
    functions += [micro_function(registers, rows, width) for rows, width in sizes]
    texts = [f"{head} #0 {{\n" + "\n".join(code.lines) + "\n}" for head, code in functions]
    declarations = sorted(set().union(*(code.declarations for _, code in functions)))
    return "\n".join([*declarations, *texts, f"attributes #0 = {{ nounwind {attributes} }}\n"])


def _entry(registers: Registers) -> tuple[str, Code]:
    """What the calling thread does of the whole: item after item, tiles transformed once for items that share them."""
    code = Code()
    code.label("entry")
    thread, threads = (_asked(code, word) for word in (Word.THREAD_NUM, Word.NUM_THREADS))
    items, groups = (code.load_word("%table", word) for word in (Word.ITEMS, Word.GROUPS))
    begin, end = (share(code, items, threads, part) for part in (thread, code.let(f"add i64 {thread}, 1")))
    room = code.let(f"mul i64 {thread}, {code.load_word('%table', Word.ROOM)}")
    v = code.byte(pointer(code, Word.SCRATCH), room)
    m, outside = (code.byte(v, code.load_word("%table", word)) for word in (Word.M_AT, Word.SPARE_AT))
    code.do(f"store <{registers.lanes} x float> zeroinitializer, ptr {outside}, align 4")
    code.do("br label %item")
    code.label("item")
    code.do(f"%item_index = phi i64 [{begin}, %entry], [%item_next, %multiply]")
    code.do("%known = phi i64 [-1, %entry], [%block, %multiply]")
    code.do(f"%is_any = icmp ult i64 %item_index, {end}")
    code.do("br i1 %is_any, label %work, label %exit")
    code.label("work")
    code.do(f"%block = udiv i64 %item_index, {groups}")
    first, count = _part(code, Word.TILES, Word.BLOCKS, "%block")
    code.do("%is_known = icmp eq i64 %known, %block")
    code.do("br i1 %is_known, label %multiply, label %transform")
    code.label("transform")
    code.do(f"call void @inputs(ptr %table, i64 {first}, i64 {count}, ptr {v}, ptr {outside})")
    code.do("br label %multiply")
    code.label("multiply")
    panel, panels = _part(code, Word.PANELS, Word.GROUPS, code.let(f"urem i64 %item_index, {groups}"))
    code.do(f"call void @products(ptr %table, ptr {v}, ptr {m}, i64 {count}, i64 {panel}, i64 {panels})")
    spare = code.byte(outside, 4 * registers.lanes)
    tiles = f"i64 {first}, i64 {count}, i64 {panel}, i64 {panels}"
    code.do(f"call void @outputs(ptr %table, {tiles}, ptr {m}, ptr {spare})")
    code.do("%item_next = add i64 %item_index, 1")
    code.do("br label %item")
    code.label("exit")
    code.do("ret void")
    return f"define void @{ENTRY}(ptr %table)", code


def _asked(code: Code, word: Word) -> str:
    """The answer of a function of the OpenMP runtime, whose address is a word of the table."""
    return code.let(f"sext i32 {code.let(f'call i32 {pointer(code, word)}()')} to i64")


def _part(code: Code, things: Word, parts: Word, part: str) -> tuple[str, str]:
    """The first thing, and how many, of a part."""
    total, many = code.load_word("%table", things), code.load_word("%table", parts)
    first, last = (share(code, total, many, of) for of in (part, code.let(f"add i64 {part}, 1")))
    return first, code.let(f"sub i64 {last}, {first}")
