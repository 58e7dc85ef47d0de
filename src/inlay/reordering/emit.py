"""Code generation for a kernel, as LLVM IR: one emitter for every layout, element size and target.

    inlay_kernel(source, destination, table, first tile, last tile)

The function executes a range of tiles. By division it finds the loop indices of the first tile, then it steps along the
innermost loop to the end of that loop or of the range, and continues with the next such run of tiles. A tile within all
bounds is loaded, shuffled and stored without masks.

At an edge of the tensor, only some elements of a tile may be read and only some may be written. Its registers are
loaded under masks into a scratch tile, with zeros for elements that must not be read. The code of a whole tile then
works on the scratch memory, and the result is stored to the destination under masks. So there is no second network, and
no byte beyond the bounds is accessed.
"""

from dataclasses import replace

from inlay.reordering.conversion import LINE, convert
from inlay.reordering.emit_tile import (
    FILLED,
    READ,
    WRITTEN,
    Emitter,
    Masks,
    clear_masks,
    compare_bound,
    mask_function,
    mask_words,
    masks_of_tile,
    tile_function,
    tile_parameters,
)
from inlay.reordering.emit_values import emit_formula, value_arguments
from inlay.reordering.instructions import Arithmetic
from inlay.reordering.ir import Code, module_text
from inlay.reordering.kernel import STAGE_BYTES, Kernel, table_shape

ENTRY = "inlay_kernel"
"""Name of the function."""


def kernel_ir(kernel: Kernel, fence: str, attributes: str, arithmetic: Arithmetic) -> str:
    """Return the module of `kernel`.

    Args:
        fence: the statement that makes streaming stores visible to other threads.
        attributes: LLVM function attributes of the target.
        arithmetic: the conversion and permutation instructions of the target.
    """
    shape = table_shape(kernel.lanes, kernel.registers, kernel.guards, kernel.deinterleave, kernel.overlaps)
    emitter = Emitter(kernel, shape, arithmetic)
    functions = [tile_function(emitter, "tile", streams=kernel.stores == "streamed")]
    if kernel.bounds:
        if kernel.shuffles and _has_scratch_tile(kernel):
            plain = replace(kernel, src_swizzle=None, dst_swizzle=None)
            functions.append(tile_function(replace(emitter, kernel=plain), "scratch_tile", streams=False))
        functions += [*(mask_function(emitter, side) for side in (0, 1)), _edge_function(emitter)]
    functions.append(_entry_function(emitter, fence))
    return module_text(functions, attributes)


def _has_scratch_tile(kernel: Kernel) -> bool:
    """Return whether scratch memory needs a function of its own: stores are streamed, or offsets swizzled."""
    return kernel.stores == "streamed" or any(kernel.swizzles)


def _entry_function(emitter: Emitter, fence: str) -> tuple[str, Code]:
    """Write the entry function, which executes tiles `begin` to `end`, exclusive."""
    code = Code()
    shape, guards = emitter.shape, emitter.kernel.bounds
    code.label("entry")
    if emitter.kernel.stores == "staged":
        code.do(f"%stage = alloca [{STAGE_BYTES} x i8], align {LINE}")
    if emitter.kernel.bounds:
        code.do(f"%masks = alloca [{mask_words(emitter)} x i64], align {LINE}")
        clear_masks(code, emitter)
    loops = code.load_word("%table", shape.LOOPS)
    extent, *steps = (code.load_word("%table", shape.INNERMOST + i) for i in range(1 + shape.sums))
    limits = [code.load_word("%table", shape.bound(g, 2)) for g in guards]
    code.do("br label %run")
    code.label("run")
    end = "%flushed" if emitter.kernel.stores == "staged" else "%step_done"
    code.do(f"%tile_index = phi i64 [%begin, %entry], [%run_end, {end}]")
    code.do("%more = icmp ult i64 %tile_index, %end")
    code.do("br i1 %more, label %find, label %exit")
    # The tile's number is (index in the loops around the innermost, index in the innermost).
    code.label("find")
    first = code.let(f"urem i64 %tile_index, {extent}")
    outer_index = code.let(f"udiv i64 %tile_index, {extent}")
    code.do(f"%run_all = sub i64 {extent}, {first}")
    code.do("%left = sub i64 %end, %tile_index")
    code.do("%short = icmp ult i64 %left, %run_all")
    code.do("%run_length = select i1 %short, i64 %left, i64 %run_all")
    code.do("%run_end = add i64 %tile_index, %run_length")
    starts = [code.let(f"mul i64 {first}, {step}") for step in steps]
    sums = _emit_run_start(code, emitter, loops, outer_index, starts)
    _emit_run(code, emitter, sums, steps, limits, (first, extent))
    code.label("exit")
    if emitter.kernel.stores != "cached":
        code.do_declared(fence)
    code.do("ret void")
    return f"define void @{ENTRY}(ptr %src, ptr %dst, ptr %table, i64 %begin, i64 %end)", code


