"""Code generation for attributes: loading values for a register, applying the formula, and stochastic rounding.

If all lanes use the same value, it is loaded once and broadcast. If they use neighboring values in a pattern known at
compile time, these are loaded as one vector and shuffled. Otherwise each lane gathers its value.

Stochastic rounding turns numbers of the working type into numbers that the destination type holds, still in the working
type; their conversion is then exact. With t the magnitude in units of the last place of the destination and u in [0, 1)
a hash of the element's index and the seed, the result is floor(t + u) units. It is computed as floor(t), plus one if `t
- floor(t) >= 1 - u`, because neither of these differences is rounded.

    hash = mix(mix(index) ^ seed)        u = (hash >> 8) / 2**24

Source: A. Appleby, MurmurHash3, `fmix32`.
"""

from inlay.data_type import DATA_TYPES, FLOAT_FORMATS
from inlay.reordering.conversion import REGISTER_TYPES, convert, integer_bounds
from inlay.reordering.ir import Code, Lanes, shuffle_mask, suffix
from inlay.reordering.kernel import Kernel, TableShape
from inlay.reordering.network import SIDES
from inlay.reordering.problem import Computation, FormulaStep


def value_parameters(kernel: Kernel) -> str:
    """Return the parameters of a tile function that locate values: the table and the value indices."""
    if kernel.computation is None:
        return ""
    return "".join([", ptr %table", *(f", i64 %c{g}" for g in range(kernel.computation.counts))])


def value_arguments(kernel: Kernel, counts: list[str]) -> str:
    """Return the arguments for these parameters; `counts` are the names of the value indices of the tile."""
    if kernel.computation is None:
        return ""
    return "".join([", ptr %table", *(f", i64 {count}" for count in counts[: kernel.computation.counts])])


def lane_coordinates(code: Code, shape: TableShape, side: int, at: int, r: int | str) -> str:
    """Append the address in the table of what the lanes of register `r` add to a guard's sum, from word `at` on."""
    if shape.kinds[side] == 1:
        return code.word("%table", at)
    kind = code.let(f"udiv i64 {r}, {shape.registers // shape.kinds[side]}")
    words = code.let(f"mul i64 {kind}, {shape.lane_words}")
    return code.word("%table", code.let(f"add i64 {words}, {at}"))


_OPERATIONS = {
    "src_zero_points": "fsub",
    "src_scales": "fmul",
    "factor": "fmul",
    "dst_scales": "fdiv",
    "dst_zero_points": "fadd",
}


def emit_formula(lanes: Lanes, kernel: Kernel, shape: TableShape, value: str, r: int | str, old: str = "") -> str:
    """Append the formula for register `r`, from source elements to destination elements; return the name of the result.

    `old` is the register with the old elements of the destination, for a formula with a sum.
    """
    computation = kernel.computation
    assert computation is not None, "a kernel without attributes converts"
    working, element = computation.working, REGISTER_TYPES[computation.working]
    result = convert(lanes, value, kernel.src_type, working)
    for k, step in enumerate(computation.values):
        if step.step == "stochastic":
            if _needs_rounding(working, kernel.dst_type):
                indices, seed = _element_indices(lanes, computation, shape, step, r), _seed(lanes, k)
                result = _stochastic_round(lanes, result, element, kernel.dst_type, indices, seed)
            continue
        taken = _load_values(lanes, computation, shape, k, step, r)
        if step.step == "sum":
            taken = lanes.apply("fmul", element, taken, convert(lanes, old, kernel.dst_type, working))
            result = lanes.apply("fadd", element, result, taken)
        else:
            result = lanes.apply(_OPERATIONS[step.step], element, result, taken)
    return convert(lanes, result, working, kernel.dst_type)


