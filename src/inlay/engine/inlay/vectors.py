"""Registers of floats in a function, and their products with small matrices of constants."""

from collections.abc import Sequence
from dataclasses import dataclass

from inlay.reordering.ir import Code, suffix


@dataclass(frozen=True, slots=True)
class Registers:
    """What the code depends on, beside the target."""

    lanes: int
    """Floats of a register."""
    panel: int
    """Most vectors of a tile of registers."""

    @property
    def columns(self) -> int:
        """Channels of a whole panel of the weights."""
        return self.lanes * self.panel

    def panels(self, channels: int) -> int:
        """Panels of so many channels, the last one as wide as it must be."""
        return -(-channels // self.columns)


class Vectors:
    """Arithmetic of registers in a function."""

    def __init__(self, code: Code, registers: Registers) -> None:
        """Write to `code`."""
        self.code, self.lanes = code, registers.lanes
        self.type = f"<{registers.lanes} x float>"
        self.bytes = 4 * registers.lanes

    def load(self, address: str, offset: int = 0) -> str:
        """The vector `offset` vectors after an address."""
        at = self.code.byte(address, offset * self.bytes) if offset else address
        return self.code.let(f"load {self.type}, ptr {at}, align 4")

    def store(self, value: str, address: str) -> None:
        """Store a vector."""
        self.code.do(f"store {self.type} {value}, ptr {address}, align 4")

    def splat(self, value: str) -> str:
        """A register of equal floats."""
        one = self.code.let(f"insertelement {self.type} poison, float {value}, i32 0")
        zeros = f"<{self.lanes} x i32> zeroinitializer"
        return self.code.let(f"shufflevector {self.type} {one}, {self.type} poison, {zeros}")

    def fma(self, a: str, b: str, c: str) -> str:
        """a * b + c, rounded once."""
        return self.code.let(self.fma_call(a, b, c))

    def fma_call(self, a: str, b: str, c: str) -> str:
        """The same, for a result that has its name already."""
        name = f"llvm.fma.{suffix(self.type)}"
        self.code.declarations.add(f"declare {self.type} @{name}({', '.join([self.type] * 3)})")
        return f"call {self.type} @{name}({', '.join(f'{self.type} {value}' for value in (a, b, c))})"

    def two(self, operation: str, a: str, b: str) -> str:
        """`fadd`, `fsub` or `fmul`."""
        return self.code.let(f"{operation} {self.type} {a}, {b}")


def constants(vectors: Vectors, matrix: Sequence[Sequence[float]]) -> dict[float, str]:
    """A register for each factor of a matrix that is neither 0 nor 1 nor -1."""
    factors = sorted({abs(value) for row in matrix for value in row} - {0.0, 1.0})
    signed = [sign * value for value in factors for sign in (1.0, -1.0)]
    return {value: vectors.splat(repr(value)) for value in signed}


def transformed(
    vectors: Vectors, matrix: Sequence[Sequence[float]], splats: dict[float, str], values: Sequence[str]
) -> list[str]:
    """The product of a matrix and vectors: rows that differ in the signs of odd columns share their sums."""
    found: dict[int, str] = {}
    for i, row in enumerate(matrix):
        if i in found:
            continue
        twin = next((k for k in range(i + 1, len(matrix)) if _is_twin(row, matrix[k])), None)
        if twin is None:
            found[i] = _sum(vectors, splats, [(f, v) for f, v in zip(row, values, strict=True) if f])
            continue
        both = [(f, v) for k, (f, v) in enumerate(zip(row, values, strict=True)) if f and k % 2 == 0]
        odd = [(f, v) for k, (f, v) in enumerate(zip(row, values, strict=True)) if f and k % 2 == 1]
        even_sum, odd_sum = _sum(vectors, splats, both), _sum(vectors, splats, odd)
        found[i], found[twin] = vectors.two("fadd", even_sum, odd_sum), vectors.two("fsub", even_sum, odd_sum)
    return [found[i] for i in range(len(matrix))]


def paired(vectors: Vectors, values: Sequence[str]) -> list[str]:
    """Sums and differences of the values at p and -p, which is all that `A_PAIRED` needs of them."""
    zero, p, minus_p, q, minus_q, infinity = values
    both = [vectors.two(operation, *pair) for pair in ((p, minus_p), (q, minus_q)) for operation in ("fadd", "fsub")]
    return [zero, *both, infinity]


def _is_twin(row: Sequence[float], other: Sequence[float]) -> bool:
    signs = [-1.0 if k % 2 else 1.0 for k in range(len(row))]
    return any(row[1::2]) and list(other) == [sign * value for sign, value in zip(signs, row, strict=True)]


def _sum(vectors: Vectors, splats: dict[float, str], terms: Sequence[tuple[float, str]]) -> str:
    """The sum of factors times vectors, those of factor 1 first."""
    (factor, total), *rest = sorted(terms, key=lambda term: (term[0] != 1.0, abs(term[0]) != 1.0))
    if factor != 1.0:
        total = vectors.two("fmul", splats[factor], total)
    for factor, value in rest:
        if abs(factor) == 1.0:
            total = vectors.two("fadd" if factor > 0 else "fsub", total, value)
        else:
            total = vectors.fma(splats[factor], value, total)
    return total
