"""Conversions of whole registers, as LLVM IR.

Every conversion goes through f32, as oneDNN's formula does: the source type is widened exactly, then the destination
type is rounded to nearest, ties to even. Integers clamp first; a NaN becomes 0 (oneDNN leaves it to the
implementation). The s32 bound is 2147483520, the largest f32 below 2^31. bf16 is rounded by integer arithmetic:
the instruction for it would flush subnormals.
"""

from collections.abc import Callable, Mapping
from types import MappingProxyType

from inlay.reordering.ir import Code

LLVM_TYPES: Mapping[str, str] = MappingProxyType(
    {
        "i8": "i8",
        "i16": "i16",
        "i32": "i32",
        "i64": "i64",
        "f32": "float",
        "bf16": "i16",
        "f16": "half",
        "s32": "i32",
        "s8": "i8",
        "u8": "i8",
    }
)
"""The LLVM type in which elements are loaded, shuffled and stored."""

_BOUNDS = {"s32": (-2147483648.0, 2147483520.0), "s8": (-128.0, 127.0), "u8": (0.0, 255.0)}


def convert(code: Code, value: str, src: str, dst: str, lanes: int) -> str:
    """Append the conversion of the register `value` of `lanes` elements; the name of the result."""
    if src == dst:
        return value
    return _FROM_F32[dst](code, _TO_F32[src](code, value, lanes), lanes)


def _same(code: Code, value: str, lanes: int) -> str:
    return value


def _from_bf16(code: Code, value: str, lanes: int) -> str:
    wide = code.let(f"zext <{lanes} x i16> {value} to <{lanes} x i32>")
    high = code.let(f"shl <{lanes} x i32> {wide}, splat (i32 16)")
    return code.let(f"bitcast <{lanes} x i32> {high} to <{lanes} x float>")


def _to_bf16(code: Code, value: str, lanes: int) -> str:
    v32, v16 = f"<{lanes} x i32>", f"<{lanes} x i16>"
    bits = code.let(f"bitcast <{lanes} x float> {value} to {v32}")
    top = code.let(f"lshr {v32} {bits}, splat (i32 16)")
    odd = code.let(f"and {v32} {top}, splat (i32 1)")
    half = code.let(f"add {v32} {odd}, splat (i32 32767)")
    sum_ = code.let(f"add {v32} {bits}, {half}")
    rounded = code.let(f"lshr {v32} {sum_}, splat (i32 16)")
    quiet = code.let(f"or {v32} {top}, splat (i32 64)")
    nan = code.let(f"fcmp uno <{lanes} x float> {value}, {value}")
    chosen = code.let(f"select <{lanes} x i1> {nan}, {v32} {quiet}, {v32} {rounded}")
    return code.let(f"trunc {v32} {chosen} to {v16}")


def _from_f16(code: Code, value: str, lanes: int) -> str:
    return code.let(f"fpext <{lanes} x half> {value} to <{lanes} x float>")


def _to_f16(code: Code, value: str, lanes: int) -> str:
    return code.let(f"fptrunc <{lanes} x float> {value} to <{lanes} x half>")


def _from_integer(name: str) -> Callable[[Code, str, int], str]:
    def widen(code: Code, value: str, lanes: int) -> str:
        operation = "uitofp" if name.startswith("u") else "sitofp"
        return code.let(f"{operation} <{lanes} x {LLVM_TYPES[name]}> {value} to <{lanes} x float>")

    return widen


def _to_integer(name: str) -> Callable[[Code, str, int], str]:
    def narrow(code: Code, value: str, lanes: int) -> str:
        vector = f"<{lanes} x float>"
        low, high = (f"splat (float {bound:.1f})" for bound in _BOUNDS[name])
        number = code.let(f"fcmp ord {vector} {value}, {value}")
        value = code.let(f"select <{lanes} x i1> {number}, {vector} {value}, {vector} zeroinitializer")
        above = code.let(f"fcmp ogt {vector} {value}, {low}")
        value = code.let(f"select <{lanes} x i1> {above}, {vector} {value}, {vector} {low}")
        below = code.let(f"fcmp olt {vector} {value}, {high}")
        value = code.let(f"select <{lanes} x i1> {below}, {vector} {value}, {vector} {high}")
        rounded = code.intrinsic(f"llvm.roundeven.v{lanes}f32", vector, vector, value)
        whole = code.let(f"fptosi {vector} {rounded} to <{lanes} x i32>")
        if LLVM_TYPES[name] == "i32":
            return whole
        return code.let(f"trunc <{lanes} x i32> {whole} to <{lanes} x {LLVM_TYPES[name]}>")

    return narrow


_INTEGERS = ("s32", "s8", "u8")
_TO_F32 = {"f32": _same, "bf16": _from_bf16, "f16": _from_f16, **{name: _from_integer(name) for name in _INTEGERS}}
_FROM_F32 = {"f32": _same, "bf16": _to_bf16, "f16": _to_f16, **{name: _to_integer(name) for name in _INTEGERS}}
