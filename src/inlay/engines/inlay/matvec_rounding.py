"""Products of integers of 4 bits with a source that is rounded to integers of 8 bits, in groups of the weights' rows.

    scale = max |x| / 127;   q = x / scale, rounded to nearest even       for each row and group of the source
    scale * weights_scale * (sum(weights * q) - zero_point * sum(q))      for each column, added over the groups

It is the rounding of ONNX Runtime's MatMulNBits with `accuracy_level` 4. Each thread rounds all rows for itself, into a
buffer of its own, so that no thread waits for another one. The buffer of a row has a record for each group:

    scale f32 | sum of the integers s32 | integers s8, of each 8 the even ones before the odd ones

A register of weights has 8 rows of a column in each lane. Its even rows are the lower halves of the bytes, its odd rows
are the upper ones. An instruction of VNNI multiplies the four bytes of a lane by four bytes of the source, and adds the
products. Sums of integers are exact. A group of the source with NaN or infinity makes the whole row of results NaN.

Source: ONNX Runtime, "Contrib Operators": MatMulNBits; Intel, "Intel 64 and IA-32 Architectures Software Developer's
Manual": VPDPBUSD.
"""

from inlay.engines.inlay.winograd_code import Vectors
from inlay.reordering.ir import Code
from inlay.reordering.target import TargetMachine

RECORD = 8
"""Bytes of a record before its integers: the scale and the sum."""
MOST_GROUP = 1 << 16
"""Most rows of a group: sums of so many products of integers of 4 and 8 bits fit 32 bits."""
ROUND = "round_source"
"""Name of the function that rounds the source."""
_ROW = 8  # elements that are rounded together: a step
_FLOATS, _INTEGERS, _BYTES = (f"<{_ROW} x {kind}>" for kind in ("float", "i32", "i8"))
_SIGNED_OFFSET = 8  # added to integers with a sign, so that they have none


def can_round(target: TargetMachine) -> bool:
    """Return whether a target multiplies bytes and adds the products in one instruction, on the registers that it uses.

    >>> from inlay.reordering.target import TARGETS
    >>> can_round(TARGETS["x86-64-v4"])
    False
    """
    features = target.features.split(",")
    wide = {"+avx512vnni", "+avx512vl"} <= set(features)
    return {64: wide, 32: wide or "+avxvnni" in features}.get(target.vector_bytes, False)


def rounded_nbytes(inner: int, group: int) -> int:
    """Return the bytes of a row of a rounded source.

    >>> rounded_nbytes(64, 32)
    80
    """
    return inner + inner // group * RECORD


def emit_rounding(code: Code, rows: int, source: str, stride: str, groups: str, steps: str) -> str:
    """Emit the body of the function that rounds the source into `%rounded`; return its head.

    Args:
        code: the function, of which `%table` is the first parameter.
        rows: number of rows of the source.
        source: address of the first row.
        stride: bytes between rows.
        groups: number of groups.
        steps: number of steps of 8 elements in a group.
    """
    record_nbytes = code.let(f"add i64 {code.let(f'mul i64 {steps}, {_ROW}')}, {RECORD}")
    group_nbytes = code.let(f"mul i64 {steps}, {4 * _ROW}")
    with code.loop("row", rows) as row, code.loop("group", groups) as group:
        line = code.byte(source, code.let(f"mul i64 {row}, {stride}"))
        x = code.byte(line, code.let(f"mul i64 {group}, {group_nbytes}"))
        number = code.let(f"add i64 {code.let(f'mul i64 {row}, {groups}')}, {group}")
        record = code.byte("%rounded", code.let(f"mul i64 {number}, {record_nbytes}"))
        scale, inverse = _emit_scale(code, x, steps)
        code.do(f"store float {scale}, ptr {record}, align 4")
        total = _emit_integers(code, x, code.byte(record, RECORD), inverse, steps)
        code.do(f"store i32 {total}, ptr {code.byte(record, 4)}, align 4")
    return f"define internal void @{ROUND}(ptr %table, ptr %rounded)"


def _emit_scale(code: Code, x: str, steps: str) -> tuple[str, str]:
    """Emit the scale of a group, and its inverse, which is 0 if the scale is.

    Magnitudes are compared as integers: NaN is the largest, then infinity.
    """
    _begin(code, "largest", _INTEGERS)
    bits = code.let(f"load {_INTEGERS}, ptr {code.byte(x, _product(code, '%largest.index', 4 * _ROW))}, align 4")
    magnitude = code.let(f"and {_INTEGERS} {bits}, {_splat('i32', 0x7FFFFFFF)}")
    pair = (_INTEGERS, "%largest.value"), (_INTEGERS, magnitude)
    _end(code, "largest", _INTEGERS, code.call(f"llvm.umax.v{_ROW}i32", _INTEGERS, *pair), steps)
    largest = code.call(f"llvm.vector.reduce.umax.v{_ROW}i32", "i32", (_INTEGERS, "%largest.result"))
    scale = code.let(f"fdiv float {code.let(f'bitcast i32 {largest} to float')}, 127.0")
    is_zero = code.let(f"fcmp oeq float {scale}, 0.0")
    inverse = code.let(f"fdiv float 1.0, {scale}")
    return scale, code.let(f"select i1 {is_zero}, float 0.0, float {inverse}")


