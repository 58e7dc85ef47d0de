"""The machine code of a product of few rows with a matrix, generated as LLVM IR: a module for each `MatvecCode`.

    inlay_matvec(table, threads)      runs `work` on so many threads of a team; the words of the table are `MatvecWord`
    work(table)                       the part of the calling thread

A thread computes a contiguous range of strips of columns. It reads the weights of a strip once for at most `MOST_ROWS`
rows of the source. The weights have a blocked format, see `weights_tag`: a panel of columns after the other, and in
each panel `STEP` rows after the other. A register that is loaded from weights of 4 bits has a column in each lane, with
the elements of `STEP` rows in its 32 bits. One that is loaded from bf16 weights has elements of two rows in a lane.

Weights are multiplied as integers, and a group's sum is scaled: scale * (sum(x q) - zero_point * sum(x)). For several
rows of the source and zero points, weights are scaled as they are read: q * scale - zero_point * scale. If the
operation allows it, the source is rounded to integers, see `matvec_rounding`.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import IntEnum, auto
from functools import partial

from inlay.engines.inlay.matvec_post_ops import PostOpCode, emit_post_op
from inlay.engines.inlay.matvec_rounding import ROUND, RoundedRow, emit_dot, emit_half, emit_rounding
from inlay.engines.inlay.team_code import TEAM_WORK, build_team_module, emit_openmp_call, emit_part, emit_pointer
from inlay.engines.inlay.winograd_code import Registers, Vectors
from inlay.primitives.panel_weights import MOST_ROWS, panel_tag
from inlay.reordering.ir import Code

STEP = 8
"""Rows of the weights that one iteration multiplies; it divides the number of rows, and the rows of a group."""
ENTRY = "inlay_matvec"
"""Name of the exported function."""
_AHEAD = 2  # strips between a prefetch of scales and their use
_MOST_LANES = 16


class MatvecWord(IntEnum):
    """The words of the call table; strides are in bytes."""

    def _generate_next_value_(name, start, count, last_values):  # type: ignore[no-untyped-def,override] # noqa: N805
        return count

    SRC = auto()
    WEIGHTS = auto()
    SCALES = auto()
    ZERO_POINTS = auto()
    BIAS = auto()
    DST = auto()
    OPERAND_0 = auto()
    OPERAND_1 = auto()
    OPERAND_0_STRIDE = auto()
    OPERAND_1_STRIDE = auto()
    SRC_STRIDE = auto()
    DST_STRIDE = auto()
    ROUNDED = auto()
    ROUNDED_STRIDE = auto()
    VALUES_STRIDE = auto()
    PANEL_STRIDE = auto()
    BLOCKS = auto()
    COLUMNS = auto()
    STRIPS = auto()
    GROUPS = auto()
    STEPS = auto()
    PARALLEL = auto()
    THREAD_NUM = auto()
    NUM_THREADS = auto()


@dataclass(frozen=True, slots=True)
class MatvecCode:
    """The parameters of a module, apart from the target."""

    weights: str
    """Data type of the weights: s4, u4, s8, u8, bf16 or f32."""
    rows: int
    """Rows of the source that are computed together, at most `MOST_ROWS`."""
    rest: int
    """Rows of the last block of rows; 0 if it has `rows` too."""
    has_scales: bool
    """True if the weights have scales in groups."""
    has_zero_points: bool
    """True if the weights have zero points in groups."""
    has_bias: bool
    """True if there is a bias."""
    src: str
    """Data type of the source: f32 or bf16."""
    dst: str
    """Data type of the destination: f32 or bf16."""
    post_ops: tuple[PostOpCode, ...]
    """The post-operations."""
    registers: Registers
    """Lanes of a register, and registers in a row of a panel."""
    rounds_source: bool = False
    """True if the source is rounded to integers; the weights have 4 bits then."""

    @property
    def is_packed(self) -> bool:
        """True if the weights have 4 bits."""
        return self.weights in ("s4", "u4")

    @property
    def width(self) -> int:
        """The number of registers in a row of a strip, which a panel has one or more of."""
        panel = self.registers.panel
        if self.registers.lanes < _MOST_LANES:
            return panel if self.rows == 1 else max(1, panel // (2 if self.rows <= MOST_ROWS // 2 else 4))
        return panel if self.rows <= MOST_ROWS // 2 else max(1, panel // 2)

    @property
    def bits(self) -> int:
        """The number of bits of an element of the weights."""
        return {"s4": 4, "u4": 4, "s8": 8, "u8": 8, "bf16": 16, "f32": 32}[self.weights]

    @property
    def dst_width(self) -> int:
        """Bytes of an element of the destination."""
        return _width(self.dst)

    @property
    def step_nbytes(self) -> int:
        """Bytes of `STEP` rows of a panel of the weights."""
        return STEP * self.registers.columns * self.bits // 8


def weights_tag(weights: str, columns: int) -> str:
    """Return the format of weights whose panels have so many columns.

    >>> weights_tag("s4", 64), weights_tag("f32", 64)
    ('BA64b8a', 'Ba64b')
    """
    packed = f"BA{columns}b{STEP}a" if weights in ("s4", "u4") else f"Ba{columns}b"
    return panel_tag("matmul", weights, columns) or packed


def build_module(kernel: MatvecCode, attributes: str) -> str:
    """Return the LLVM IR of the module; `attributes` are the function attributes of the target."""
    blocks = [partial(_emit_block, kernel=kernel, rows=rows) for rows in sorted({kernel.rows, kernel.rest} - {0})]
    blocks += [partial(_emit_source, kernel=kernel)] if kernel.rounds_source else []
    emitters = (*blocks, partial(_emit_work, kernel=kernel))
    return build_team_module(emitters, ENTRY, MatvecWord.PARALLEL, attributes)


# The work of a thread


def _emit_work(code: Code, kernel: MatvecCode) -> str:
    """Emit the function that computes the strips of the calling thread, for one block of rows after another."""
    thread, threads = (emit_openmp_call(code, word) for word in (MatvecWord.THREAD_NUM, MatvecWord.NUM_THREADS))
    strips, blocks = (code.load_word("%table", word) for word in (MatvecWord.STRIPS, MatvecWord.BLOCKS))
    begin, end = emit_part(code, strips, threads, thread)
    count = code.let(f"sub i64 {end}, {begin}")
    code.do(f"%is_idle = icmp eq i64 {count}, 0")
    code.do("br i1 %is_idle, label %exit, label %work")
    code.label("work")
    rounded = _emit_rounded(code, thread) if kernel.rounds_source else "null"
    with code.loop("strip", count) as relative:
        strip = code.let(f"add i64 {begin}, {relative}")
        with code.loop("rows", blocks) as block:
            _emit_block_call(code, kernel, rounded, strip, block, blocks)
    code.do("br label %exit")
    code.label("exit")
    return f"define internal void @{TEAM_WORK}(ptr %table)"


def _emit_rounded(code: Code, thread: str) -> str:
    """Emit the rounding of the source into the buffer of a thread, and return its address."""
    offset = code.let(f"mul i64 {thread}, {code.load_word('%table', MatvecWord.ROUNDED_STRIDE)}")
    rounded = code.byte(emit_pointer(code, MatvecWord.ROUNDED), offset)
    code.do(f"call void @{ROUND}(ptr %table, ptr {rounded})")
    return rounded


def _emit_source(code: Code, kernel: MatvecCode) -> str:
    """Emit the function that rounds the source, and return its head."""
    words = (MatvecWord.SRC_STRIDE, MatvecWord.GROUPS, MatvecWord.STEPS)
    stride, groups, steps = (code.load_word("%table", word) for word in words)
    return emit_rounding(code, kernel.rows, emit_pointer(code, MatvecWord.SRC), stride, groups, steps)


def _emit_block_call(code: Code, kernel: MatvecCode, rounded: str, strip: str, block: str, blocks: str) -> None:
    """Emit a call of the function for the rows of a block, which are fewer in the last one."""
    name = f"@rows{kernel.rows}"
    if kernel.rest:
        last = code.let(f"sub i64 {blocks}, 1")
        is_last = code.let(f"icmp eq i64 {block}, {last}")
        name = code.let(f"select i1 {is_last}, ptr @rows{kernel.rest}, ptr @rows{kernel.rows}")
    code.do(f"call void {name}(ptr %table, ptr {rounded}, i64 {strip}, i64 {block})")


# A block of rows times a strip of columns


class _Strip:
    """The values that the code of one block of rows uses throughout."""

    def __init__(self, code: Code, kernel: MatvecCode, rows: int) -> None:
        """Emit them."""
        self.code, self.kernel, self.rows = code, kernel, rows
        registers = kernel.registers
        self.vectors = Vectors(code, registers)
        self.lanes, self.width = registers.lanes, kernel.width
        self.integers = f"<{self.lanes} x i32>"
        parts = registers.panel // self.width
        column = code.let(f"mul i64 %strip, {self.width * self.lanes}")
        self.column_bytes = code.let(f"mul i64 {column}, 4")
        first = code.let(f"mul i64 %block, {kernel.rows}")
        x = code.byte(emit_pointer(code, MatvecWord.SRC), self._product(first, MatvecWord.SRC_STRIDE))
        row = code.load_word("%table", MatvecWord.SRC_STRIDE)
        self.sources = [x]
        for _ in range(1, rows):
            self.sources.append(code.byte(self.sources[-1], row))
        results = code.byte(emit_pointer(code, MatvecWord.DST), self._product(first, MatvecWord.DST_STRIDE))
        self.results = code.byte(results, code.let(f"mul i64 {column}, {kernel.dst_width}"))
        self.first, self.column = first, column
        panel, part = (code.let(f"{operation} i64 %strip, {parts}") for operation in ("udiv", "urem"))
        step_part = self.width * self.lanes * (kernel.bits // 8 if kernel.bits in (8, 32) else 4)
        at = code.byte(emit_pointer(code, MatvecWord.WEIGHTS), self._product(panel, MatvecWord.PANEL_STRIDE))
        self.weights = code.byte(at, code.let(f"mul i64 {part}, {step_part}"))
        self.masks = self._emit_masks(column)
        self.table = _constant("float", [float(n if n < 8 or kernel.weights == "u4" else n - 16) for n in range(16)])

    def _product(self, value: str, word: MatvecWord) -> str:
        """Emit a value times a word of the table."""
        return self.code.let(f"mul i64 {value}, {self.code.load_word('%table', word)}")

    def _emit_masks(self, column: str) -> list[str]:
        """Emit for each register the lanes that have a column, from number `column` on."""
        code = self.code
        left = code.let(f"sub i64 {code.load_word('%table', MatvecWord.COLUMNS)}, {column}")
        number = code.let(f"trunc i64 {code.minmax('smin', left, self.width * self.lanes)} to i32")
        one = code.let(f"insertelement {self.integers} poison, i32 {number}, i32 0")
        limit = code.let(
            f"shufflevector {self.integers} {one}, {self.integers} poison, {self.integers} zeroinitializer"
        )
        numbers = [range(w * self.lanes, (w + 1) * self.lanes) for w in range(self.width)]
        return [code.let(f"icmp ult {self.integers} {_constant('i32', each)}, {limit}") for each in numbers]

    def load_values(self, word: MatvecWord, group: str, element: str) -> list[str]:
        """Emit loads of a number for each column: of a group, from the array whose address is in the table.

        Those of a strip that comes soon are prefetched. If there are many columns, the rows of the array are in
        different pages of memory, and the processor prefetches nothing by itself.
        """
        code = self.code
        row = code.byte(emit_pointer(code, word), self._product(group, MatvecWord.VALUES_STRIDE))
        row = code.byte(row, self.column_bytes)
        for w in range(_AHEAD * self.width, (_AHEAD + 1) * self.width):
            code.prefetch(code.byte(row, w * self.vectors.bytes))
        kind = f"<{self.lanes} x {element}>"
        found = [
            code.masked_load(kind, code.byte(row, w * self.vectors.bytes), mask) for w, mask in enumerate(self.masks)
        ]
        return [code.let(f"sitofp {kind} {one} to {self.vectors.type}") if element == "i32" else one for one in found]

    def load_source(self, row: int, k: str, j: int) -> str:
        """Emit a load of element `k + j` of a row of the source, into all lanes."""
        code = self.code
        if self.kernel.src == "bf16":
            at = code.let(f"getelementptr i16, ptr {self.sources[row]}, i64 {k}")
            bits = code.let(f"zext i16 {code.let(f'load i16, ptr {code.byte(at, 2 * j)}')} to i32")
            return self.vectors.splat(code.let(f"bitcast i32 {code.let(f'shl i32 {bits}, 16')} to float"))
        at = code.let(f"getelementptr float, ptr {self.sources[row]}, i64 {k}")
        return self.vectors.splat(code.let(f"load float, ptr {code.byte(at, 4 * j)}"))


def _constant(element: str, values: Sequence[float]) -> str:
    """Return the text of a constant vector."""
    return "<" + ", ".join(f"{element} {value}" for value in values) + ">"


def _emit_block(code: Code, kernel: MatvecCode, rows: int) -> str:
    """Emit the function that multiplies `rows` rows of the source by a strip of columns."""
    strip = _Strip(code, kernel, rows)
    vectors, width = strip.vectors, strip.width
    groups = code.load_word("%table", MatvecWord.GROUPS)
    steps = code.load_word("%table", MatvecWord.STEPS)
    names = [f"{m}_{w}" for m in range(rows) for w in range(width)]
    code.do("br label %group")
    code.label("group")
    code.do("%g = phi i64 [0, %entry], [%g_next, %group_last]")
    for name in names:
        code.do(f"%total{name} = phi {vectors.type} [zeroinitializer, %entry], [%total_next{name}, %group_last]")
    scales = strip.load_values(MatvecWord.SCALES, "%g", "float") if kernel.has_scales else []
    zeros = strip.load_values(MatvecWord.ZERO_POINTS, "%g", "i32") if kernel.has_zero_points else []
    code.do(f"%first = mul i64 %g, {steps}")
    if kernel.rounds_source:
        totals = _emit_rounded_sums(strip, groups, steps, scales, zeros)
    elif rows == 1 or (scales and not zeros):
        totals = _emit_sums_of_group(strip, steps, scales, zeros)
    else:
        totals = _emit_scaled_sums(strip, steps, scales, zeros)
    code.do("br label %group_last")
    code.label("group_last")
    for name, total in zip(names, totals, strict=True):
        code.do(f"%total_next{name} = select i1 true, {vectors.type} {total}, {vectors.type} {total}")
    code.do("%g_next = add i64 %g, 1")
    code.do(f"%more_groups = icmp ult i64 %g_next, {groups}")
    code.do("br i1 %more_groups, label %group, label %done")
    code.label("done")
    _emit_results(strip, [f"%total_next{name}" for name in names])
    return f"define internal void @rows{rows}(ptr %table, ptr %rounded, i64 %strip, i64 %block)"


def _emit_sums_of_group(strip: _Strip, steps: str, scales: Sequence[str], zeros: Sequence[str]) -> list[str]:
    """Emit the products of rows in a group, and return the totals for each row and register.

    There is one row, or there are no zero points. One row has two sums for each register, so that additions overlap.
    """
    code, vectors, width, rows = strip.code, strip.vectors, strip.width, strip.rows
    chains = 2 if rows == 1 else 1
    names = [f"{m}_{w}" for m in range(rows) for w in range(width)]
    sums = [f"{name}_{chain}" for name in names for chain in range(chains)] + (["x"] if zeros else [])
    k, weights = _begin_steps(strip, {f"%sum{name}": "zeroinitializer" for name in sums}, "%next")
    current = {name: f"%sum{name}" for name in sums}
    for j in range(STEP):
        xs = [strip.load_source(m, k, j) for m in range(rows)]
        for w in range(width):
            factor = _emit_weights(strip, weights, j, w)
            for m, x in enumerate(xs):
                name = f"{m}_{w}_{j % chains}"
                current[name] = vectors.fma(x, factor, current[name])
        if zeros:
            current["x"] = vectors.binary("fadd", current["x"], xs[0])
    _end_steps(strip, steps, {f"%next{name}": value for name, value in current.items()})
    results = []
    for number, name in enumerate(names):
        w, total, before = number % width, f"%next{name}_0", f"%total{name}"
        if chains > 1:
            total = vectors.binary("fadd", total, f"%next{name}_1")
        if zeros:
            total = vectors.fma(code.let(f"fneg {vectors.type} {zeros[w]}"), "%nextx", total)
        results.append(vectors.fma(scales[w], total, before) if scales else vectors.binary("fadd", total, before))
    return results


def _emit_scaled_sums(strip: _Strip, steps: str, scales: Sequence[str], zeros: Sequence[str]) -> list[str]:
    """Emit the products of several rows with scaled weights, and return the totals for each row and register."""
    code, vectors, width = strip.code, strip.vectors, strip.width
    shifts = []
    if zeros:
        shifts = [
            code.let(f"fneg {vectors.type} {vectors.binary('fmul', *pair)}") for pair in zip(zeros, scales, strict=True)
        ]
    names = [f"{m}_{w}" for m in range(strip.rows) for w in range(width)]
    k, weights = _begin_steps(strip, {f"%sum{name}": f"%total{name}" for name in names}, "%next")
    current = {name: f"%sum{name}" for name in names}
    for j in range(STEP):
        for w in range(width):
            factor = _emit_weights(strip, weights, j, w)
            if scales:
                factor = (
                    vectors.fma(factor, scales[w], shifts[w]) if zeros else vectors.binary("fmul", factor, scales[w])
                )
            for m in range(strip.rows):
                name = f"{m}_{w}"
                current[name] = vectors.fma(strip.load_source(m, k, j), factor, current[name])
    _end_steps(strip, steps, {f"%next{name}": value for name, value in current.items()})
    return [f"%next{name}" for name in names]


def _emit_rounded_sums(
    strip: _Strip, groups: str, steps: str, scales: Sequence[str], zeros: Sequence[str]
) -> list[str]:
    """Emit the products of the rounded source in a group, and return the totals for each row and register."""
    code, vectors, width, kind = strip.code, strip.vectors, strip.width, strip.integers
    is_signed = strip.kernel.weights == "s4"
    records = [RoundedRow(code, vectors, m, groups, steps) for m in range(strip.rows)]
    firsts = [record.first_value(is_signed) for record in records]
    current = {f"%sum{m}_{w}": firsts[m] for m in range(strip.rows) for w in range(width)}
    _, weights = _begin_steps(strip, current, "%next", kind)
    current = {name: name for name in current}
    for half in range(2):
        xs = [record.load(half) for record in records]
        for w in range(width):
            bits = code.let(f"load {kind}, ptr {code.byte(weights, 4 * w * strip.lanes)}, align 4")
            factor = emit_half(code, strip.lanes, bits, half, is_signed)
            for m, x in enumerate(xs):
                name = f"%sum{m}_{w}"
                current[name] = emit_dot(code, strip.lanes, current[name], factor, x)
    _end_steps(strip, steps, {name.replace("%sum", "%next"): value for name, value in current.items()}, kind)
    totals = []
    for m, record in enumerate(records):
        for w in range(width):
            total = code.let(f"sitofp {kind} %next{m}_{w} to {vectors.type}")
            if zeros:
                total = vectors.fma(code.let(f"fneg {vectors.type} {zeros[w]}"), record.sum, total)
            factor = vectors.binary("fmul", scales[w], record.scale)
            totals.append(vectors.fma(factor, total, f"%total{m}_{w}"))
    return totals


def _begin_steps(strip: _Strip, sums: dict[str, str], after: str, kind: str = "") -> tuple[str, str]:
    """Begin the loop over the steps of a group; return the row of the weights, and the address of its step.

    `sums` has the first value of each sum, whose name after a step begins with `after` in place of `%sum`. `kind` is
    their type, floats by default.
    """
    code, kernel = strip.code, strip.kernel
    code.do("br label %before_steps")
    code.label("before_steps")
    code.do("br label %step")
    code.label("step")
    code.do("%s = phi i64 [0, %before_steps], [%s_next, %step]")
    for name, first in sums.items():
        following = name.replace("%sum", after)
        code.do(f"{name} = phi {kind or strip.vectors.type} [{first}, %before_steps], [{following}, %step]")
    number = code.let("add i64 %first, %s")
    weights = code.byte(strip.weights, code.let(f"mul i64 {number}, {kernel.step_nbytes}"))
    return code.let(f"mul i64 {number}, {STEP}"), weights


def _end_steps(strip: _Strip, steps: str, sums: dict[str, str], kind: str = "") -> None:
    """Name the sums after a step, and end the loop after `steps` of them."""
    code, kind = strip.code, kind or strip.vectors.type
    for name, value in sums.items():
        code.do(f"{name} = select i1 true, {kind} {value}, {kind} {value}")
    code.do("%s_next = add i64 %s, 1")
    code.do(f"%more_steps = icmp ult i64 %s_next, {steps}")
    code.do("br i1 %more_steps, label %step, label %steps_done")
    code.label("steps_done")


def _emit_weights(strip: _Strip, step: str, j: int, w: int) -> str:
    """Emit row `j` of a step of the weights as floats: register `w`."""
    code, kernel, lanes = strip.code, strip.kernel, strip.lanes
    if kernel.is_packed:
        bits = code.let(f"load {strip.integers}, ptr {code.byte(step, 4 * w * lanes)}, align 4")
        return _emit_nibbles(strip, bits, j)
    if kernel.weights == "bf16":
        return _emit_half(strip, code.byte(step, 4 * (j // 2 * kernel.registers.columns + w * lanes)), j % 2)
    width = kernel.bits // 8
    address = code.byte(step, width * (j * kernel.registers.columns + w * lanes))
    if kernel.weights == "f32":
        return strip.vectors.load(address)
    narrow = f"<{lanes} x i{kernel.bits}>"
    loaded = code.let(f"load {narrow}, ptr {address}, align 1")
    operation = "sext" if kernel.weights == "s8" else "zext"
    wide = code.let(f"{operation} {narrow} {loaded} to {strip.integers}")
    return code.let(f"sitofp {strip.integers} {wide} to {strip.vectors.type}")


def _emit_half(strip: _Strip, address: str, row: int) -> str:
    """Emit the bf16 numbers of the first or the second of two rows, of which each lane has both, as floats."""
    code, kind = strip.code, strip.integers
    bits = code.let(f"load {kind}, ptr {address}, align 4")
    operation, number = ("and", -65536) if row else ("shl", 16)
    high = code.let(f"{operation} {kind} {bits}, {_constant('i32', [number] * strip.lanes)}")
    return code.let(f"bitcast {kind} {high} to {strip.vectors.type}")


def _emit_nibbles(strip: _Strip, bits: str, j: int) -> str:
    """Emit bits 4j to 4j + 3 of each lane as a float: by a table in a register if it has 16 lanes."""
    code, kernel, kind, lanes = strip.code, strip.kernel, strip.integers, strip.lanes

    def shift(operation: str, value: str, count: int) -> str:
        return code.let(f"{operation} {kind} {value}, {_constant('i32', [count] * lanes)}") if count else value

    if lanes == _MOST_LANES:  # the instruction ignores the higher bits of an index
        floats = strip.vectors.type
        index = shift("lshr", bits, 4 * j)
        return code.call("llvm.x86.avx512.permvar.sf.512", floats, (floats, strip.table), (kind, index))
    high = shift("shl", bits, 28 - 4 * j)
    number = shift("ashr" if kernel.weights == "s4" else "lshr", high, 28)
    return code.let(f"sitofp {kind} {number} to {strip.vectors.type}")


def _emit_results(strip: _Strip, totals: Sequence[str]) -> None:
    """Emit the addition of the bias, the post-operations, and the stores of the columns that exist."""
    code, vectors, width = strip.code, strip.vectors, strip.width
    biases = strip.load_values(MatvecWord.BIAS, "0", "float") if strip.kernel.has_bias else []
    operands = list(_emit_operands(strip))
    line = strip.results
    for m in range(strip.rows):
        for w in range(width):
            value = totals[m * width + w]
            value = vectors.binary("fadd", value, biases[w]) if biases else value
            at = code.byte(line, w * strip.lanes * strip.kernel.dst_width)
            for post_op, operand in zip(strip.kernel.post_ops, operands, strict=True):
                second = _emit_operand(strip, post_op, at if operand is None else operand[m], operand is None, w)
                value = emit_post_op(vectors, post_op, value, second)
            _emit_store(strip, value, at, strip.masks[w])
        line = code.byte(line, code.load_word("%table", MatvecWord.DST_STRIDE))


def _emit_operands(strip: _Strip) -> Iterator[list[str] | None]:
    """Emit for each post-operation the addresses of the rows of its second operand; None for other post-operations."""
    code, words = strip.code, iter(OPERANDS)
    for post_op in strip.kernel.post_ops:
        if not post_op.operand or post_op.algorithm == "sum":
            yield None
            continue
        word, stride = next(words)
        base = code.byte(emit_pointer(code, word), code.let(f"mul i64 {strip.column}, {_width(post_op.operand)}"))
        step = code.load_word("%table", stride)
        rows = [code.byte(base, code.let(f"mul i64 {strip.first}, {step}"))]
        for _ in range(1, strip.rows):
            rows.append(code.byte(rows[-1], step))
        yield rows


def _emit_operand(strip: _Strip, post_op: PostOpCode, address: str, is_result: bool, w: int) -> str:
    """Emit the load of a second operand as floats: register `w` of a row, or the old result at the address itself."""
    if not post_op.operand:
        return ""
    code, mask = strip.code, strip.masks[w]
    at = address if is_result else code.byte(address, w * strip.lanes * _width(post_op.operand))
    if post_op.operand == "f32":
        return code.masked_load(strip.vectors.type, at, mask)
    narrow = f"<{strip.lanes} x i16>"
    wide = code.let(f"zext {narrow} {code.masked_load(narrow, at, mask)} to {strip.integers}")
    high = code.let(f"shl {strip.integers} {wide}, {_constant('i32', [16] * strip.lanes)}")
    return code.let(f"bitcast {strip.integers} {high} to {strip.vectors.type}")


def _width(data_type: str) -> int:
    """Return the bytes of a number of f32 or bf16."""
    return 2 if data_type == "bf16" else 4


OPERANDS = (
    (MatvecWord.OPERAND_0, MatvecWord.OPERAND_0_STRIDE),
    (MatvecWord.OPERAND_1, MatvecWord.OPERAND_1_STRIDE),
)
"""For each second operand, the words of its address and of the stride of its rows, which is 0 for one row."""


def _emit_store(strip: _Strip, value: str, address: str, mask: str) -> None:
    """Emit the store of the lanes that a mask selects, rounded to the type of the destination."""
    kind = strip.vectors.type
    if strip.kernel.dst == "bf16":
        kind = f"<{strip.lanes} x i16>"
        value = _emit_rounding(strip, value)
    strip.code.masked_store(kind, value, address, mask)


def _emit_rounding(strip: _Strip, value: str) -> str:
    """Emit the bf16 numbers that are nearest to floats, ties to even; a NaN stays one."""
    code, kind, lanes = strip.code, strip.integers, strip.lanes

    def apply(operation: str, a: str, b: str | int) -> str:
        return code.let(f"{operation} {kind} {a}, {b if isinstance(b, str) else _constant('i32', [b] * lanes)}")

    bits = code.let(f"bitcast {strip.vectors.type} {value} to {kind}")
    high = apply("lshr", bits, 16)
    rounded = apply("lshr", apply("add", apply("add", bits, 0x7FFF), apply("and", high, 1)), 16)
    is_nan = code.let(f"fcmp uno {strip.vectors.type} {value}, {value}")
    quiet = apply("or", high, 0x40)
    chosen = code.let(f"select <{lanes} x i1> {is_nan}, {kind} {quiet}, {kind} {rounded}")
    return code.let(f"trunc {kind} {chosen} to <{lanes} x i16>")