def _load_values(
    lanes: Lanes, computation: Computation, shape: TableShape, k: int, value: FormulaStep, r: int | str
) -> str:
    """Append the load of the values that the lanes of register `r` use; return their register."""
    code, element = lanes.code, REGISTER_TYPES[computation.working]
    start = code.let(f"inttoptr i64 {code.load_word('%table', -1 - k)} to ptr")
    side = SIDES.index(computation.side)
    if value.count is not None:
        at = shape.coordinates(side, value.count)
        offset = code.let(f"add i64 %c{value.count}, {code.load_word(code.word('%table', at), r)}")
        start = code.let(f"getelementptr {element}, ptr {start}, i64 {offset}")
        if value.lanes is None:
            where = lane_coordinates(code, shape, side, at + shape.registers, r)
            return _gather_values(lanes, element, start, where)
    assert value.lanes is not None, "values without a count are one for all lanes"
    if not any(value.lanes):
        return lanes.splat(code.let(f"load {element}, ptr {start}"), element)
    count = 1 << max(value.lanes).bit_length()
    row = code.let(f"load <{count} x {element}>, ptr {start}, align 4")
    if value.lanes == tuple(range(lanes.count)):
        return row
    vector = f"<{count} x {element}>"
    return code.let(f"shufflevector {vector} {row}, {vector} poison, {shuffle_mask(value.lanes)}")


def _gather_values(lanes: Lanes, element: str, start: str, where: str) -> str:
    """Append a gather: each lane loads a value at `start` plus the 32-bit index in memory at `where`."""
    code = lanes.code
    indices = code.let(f"load {lanes.of('i32')}, ptr {where}, align 4")
    addresses = code.let(f"getelementptr {element}, ptr {start}, {lanes.of('i32')} {indices}")
    name = f"llvm.masked.gather.{suffix(lanes.of(element))}.v{lanes.count}p0"
    code.declarations.add(
        f"declare {lanes.of(element)} @{name}({lanes.of('ptr')}, i32, {lanes.of('i1')}, {lanes.of(element)})"
    )
    arguments = f"{lanes.of('ptr')} {addresses}, i32 4, {lanes.of('i1')} splat (i1 true), {lanes.of(element)} poison"
    return code.let(f"call {lanes.of(element)} @{name}({arguments})")


def _seed(lanes: Lanes, k: int) -> str:
    """Append the broadcast of the seed, which is stored in place of an address of values."""
    code = lanes.code
    return lanes.splat(code.let(f"trunc i64 {code.load_word('%table', -1 - k)} to i32"), "i32")


def _element_indices(
    lanes: Lanes, computation: Computation, shape: TableShape, value: FormulaStep, r: int | str
) -> str:
    """Append the computation of the row-major element index of each lane of register `r`, modulo 2^32."""
    code = lanes.code
    if value.count is None:
        return lanes.splat("0", "i32")
    side = SIDES.index(computation.side)
    at = shape.coordinates(side, value.count)
    first = code.let(f"add i64 %c{value.count}, {code.load_word(code.word('%table', at), r)}")
    where = lane_coordinates(code, shape, side, at + shape.registers, r)
    each = code.let(f"load {lanes.of('i32')}, ptr {where}, align 4")
    return lanes.apply("add", "i32", each, lanes.splat(code.let(f"trunc i64 {first} to i32"), "i32"))


# Stochastic rounding


def _needs_rounding(working: str, dst: str) -> bool:
    """Return whether conversion from the working type to `dst` rounds."""
    return dst not in (working, "f64") and not DATA_TYPES[dst].is_exponent


def _stochastic_round(lanes: Lanes, value: str, element: str, dst: str, indices: str, seed: str) -> str:
    """Append stochastic rounding of floats of LLVM type `element` to numbers that `dst` holds; return the name.

    `indices` and `seed` are registers of 32-bit integers.
    """
    mixed = _hash(lanes, lanes.apply("xor", "i32", _hash(lanes, indices), seed))
    bits = lanes.apply("lshr", "i32", mixed, 8)
    if DATA_TYPES[dst].kind != "float":
        return _to_integer(lanes, value, element, dst, _complement(lanes, bits, element))
    if (element, dst) == ("float", "bf16"):
        return _to_bf16(lanes, value, bits)
    return _to_float(lanes, value, element, dst, _complement(lanes, bits, element))