def _emit_integers(code: Code, x: str, integers: str, inverse: str, steps: str) -> str:
    """Emit the rounding of a group to the address `integers`; return the sum."""
    one = code.let(f"insertelement {_FLOATS} poison, float {inverse}, i32 0")
    factor = code.let(f"shufflevector {_FLOATS} {one}, {_FLOATS} poison, <{_ROW} x i32> zeroinitializer")
    _begin(code, "sum", _INTEGERS)
    floats = code.let(f"load {_FLOATS}, ptr {code.byte(x, _product(code, '%sum.index', 4 * _ROW))}, align 4")
    scaled = code.let(f"fmul {_FLOATS} {floats}, {factor}")
    whole = code.call(f"llvm.rint.v{_ROW}f32", _FLOATS, (_FLOATS, scaled))
    narrow = code.call(f"llvm.fptosi.sat.v{_ROW}i8.v{_ROW}f32", _BYTES, (_FLOATS, whole))
    order = ", ".join(f"i32 {k}" for k in (*range(0, _ROW, 2), *range(1, _ROW, 2)))
    turned = code.let(f"shufflevector {_BYTES} {narrow}, {_BYTES} poison, <{_ROW} x i32> <{order}>")
    code.do(f"store {_BYTES} {turned}, ptr {code.byte(integers, _product(code, '%sum.index', _ROW))}, align 1")
    wide = code.let(f"sext {_BYTES} {narrow} to {_INTEGERS}")
    _end(code, "sum", _INTEGERS, code.let(f"add {_INTEGERS} %sum.value, {wide}"), steps)
    return code.call(f"llvm.vector.reduce.add.v{_ROW}i32", "i32", (_INTEGERS, "%sum.result"))


def _begin(code: Code, name: str, kind: str) -> None:
    """Begin a loop that carries a value, 0 at first: `%name.value`; its index is `%name.index`."""
    code.do(f"br label %{name}.before")
    code.label(f"{name}.before")
    code.do(f"br label %{name}")
    code.label(name)
    code.do(f"%{name}.index = phi i64 [0, %{name}.before], [%{name}.next, %{name}]")
    code.do(f"%{name}.value = phi {kind} [zeroinitializer, %{name}.before], [%{name}.result, %{name}]")


def _end(code: Code, name: str, kind: str, value: str, count: str) -> None:
    """End the loop after `count` iterations; the value carried on is `%name.result` after it."""
    code.do(f"%{name}.result = select i1 true, {kind} {value}, {kind} {value}")
    code.do(f"%{name}.next = add i64 %{name}.index, 1")
    code.do(f"%{name}.more = icmp ult i64 %{name}.next, {count}")
    code.do(f"br i1 %{name}.more, label %{name}, label %{name}.done")
    code.label(f"{name}.done")


def _product(code: Code, value: str, factor: int) -> str:
    """Emit a value times a number."""
    return code.let(f"mul i64 {value}, {factor}")


def _splat(element: str, value: int, lanes: int = _ROW) -> str:
    """Return the text of a constant vector with equal lanes."""
    return "<" + ", ".join([f"{element} {value}"] * lanes) + ">"


class RoundedRow:
    """The record of a row of the rounded source, for one group."""

    def __init__(self, code: Code, vectors: Vectors, row: int, groups: str, steps: str) -> None:
        """Emit the address of the record of row `row` and group `%g`, and loads of its scale and sum into all lanes."""
        self._code, self._kind = code, f"<{vectors.lanes} x i32>"
        nbytes = code.let(f"add i64 {_product(code, steps, _ROW)}, {RECORD}")
        number = code.let(f"add i64 {code.let(f'mul i64 {groups}, {row}')}, %g")
        self._record = code.byte("%rounded", code.let(f"mul i64 {number}, {nbytes}"))
        self.scale = vectors.splat(code.let(f"load float, ptr {self._record}, align 4"))
        self._sum = self._splat(code.let(f"load i32, ptr {code.byte(self._record, 4)}, align 4"))
        self.sum = code.let(f"sitofp {self._kind} {self._sum} to {vectors.type}")

    def first_value(self, is_signed: bool) -> str:
        """Emit the sum's first value, which corrects the offset of integers with a sign; return it."""
        if not is_signed:
            return "zeroinitializer"
        lanes = int(self._kind.strip("<").split(" x ")[0])
        offset = _splat("i32", -_SIGNED_OFFSET, lanes)
        return self._code.let(f"mul {self._kind} {self._sum}, {offset}")

    def load(self, half: int) -> str:
        """Emit a load of the even (0) or odd (1) integers of step `%s`, into all lanes."""
        step = self._code.byte(self._record, _product(self._code, "%s", _ROW))
        return self._splat(self._code.let(f"load i32, ptr {self._code.byte(step, RECORD + 4 * half)}, align 1"))

    def _splat(self, value: str) -> str:
        """Emit a broadcast of 32 bits."""
        kind, lanes = self._kind, self._kind.split(" x ")[0]
        one = self._code.let(f"insertelement {kind} poison, i32 {value}, i32 0")
        return self._code.let(f"shufflevector {kind} {one}, {kind} poison, {lanes} x i32> zeroinitializer")


def emit_half(code: Code, lanes: int, bits: str, half: int, is_signed: bool) -> str:
    """Emit the even (0) or odd (1) rows of weights of 4 bits as bytes without a sign."""
    kind = f"<{lanes} x i32>"
    value = code.let(f"lshr {kind} {bits}, {_splat('i32', 4, lanes)}") if half else bits
    low = code.let(f"and {kind} {value}, {_splat('i32', 0x0F0F0F0F, lanes)}")
    return code.let(f"xor {kind} {low}, {_splat('i32', 0x08080808, lanes)}") if is_signed else low


def emit_dot(code: Code, lanes: int, total: str, weights: str, source: str) -> str:
    """Emit the sums of four products of bytes without and with a sign in each lane, added to `total`."""
    kind = f"<{lanes} x i32>"
    name = f"llvm.x86.avx512.vpdpbusd.{32 * lanes}"
    return code.call(name, kind, (kind, total), (kind, weights), (kind, source))
