"""Post-operations of the products of few rows, as instructions on registers of results.

    eltwise     relu, linear, logistic, swish, gelu_erf, gelu_tanh
    binary      add, sub, mul and div with a matrix in row-major order, or with one row for all
    sum         the previous elements of the destination are added

Exponentials are those of Cephes' `expf`: reduction by powers of 2, and a polynomial. The error function has an error of
at most 1.5e-7. All functions propagate NaN, and have oneDNN's results for infinity: swish and Gelu of minus infinity
are NaN.

Source: Abramowitz and Stegun, "Handbook of Mathematical Functions", 7.1.26; Moshier, Cephes Mathematical Library.
"""

import struct
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import inf, log, log2, pi, sqrt
from types import MappingProxyType

from inlay.descriptor import MemoryDesc
from inlay.engines.inlay.winograd_code import Vectors
from inlay.errors import Unimplemented
from inlay.layout import Layout
from inlay.primitives.attributes import BinaryPostOp, EltwisePostOp, PostOp, SumPostOp
from inlay.reordering.ir import suffix

MOST_OPERANDS = 2
"""Most second operands of binary post-operations of one product."""


@dataclass(frozen=True, slots=True)
class PostOpCode:
    """A post-operation, as far as the machine code depends on it."""

    algorithm: str
    """A function, an operation with a second operand, or `sum`."""
    alpha: float = 0.0
    """First parameter of a function."""
    beta: float = 0.0
    """Second parameter of a function."""
    operand: str = ""
    """Data type of the second operand, f32 or bf16; empty without one."""


def parse_post_ops(
    post_ops: Sequence[PostOp], dst: MemoryDesc, is_operand: Callable[[MemoryDesc, MemoryDesc], bool]
) -> tuple[PostOpCode, ...]:
    """Return the code of each post-operation of a product whose result is `dst`.

    `is_operand` returns whether the machine code can read a second operand, for a given result.

    Raises:
        Unimplemented: the machine code does not support one.
    """
    codes = tuple(_parse(post_op, dst, is_operand) for post_op in post_ops)
    if sum(code.operand != "" and code.algorithm != "sum" for code in codes) > MOST_OPERANDS:
        raise Unimplemented(f"a product of few rows has at most {MOST_OPERANDS} second operands")
    return codes


def _parse(post_op: PostOp, dst: MemoryDesc, is_operand: Callable[[MemoryDesc, MemoryDesc], bool]) -> PostOpCode:
    """Return the code of one post-operation."""
    match post_op:
        case EltwisePostOp(algorithm=algorithm, alpha=alpha, beta=beta) if algorithm in _FUNCTIONS:
            return PostOpCode(algorithm, float(alpha), float(beta))
        case BinaryPostOp(algorithm=algorithm, src_1=src_1) if algorithm in _ARITHMETIC and is_operand(src_1, dst):
            return PostOpCode(algorithm, operand=str(src_1.data_type))
        case SumPostOp(scale=1.0, zero_point=0, data_type=None):
            return PostOpCode("sum", operand=str(dst.data_type))
    raise Unimplemented(f"a product of few rows has no post-operation {post_op}")


def find_operands(post_ops: Sequence[PostOp]) -> dict[str, MemoryDesc]:
    """Return the descriptor of each second operand of post-operations, by argument."""
    return {f"post_op_{i}_src_1": one.src_1 for i, one in enumerate(post_ops) if isinstance(one, BinaryPostOp)}


def is_matrix_operand(desc: MemoryDesc, dst: MemoryDesc) -> bool:
    """Return whether a second operand is a row-major matrix of the result's dims, or one row of it."""
    layout = desc.layout
    if str(desc.data_type) not in ("f32", "bf16") or desc.has_runtime or not isinstance(layout, Layout):
        return False
    is_plain = not any(axis.inner for axis in layout.axes) and desc.padded_dims == desc.dims
    return is_plain and desc.dims in (dst.dims, (1, dst.dims[1])) and desc.strides[1] == 1


def emit_post_op(vectors: Vectors, code: PostOpCode, value: str, operand: str) -> str:
    """Emit a post-operation on a register of results; `operand` is that of a second operand, as floats."""
    if code.operand:
        return vectors.binary(_ARITHMETIC[code.algorithm], value, operand)
    return _FUNCTIONS[code.algorithm](_Floats(vectors), code, value)


_ARITHMETIC: Mapping[str, str] = MappingProxyType(
    {"add": "fadd", "sum": "fadd", "sub": "fsub", "mul": "fmul", "div": "fdiv"}
)