def _hash(lanes: Lanes, value: str) -> str:
    """Append MurmurHash3's `fmix32` of 32-bit integers; return the result's name."""
    for shift, factor in ((16, 0x85EBCA6B), (13, 0xC2B2AE35)):
        value = lanes.apply("xor", "i32", value, lanes.apply("lshr", "i32", value, shift))
        value = lanes.apply("mul", "i32", value, factor)
    return lanes.apply("xor", "i32", value, lanes.apply("lshr", "i32", value, 16))


def _complement(lanes: Lanes, bits: str, element: str) -> str:
    """Append 1 - u for the 24 random bits of each lane; return its name."""
    u = lanes.apply("fmul", element, lanes.cast("uitofp", bits, "i32", element), 2.0**-24)
    return lanes.apply("fsub", element, 1.0, u)


def _to_integer(lanes: Lanes, value: str, element: str, dst: str, rest: str) -> str:
    """Append clamping to the range of `dst` and stochastic rounding to an integer; `rest` is 1 - u."""
    low, high = integer_bounds(element, dst)
    # A comparison with NaN is false, so a NaN is unchanged here; the conversion makes it 0.
    for limit, test in ((low, "fcmp olt"), (high, "fcmp ogt")):
        value = lanes.choose(lanes.apply(test, element, value, limit), element, limit, value)
    return lanes.call(
        "copysign", element, _round_steps(lanes, lanes.call("fabs", element, value), element, rest), value
    )


def _to_bf16(lanes: Lanes, value: str, bits: str) -> str:
    """Append rounding to bf16: its units are 2^16 codes of f32, including subnormals and the step to infinity."""
    code = lanes.cast("bitcast", value, "float", "i32")
    above = lanes.apply("add", "i32", code, lanes.apply("lshr", "i32", bits, 8))
    rounded = lanes.cast("bitcast", lanes.apply("and", "i32", above, 0xFFFF0000), "i32", "float")
    return lanes.choose(lanes.apply("fcmp uno", "float", value, value), "float", value, rounded)


_WORDS = {"float": ("i32", 23, 127), "double": ("i64", 52, 1023)}
"""For each LLVM type of the working type: the integer type of its bits, its mantissa bits, and its exponent bias."""


def _to_float(lanes: Lanes, value: str, element: str, dst: str, rest: str) -> str:
    """Append rounding to a narrower float type: scale to units of the last place, round, scale back."""
    word, mantissa, bias = _WORDS[element]
    form = FLOAT_FORMATS[dst]
    digits, lowest = form.mantissa_bits, form.lowest_exponent
    magnitude = lanes.call("fabs", element, value)
    code = lanes.cast("bitcast", magnitude, element, word)
    exponent = lanes.apply("lshr", word, code, mantissa)
    exponent = lanes.clamp(word, exponent, lowest + bias, predicate="icmp sgt")
    shifts = (lanes.apply("sub", word, 2 * bias + digits, exponent), lanes.apply("sub", word, exponent, digits))
    scale, step = (lanes.cast("bitcast", lanes.apply("shl", word, shift, mantissa), word, element) for shift in shifts)
    steps = _round_steps(lanes, lanes.apply("fmul", element, magnitude, scale), element, rest)
    rounded = lanes.call("copysign", element, lanes.apply("fmul", element, steps, step), value)
    is_finite = lanes.apply("fcmp olt", element, magnitude, float("inf"))
    return lanes.choose(is_finite, element, rounded, value)


def _round_steps(lanes: Lanes, exact: str, element: str, rest: str) -> str:
    """Append floor(exact + u) in a way that does not round the sum; `rest` is 1 - u."""
    below = lanes.call("floor", element, exact)
    goes_up = lanes.apply("fcmp oge", element, lanes.apply("fsub", element, exact, below), rest)
    return lanes.choose(goes_up, element, lanes.apply("fadd", element, below, 1.0), below)