def _emit_run_start(code: Code, emitter: Emitter, loops: str, outer_index: str, starts: list[str]) -> list[str]:
    """Append the running sums of the table's shape at the start of a run; return their names.

    `outer_index` numbers the iterations of all `loops` around the innermost; divisions give the index of each. `starts`
    are the contributions of the innermost loop to the sums.
    """
    names = [f"%sum{i}" for i in range(len(starts))]
    code.do("br label %digit")
    code.label("digit")
    code.do("%loop = phi i64 [0, %find], [%loop_next, %digit_body]")
    code.do(f"%rest = phi i64 [{outer_index}, %find], [%rest_next, %digit_body]")
    for name, start in zip(names, starts, strict=True):
        code.do(f"{name} = phi i64 [{start}, %find], [{name}_next, %digit_body]")
    code.do(f"%any = icmp ult i64 %loop, {loops}")
    code.do("br i1 %any, label %digit_body, label %walk")
    code.label("digit_body")
    at = code.let(f"mul i64 %loop, {emitter.shape.loop_words}")
    words = code.word("%table", code.let(f"add i64 {at}, {emitter.shape.loops}"))
    extent = code.load_word(words, 0)
    index = code.let(f"urem i64 %rest, {extent}")
    is_last = _is_last(code, index, extent) if emitter.kernel.overlaps else ""
    code.do(f"%rest_next = udiv i64 %rest, {extent}")
    code.do("%loop_next = add i64 %loop, 1")
    for i, name in enumerate(names):
        contribution = code.let(f"mul i64 {index}, {code.load_word(words, 1 + i)}")
        if i < 2:
            address, step = (code.load_word(words, emitter.shape.steps + 2 * i + k) for k in range(2))
            table = code.let(f"inttoptr i64 {address} to ptr")
            looked_up = code.load_word(table, code.let(f"mul i64 {index}, {step}"))
            contribution = code.let(f"add i64 {looked_up}, {contribution}")
        if emitter.kernel.overlaps:
            back = code.load_word(words, 1 + emitter.shape.sums + i)
            contribution = _add_if_last(code, is_last, contribution, back)
        code.do(f"{name}_next = add i64 {name}, {contribution}")
    code.do("br label %digit")
    return names


def _is_last(code: Code, index: str, extent: str) -> str:
    """Append the comparison of `index` with the last of `extent` iterations; return its name."""
    return code.let(f"icmp eq i64 {code.let(f'add i64 {index}, 1')}, {extent}")


def _add_if_last(code: Code, is_last: str, value: str, back: str) -> str:
    """Append the addition of `back` to a sum if `is_last` holds; return the name of the new sum."""
    return code.let(f"add i64 {value}, {code.let(f'select i1 {is_last}, i64 {back}, i64 0')}")


def _emit_run(
    code: Code, emitter: Emitter, sums: list[str], steps: list[str], limits: list[str], innermost: tuple[str, str]
) -> None:
    """Append the loop over the tiles of one run; it calls the function of a whole tile or of a tile at an edge.

    `sums` are the running sums of the first tile and `steps` their increments. `limits` are the last coordinates at
    which tiles are whole. `innermost` is the index of the first tile in the innermost loop, and the extent of the loop.
    """
    kernel = emitter.kernel
    names = [f"%at{i}" for i in range(len(sums))]
    code.label("walk")
    code.do("br label %step")
    code.label("step")
    code.do("%count = phi i64 [0, %walk], [%count_next, %step_end]")
    is_staged = kernel.stores == "staged"
    starts = [sums[0], "0" if is_staged else sums[1], *sums[2:]]
    for name, start in zip(names, starts, strict=True):
        code.do(f"{name} = phi i64 [{start}, %walk], [{name}_next, %step_end]")
    at = _adjust_overlap(code, emitter, names, innermost) if kernel.overlaps else names
    arguments = _tile_arguments(code, emitter, at)
    coordinates = at[4:]
    counted = value_arguments(kernel, coordinates)
    if kernel.bounds:
        inside = _is_inside(code, coordinates[kernel.bounds.start :], limits)
        code.do(f"br i1 {inside}, label %whole_tile, label %edge_tile")
        code.label("edge_tile")
        all_ = "".join(f", i64 {name}" for name in coordinates)
        code.do(f"call void @edge({arguments}, ptr %table, ptr %masks{all_})")
        code.do("br label %step_end")
        code.label("whole_tile")
    code.do(f"call void @tile({arguments}{counted})")
    code.do("br label %step_end")
    code.label("step_end")
    code.do("%count_next = add i64 %count, 1")
    for name, step in zip(names, steps, strict=True):
        code.do(f"{name}_next = add i64 {name}, {step}")
    code.do("%again = icmp ult i64 %count_next, %run_length")
    code.do("br i1 %again, label %step, label %step_done")
    code.label("step_done")
    if is_staged:
        _flush_stage(code, sums[1], code.load_word("%table", emitter.shape.STAGE))
    code.do("br label %run")