class _Floats:
    """An emitter of arithmetic on registers and Python numbers."""

    def __init__(self, vectors: Vectors) -> None:
        """Emit to the function of `vectors`."""
        self.vectors, self.code, self.type = vectors, vectors.code, vectors.type

    def number(self, value: float) -> str:
        """Return a register with a number in each lane, as a constant."""
        (single,) = struct.unpack("f", struct.pack("f", value))
        (bits,) = struct.unpack("Q", struct.pack("d", single))
        return "<" + ", ".join([f"float 0x{bits:016X}"] * self.vectors.lanes) + ">"

    def apply(self, operation: str, a: str | float, b: str | float) -> str:
        """Emit fadd, fsub, fmul or fdiv."""
        return self.vectors.binary(operation, *(one if isinstance(one, str) else self.number(one) for one in (a, b)))

    def fma(self, a: str, b: str | float, c: str | float) -> str:
        """Emit a * b + c."""
        return self.vectors.fma(a, *(one if isinstance(one, str) else self.number(one) for one in (b, c)))

    def select(self, comparison: str, a: str, b: float, chosen: str, other: str) -> str:
        """Emit `chosen` in the lanes where a comparison of `a` with a number holds, and `other` elsewhere."""
        bools = f"<{self.vectors.lanes} x i1>"
        condition = self.code.let(f"fcmp {comparison} {self.type} {a}, {self.number(b)}")
        return self.code.let(f"select {bools} {condition}, {self.type} {chosen}, {self.type} {other}")

    def polynomial(self, x: str, coefficients: Sequence[float]) -> str:
        """Emit a polynomial, whose coefficients are those of the highest power first."""
        first, second, *rest = coefficients
        total = self.fma(x, first, second)
        for one in rest:
            total = self.fma(total, x, one)
        return total

    def exp(self, x: str) -> str:
        """Emit e to the power of x, at least e^-87 and at most e^88."""
        x = self.select("olt", x, -87.0, self.number(-87.0), x)
        x = self.select("ogt", x, _MOST_EXPONENT, self.number(_MOST_EXPONENT), x)
        rounded = self.code.call(
            f"llvm.rint.{suffix(self.type)}", self.type, (self.type, self.apply("fmul", x, _LOG2E))
        )
        rest = self.fma(rounded, -_LN2_LOW, self.fma(rounded, -_LN2_HIGH, x))
        power = self.fma(self.polynomial(rest, _EXP), self.apply("fmul", rest, rest), self.apply("fadd", rest, 1.0))
        integers = f"<{self.vectors.lanes} x i32>"
        name = f"llvm.fptosi.sat.{suffix(integers)}.{suffix(self.type)}"
        number = self.code.call(name, integers, (self.type, rounded))
        ones = "<" + ", ".join(["i32 {0}"] * self.vectors.lanes) + ">"
        biased = self.code.let(f"add {integers} {number}, {ones.format(127)}")
        bits = self.code.let(f"shl {integers} {biased}, {ones.format(23)}")
        return self.apply("fmul", power, self.code.let(f"bitcast {integers} {bits} to {self.type}"))

    def sigmoid_times(self, x: str, scaled: str) -> str:
        """Emit x / (1 + e^-scaled), which is NaN if x and e^-scaled are infinite."""
        exponent = self.code.let(f"fneg {self.type} {scaled}")
        power = self.select("ogt", exponent, _MOST_EXPONENT, self.number(inf), self.exp(exponent))
        return self.apply("fdiv", x, self.apply("fadd", power, 1.0))


_MOST_EXPONENT = 88.0  # the greatest float is e^88.7
_LOG2E = log2(2.718281828459045)
_LN2_HIGH = 0.693359375  # has few digits, so that its products with powers are exact
_LN2_LOW = log(2.0) - _LN2_HIGH
_EXP = (1.9875691500e-4, 1.3981999507e-3, 8.3334519073e-3, 4.1665795894e-2, 1.6666665459e-1, 5.0000001201e-1)
_ERF = (1.061405429, -1.453152027, 1.421413741, -0.284496736, 0.254829592)
_ERF_SCALE = 0.3275911


def _relu(floats: _Floats, code: PostOpCode, x: str) -> str:
    """Emit alpha x where x is negative, else x; 0 for minus infinity too if alpha is 0."""
    small = floats.apply("fmul", x, code.alpha) if code.alpha else floats.number(0.0)
    return floats.select("olt", x, 0.0, small, x)


def _linear(floats: _Floats, code: PostOpCode, x: str) -> str:
    """Emit alpha x + beta."""
    return floats.fma(x, code.alpha, code.beta)


def _logistic(floats: _Floats, code: PostOpCode, x: str) -> str:
    """Emit 1 / (1 + e^-x)."""
    return floats.sigmoid_times(floats.number(1.0), x)


def _swish(floats: _Floats, code: PostOpCode, x: str) -> str:
    """Emit x / (1 + e^(-alpha x))."""
    return floats.sigmoid_times(x, floats.apply("fmul", x, code.alpha))


def _gelu_tanh(floats: _Floats, code: PostOpCode, x: str) -> str:
    """Emit x / (1 + e^-2u), where u = sqrt(2 / pi) (x + 0.044715 x^3)."""
    scale = 2 * sqrt(2 / pi)
    factor = floats.fma(floats.apply("fmul", x, x), scale * 0.044715, scale)
    return floats.sigmoid_times(x, floats.apply("fmul", factor, x))


def _gelu_erf(floats: _Floats, code: PostOpCode, x: str) -> str:
    """Emit x (1 + erf(x / sqrt(2))) / 2, by the complement of the error function of |x|."""
    kind = floats.type
    z = floats.code.call(f"llvm.fabs.{suffix(kind)}", kind, (kind, floats.apply("fmul", x, sqrt(0.5))))
    t = floats.apply("fdiv", 1.0, floats.fma(z, _ERF_SCALE, 1.0))
    power = floats.exp(floats.code.let(f"fneg {kind} {floats.apply('fmul', z, z)}"))
    scaled = floats.apply("fmul", floats.apply("fmul", floats.polynomial(t, _ERF), t), power)
    tail = floats.apply("fmul", scaled, 0.5)
    return floats.apply("fmul", x, floats.select("ogt", x, 0.0, floats.apply("fsub", 1.0, tail), tail))


_FUNCTIONS: Mapping[str, Callable[[_Floats, PostOpCode, str], str]] = MappingProxyType(
    {
        "relu": _relu,
        "linear": _linear,
        "logistic": _logistic,
        "swish": _swish,
        "gelu_erf": _gelu_erf,
        "gelu_tanh": _gelu_tanh,
    }
)
"""The functions that are computed, by algorithm."""
