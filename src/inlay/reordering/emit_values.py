"""The code of attributes: values loaded for a register, and the formula applied to it.

Where all lanes take the same value it is loaded once and spread; where they take neighbors, in a pattern that is known
now, these are loaded in a row and shuffled into it; else each lane fetches its own.
"""

from inlay.reordering.computation import Computation, Value
from inlay.reordering.conversion import REGISTER_TYPES, convert
from inlay.reordering.emit_chance import by_chance, is_rounded
from inlay.reordering.ir import Code, suffix
from inlay.reordering.kernel import Kernel, TableShape
from inlay.reordering.lanes import Lanes, shuffle_mask
from inlay.reordering.network import SIDES

_OPERATIONS = {
    "src_zero_points": "fsub",
    "src_scales": "fmul",
    "factor": "fmul",
    "dst_scales": "fdiv",
    "dst_zero_points": "fadd",
}


def value_parameters(kernel: Kernel) -> str:
    """What the code of a tile is given beside its addresses, to find values: the table and the counts."""
    if kernel.computation is None:
        return ""
    return "".join([", ptr %table", *(f", i64 %c{g}" for g in range(kernel.computation.counts))])


def value_arguments(kernel: Kernel, counts: list[str]) -> str:
    """The arguments for these parameters, with the counts at which the tile lies."""
    if kernel.computation is None:
        return ""
    return "".join([", ptr %table", *(f", i64 {count}" for count in counts[: kernel.computation.counts])])


def lane_coordinates(code: Code, shape: TableShape, side: int, at: int, r: int | str) -> str:
    """Where the table keeps what the lanes of register `r` add to a coordinate, from word `at` on."""
    if shape.kinds[side] == 1:
        return code.word("%table", at)
    kind = code.let(f"udiv i64 {r}, {shape.registers // shape.kinds[side]}")
    words = code.let(f"mul i64 {kind}, {shape.lane_words}")
    return code.word("%table", code.let(f"add i64 {words}, {at}"))


def computed(lanes: Lanes, kernel: Kernel, shape: TableShape, value: str, r: int | str, old: str = "") -> str:
    """Write the formula for register `r`, from elements of the source to those of the destination; the result's name.

    `old` are the destination's old elements, where there is a sum.
    """
    computation = kernel.computation
    assert computation is not None, "a kernel without attributes converts"
    working, element = computation.working, REGISTER_TYPES[computation.working]
    result = convert(lanes, value, kernel.src_type, working)
    for k, step in enumerate(computation.values):
        if step.step == "chance":
            if is_rounded(working, kernel.dst_type):
                indices, seed = _indices(lanes, computation, shape, step, r), _seed(lanes, k)
                result = by_chance(lanes, result, element, kernel.dst_type, indices, seed)
            continue
        taken = _value(lanes, computation, shape, k, step, r)
        if step.step == "sum":
            taken = lanes.apply("fmul", element, taken, convert(lanes, old, kernel.dst_type, working))
            result = lanes.apply("fadd", element, result, taken)
        else:
            result = lanes.apply(_OPERATIONS[step.step], element, result, taken)
    return convert(lanes, result, working, kernel.dst_type)


def _value(lanes: Lanes, computation: Computation, shape: TableShape, k: int, value: Value, r: int | str) -> str:
    """The values that the lanes of register `r` take."""
    code, element = lanes.code, REGISTER_TYPES[computation.working]
    start = code.let(f"inttoptr i64 {code.load_word('%table', -1 - k)} to ptr")
    side = SIDES.index(computation.side)
    if value.count is not None:
        at = shape.coordinates(side, value.count)
        offset = code.let(f"add i64 %c{value.count}, {code.load_word(code.word('%table', at), r)}")
        start = code.let(f"getelementptr {element}, ptr {start}, i64 {offset}")
        if value.lanes is None:
            where = lane_coordinates(code, shape, side, at + shape.registers, r)
            return _gathered(lanes, element, start, where)
    assert value.lanes is not None, "values without a count are one for all lanes"
    if not any(value.lanes):
        return lanes.spread(code.let(f"load {element}, ptr {start}"), element)
    count = 1 << max(value.lanes).bit_length()
    row = code.let(f"load <{count} x {element}>, ptr {start}, align 4")
    if value.lanes == tuple(range(lanes.count)):
        return row
    vector = f"<{count} x {element}>"
    return code.let(f"shufflevector {vector} {row}, {vector} poison, {shuffle_mask(value.lanes)}")


def _seed(lanes: Lanes, k: int) -> str:
    """The seed, which lies where other steps have the address of their values."""
    code = lanes.code
    return lanes.spread(code.let(f"trunc i64 {code.load_word('%table', -1 - k)} to i32"), "i32")


def _indices(lanes: Lanes, computation: Computation, shape: TableShape, value: Value, r: int | str) -> str:
    """The row-major index of the element of each lane of register `r`, modulo 2^32."""
    code = lanes.code
    if value.count is None:
        return lanes.spread("0", "i32")
    side = SIDES.index(computation.side)
    at = shape.coordinates(side, value.count)
    first = code.let(f"add i64 %c{value.count}, {code.load_word(code.word('%table', at), r)}")
    where = lane_coordinates(code, shape, side, at + shape.registers, r)
    each = code.let(f"load {lanes.of('i32')}, ptr {where}, align 4")
    return lanes.apply("add", "i32", each, lanes.spread(code.let(f"trunc i64 {first} to i32"), "i32"))


def _gathered(lanes: Lanes, element: str, start: str, where: str) -> str:
    """Each lane's own value, so many after `start` as the 32-bit numbers at `where` say."""
    code = lanes.code
    indices = code.let(f"load {lanes.of('i32')}, ptr {where}, align 4")
    addresses = code.let(f"getelementptr {element}, ptr {start}, {lanes.of('i32')} {indices}")
    name = f"llvm.masked.gather.{suffix(lanes.of(element))}.v{lanes.count}p0"
    code.declarations.add(
        f"declare {lanes.of(element)} @{name}({lanes.of('ptr')}, i32, {lanes.of('i1')}, {lanes.of(element)})"
    )
    arguments = f"{lanes.of('ptr')} {addresses}, i32 4, {lanes.of('i1')} splat (i1 true), {lanes.of(element)} poison"
    return code.let(f"call {lanes.of(element)} @{name}({arguments})")