def _is_inside(code: Code, coordinates: list[str], limits: list[str]) -> str:
    """Append the test that no coordinate of a tile is above its limit; return its name."""
    first, *others = [code.let(f"icmp sle i64 {c}, {limit}") for c, limit in zip(coordinates, limits, strict=True)]
    for other in others:
        first = code.let(f"and i1 {first}, {other}")
    return first


def _adjust_overlap(code: Code, emitter: Emitter, names: list[str], innermost: tuple[str, str]) -> list[str]:
    """Return the running sums of a tile, corrected if it is the last, overlapping tile of the innermost loop."""
    first, extent = innermost
    is_last = _is_last(code, code.let(f"add i64 {first}, %count"), extent)
    back = emitter.shape.INNERMOST + 1 + emitter.shape.sums
    return [_add_if_last(code, is_last, name, code.load_word("%table", back + i)) for i, name in enumerate(names)]


def _tile_arguments(code: Code, emitter: Emitter, at: list[str]) -> str:
    """Return the address arguments of a tile whose running sums are `at`."""
    kernel = emitter.kernel
    words = [code.load_word("%table", emitter.shape.OFFSETS + side) for side in (0, 1)]
    offsets = [code.let(f"inttoptr i64 {word} to ptr") for word in words]
    bases = ["%src", "%stage" if kernel.stores == "staged" else "%dst"]
    sides = [code.byte(base, place) for base, place in zip(bases, at, strict=False)]
    rows = [code.byte(offset, name) for offset, name in zip(offsets, at[2:4], strict=True)]
    distance = code.load_word("%table", emitter.shape.PREFETCH) if kernel.prefetches else "0"
    ahead, swizzled = code.byte(sides[0], distance), ""
    if kernel.src_swizzle is not None:
        sides[0], swizzled = bases[0], f", i64 {at[0]}, i64 {code.let(f'add i64 {at[0]}, {distance}')}"
    if kernel.dst_swizzle is not None:
        sides[1], swizzled = bases[1], f"{swizzled}, i64 {at[1]}"
    return f"ptr {sides[0]}, ptr {rows[0]}, ptr {sides[1]}, ptr {rows[1]}, ptr {ahead}{swizzled}"


def _flush_stage(code: Code, offset: str, size: str) -> None:
    """Append a loop that streams the stage to the destination, line by line."""
    vector = f"<{LINE} x i8>"
    code.do("br label %flush")
    code.label("flush")
    code.do("%sent = phi i64 [0, %step_done], [%sent_next, %flush]")
    line = code.let(f"load {vector}, ptr {code.byte('%stage', '%sent')}, align {LINE}")
    place = code.byte("%dst", code.let(f"add i64 {offset}, %sent"))
    code.do(f"store {vector} {line}, ptr {place}, align {LINE}, !nontemporal !0")
    code.do(f"%sent_next = add i64 %sent, {LINE}")
    more = code.let(f"icmp ult i64 %sent_next, {size}")
    code.do(f"br i1 {more}, label %flush, label %flushed")
    code.label("flushed")


# A tile at an edge of the tensor


def _edge_function(emitter: Emitter) -> tuple[str, Code]:
    """Write the function for a tile at an edge.

    Arguments: those of a tile, the table, the cached masks, and the sum of each guard.
    """
    code = Code()
    kernel = emitter.kernel
    coordinates = [f"%c{g}" for g in range(kernel.guards)]
    arguments = ", ".join([tile_parameters(kernel), "ptr %table, ptr %masks", *(f"i64 {c}" for c in coordinates)])
    code.label("entry")
    masks = masks_of_tile(code, emitter, coordinates)
    if not kernel.shuffles:
        with code.loop("move", kernel.registers) as r:
            _masked_move(emitter, code, r, masks)
        code.do("ret void")
        return f"define internal void @edge({arguments})", code
    sides = [_scratch(emitter, code, side) for side in (0, 1)]
    with code.loop("fetch", kernel.registers) as r:
        _load_scratch(emitter, code, r, masks, sides)
    if emitter.preserves_zeros and not any(kernel.swizzles):
        _emit_fully_written_edge(emitter, code, coordinates, sides[0])
    tile = "scratch_tile" if _has_scratch_tile(kernel) else "tile"
    pairs = ", ".join(f"ptr {scratch}, ptr {offsets}" for scratch, offsets, _ in sides)
    code.do(f"call void @{tile}({pairs}, ptr {sides[0][0]}{value_arguments(kernel, coordinates)})")
    with code.loop("put", kernel.registers) as r:
        _store_scratch(emitter, code, r, masks, sides[1])
    code.do("ret void")
    return f"define internal void @edge({arguments})", code


