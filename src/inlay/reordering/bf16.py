"""From f32 to bf16, as LLVM IR: the upper half of the bits, rounded to nearest, ties to even.

Integer arithmetic does it in nine operations. Processors with AVX512_BF16 have one instruction for two registers, but
it takes every subnormal for zero. So registers are looked at first, and only those with a subnormal among their lanes
are rounded by integer arithmetic, in a function that keeps all registers of its caller.
"""

from inlay.reordering.ir import Code
from inlay.reordering.lanes import Lanes, shuffle_mask

_IS_SUBNORMAL = "llvm.x86.avx512.fpclass.ps.512"
_SUBNORMAL = 32  # the class, as the instruction numbers them
_PAIR, _SINGLE = "llvm.x86.avx512bf16.cvtne2ps2bf16.512", "llvm.x86.avx512bf16.cvtneps2bf16.512"


def bf16_of(lanes: Lanes, value: str) -> str:
    """The bf16 codes of a register of f32."""
    if not lanes.arithmetic.bf16 or lanes.count not in (16, 32):
        return rounded_bf16(lanes, value)
    code = lanes.code
    halves = [_sixteen(lanes, value, first) for first in range(0, lanes.count, 16)]
    masks = [code.call(_IS_SUBNORMAL, "<16 x i1>", ("<16 x float>", half), ("i32", str(_SUBNORMAL))) for half in halves]
    any_ = masks[0] if len(masks) == 1 else code.let(f"or <16 x i1> {masks[0]}, {masks[1]}")
    count = code.let(f"bitcast <16 x i1> {any_} to i16")
    is_rare = code.let(f"icmp ne i16 {count}, 0")
    here, rare, done = (f"{count[1:]}.{name}" for name in ("here", "rare", "done"))
    code.do(f"br label %{here}")
    code.label(here)
    bf16 = f"<{lanes.count} x bfloat>"
    name = _SINGLE if len(halves) == 1 else _PAIR
    fast = code.call(name, bf16, *(("<16 x float>", half) for half in reversed(halves)))
    fast = code.let(f"bitcast {bf16} {fast} to {lanes.of('i16')}")
    code.do(f"br i1 {is_rare}, label %{rare}, label %{done}")
    code.label(rare)
    exact = code.let(f"call preserve_allcc {lanes.of('i16')} @{_slow_function(lanes)}({lanes.of('float')} {value})")
    code.do(f"br label %{done}")
    code.label(done)
    return code.let(f"phi {lanes.of('i16')} [{fast}, %{here}], [{exact}, %{rare}]")


def _sixteen(lanes: Lanes, value: str, first: int) -> str:
    """Sixteen lanes of a register, from number `first` on."""
    if lanes.count == 16:
        return value
    vector, chosen = lanes.of("float"), shuffle_mask(range(first, first + 16))
    return lanes.code.let(f"shufflevector {vector} {value}, {vector} poison, {chosen}")


def _slow_function(lanes: Lanes) -> str:
    """The function that rounds by integer arithmetic, defined beside the caller."""
    inner = Code()
    name = f"bf16.of.{lanes.count}.subnormals"
    result = rounded_bf16(Lanes(inner, lanes.count, lanes.arithmetic), "%value")
    inner.do(f"ret {lanes.of('i16')} {result}")
    head = f"define internal preserve_allcc {lanes.of('i16')} @{name}({lanes.of('float')} %value) noinline #0"
    lanes.code.declarations |= {*inner.declarations, head + " {\n" + "\n".join(inner.lines) + "\n}"}
    return name


def rounded_bf16(lanes: Lanes, value: str) -> str:
    """The bf16 codes of a register of f32, by integer arithmetic."""
    bits = lanes.cast("bitcast", value, "float", "i32")
    odd = lanes.apply("and", "i32", lanes.apply("lshr", "i32", bits, 16), 1)
    rounded = lanes.apply("add", "i32", lanes.apply("add", "i32", bits, 0x7FFF), odd)
    nan = lanes.test("fcmp uno", "float", value, value)
    rounded = lanes.choose(nan, "i32", lanes.apply("or", "i32", bits, 1 << 22), rounded)
    return upper_half(lanes, lanes.cast("bitcast", rounded, "i32", "float"))


def upper_half(lanes: Lanes, value: str) -> str:
    """The bf16 codes of a register of f32 that are exact in bf16, as all numbers of at most 8 bits are."""
    bits = lanes.cast("bitcast", value, "float", "i32")
    return lanes.narrow(lanes.apply("lshr", "i32", bits, 16), "i32", "i16")