_Scratch = tuple[str, str, int]
"""A scratch tile: its address, the address of its register offsets, and the size of one register in bytes."""


def _scratch(emitter: Emitter, code: Code, side: int) -> _Scratch:
    """Allocate memory for a tile of elements of one side, register after register."""
    elements, count = emitter.elements(code, side), emitter.kernel.registers
    align = min(LINE, elements.nbytes)
    room = code.let(f"alloca [{count} x {elements.memory}], align {align}")
    offsets = f"@places.{count}.{elements.nbytes}"
    numbers = ", ".join(f"i64 {r * elements.nbytes}" for r in range(count))
    code.declarations.add(f"{offsets} = private constant [{count} x i64] [{numbers}], align 8")
    return room, offsets, elements.nbytes


def _emit_fully_written_edge(emitter: Emitter, code: Code, coordinates: list[str], src: _Scratch) -> None:
    """Append a fast path: if every element of the tile is stored, padding included, store the result directly."""
    inside = "true"
    for g in emitter.kernel.bounds:
        inside = code.let(f"and i1 {inside}, {compare_bound(code, emitter, 'sle', coordinates[g], g, 3)}")
    code.do(f"br i1 {inside}, label %stored, label %parts")
    code.label("stored")
    code.do(f"call void @tile(ptr {src[0]}, ptr {src[1]}, ptr %dst, ptr %dst_offsets, ptr {src[0]})")
    code.do("ret void")
    code.label("parts")


def _masked_move(emitter: Emitter, code: Code, r: str, masks: Masks) -> None:
    """Append load, computation and store of register `r` under masks, for kernels without shuffles."""
    src, dst = (emitter.elements(code, side) for side in (0, 1))
    value = src.unpack(_masked_load(emitter, code, 0, r, masks))
    if emitter.kernel.computation is None:
        value = convert(src.lanes, value, src.name, dst.name)
    else:
        old = dst.unpack(_masked_load(emitter, code, 1, r, masks)) if emitter.kernel.computation.sums else ""
        value = emit_formula(src.lanes, emitter.kernel, emitter.shape, value, r, old)
    _masked_store(emitter, code, r, masks, dst.pack(value))


def _load_scratch(emitter: Emitter, code: Code, r: str, masks: Masks, sides: list[_Scratch]) -> None:
    """Append masked loads of register `r` into the scratch tile of the source and, for a sum, of the destination."""
    places = [code.byte(room, code.let(f"mul i64 {r}, {size}")) for room, _, size in sides]
    emitter.elements(code, 0).store(_masked_load(emitter, code, 0, r, masks), places[0])
    if emitter.kernel.computation is not None and emitter.kernel.computation.sums:
        emitter.elements(code, 1).store(_masked_load(emitter, code, 1, r, masks), places[1])


def _store_scratch(emitter: Emitter, code: Code, r: str, masks: Masks, scratch: _Scratch) -> None:
    """Append the masked store of register `r` of the result from the scratch tile."""
    place = code.byte(scratch[0], code.let(f"mul i64 {r}, {scratch[2]}"))
    _masked_store(emitter, code, r, masks, emitter.elements(code, 1).load(place))


def _masked_load(emitter: Emitter, code: Code, side: int, r: str, masks: Masks) -> str:
    """Append a masked load of register `r` of a side: source elements, or old elements of the destination."""
    offset = code.load_word(("%src_offsets", "%dst_offsets")[side], r)
    return emitter.access(code, side).load(offset, masks.of_access(code, (READ, WRITTEN)[side], r))


def _masked_store(emitter: Emitter, code: Code, r: str, masks: Masks, value: str) -> None:
    """Append a masked store of register `r` to the destination, with zeros in the lanes of padding."""
    elements = emitter.elements(code, 1)
    if not emitter.preserves_zeros:
        value = elements.select(value, masks.of(code, FILLED, r))
    offset = code.load_word("%dst_offsets", r)
    emitter.access(code, 1).store(value, offset, masks.of_access(code, WRITTEN, r))
