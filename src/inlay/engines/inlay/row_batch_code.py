"""Machine code of batches of products of few rows; see `primitives.row_batches`.

    inlay_row_batch(table, threads)      a team computes all products; the words of the table are `RowBatchWord`

A thread computes products one after the other, and a product row by row. Where the features are summed, the products
of a row with as many keys as a register has lanes are added up in one register each; a tree of sums of neighboring
lanes then makes one register of results. Where they are columns, the registers of a row of results are the sums of the
values times their shares. Keys or values to come are prefetched: their distance in memory is too large for hardware.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import IntEnum
from functools import partial

from inlay.engines.inlay.matvec_post_ops import MOST_OPERANDS, PostOpCode, emit_post_op
from inlay.engines.inlay.team_code import TEAM_WORK, build_team_module, emit_openmp_call, emit_part, emit_pointer
from inlay.engines.inlay.winograd_code import Registers, Vectors
from inlay.primitives.row_batches import Features
from inlay.reordering.ir import Code

ENTRY = "inlay_row_batch"
"""Name of the exported function."""
_LINE = 64
_AHEAD = 16  # keys or values between a prefetch and its use


class RowBatchWord(IntEnum):
    """The words of the call table; strides are in bytes.

    After the address of a tensor there are its strides along both axes of the batch, and that of its rows: for the
    weights, that from a key or value to the next one.
    """

    SRC = 0
    WEIGHTS = 4
    DST = 8
    OPERAND_0 = 12
    OPERAND_1 = 16
    ROWS = 20
    """Rows of each product."""
    KEYS = 21
    """Keys or values of each product."""
    INNER = 22
    """Products along the inner axis of the batch."""
    PRODUCTS = 23
    """All products."""
    PARALLEL = 24
    THREAD_NUM = 25
    NUM_THREADS = 26


TENSORS = (
    RowBatchWord.SRC,
    RowBatchWord.WEIGHTS,
    RowBatchWord.DST,
    RowBatchWord.OPERAND_0,
    RowBatchWord.OPERAND_1,
)
"""The words of addresses of tensors."""


@dataclass(frozen=True, slots=True)
class RowBatchCode:
    """The parameters of a module, apart from the target."""

    features: Features
    """The axis of the weights along which elements are contiguous."""
    count: int
    """Number of features, a multiple of `lanes`."""
    lanes: int
    """Floats in a vector register."""
    post_ops: tuple[PostOpCode, ...]
    """The post-operations."""
    is_single: tuple[bool, ...]
    """For each second operand, whether it has one element for all columns."""

    @property
    def registers(self) -> int:
        """The number of registers that the features fill."""
        return self.count // self.lanes


def build_module(kernel: RowBatchCode, attributes: str) -> str:
    """Return the LLVM IR of the module; `attributes` are the function attributes of the target."""
    emitters = (partial(_emit_product, kernel=kernel), _emit_work)
    return build_team_module(emitters, ENTRY, RowBatchWord.PARALLEL, attributes)


def _emit_work(code: Code) -> str:
    """Emit the function that computes the products of the calling thread."""
    thread, threads = (emit_openmp_call(code, word) for word in (RowBatchWord.THREAD_NUM, RowBatchWord.NUM_THREADS))
    products, inner = (code.load_word("%table", word) for word in (RowBatchWord.PRODUCTS, RowBatchWord.INNER))
    begin, end = emit_part(code, products, threads, thread)
    count = code.let(f"sub i64 {end}, {begin}")
    code.do(f"%is_idle = icmp eq i64 {count}, 0")
    code.do("br i1 %is_idle, label %exit, label %some")
    code.label("some")
    with code.loop("product", count) as index:
        number = code.let(f"add i64 {begin}, {index}")
        indices = [code.let(f"{operation} i64 {number}, {inner}") for operation in ("udiv", "urem")]
        addresses = []
        for word in TENSORS:
            address = emit_pointer(code, word)
            for axis, one in enumerate(indices, 1):
                address = code.byte(address, _emit_multiple(code, one, word + axis))
            addresses.append(f"ptr {address}")
        code.do(f"call void @product(ptr %table, {', '.join(addresses)})")
    code.do("br label %exit")
    code.label("exit")
    return f"define internal void @{TEAM_WORK}(ptr %table)"


def _emit_multiple(code: Code, value: str, word: int) -> str:
    """Emit a value times a word of the table."""
    return code.let(f"mul i64 {value}, {code.load_word('%table', word)}")


class _Row:
    """The addresses that the code of one row uses."""

    def __init__(self, code: Code, kernel: RowBatchCode, row: str) -> None:
        """Emit them, for the row with number `row`."""
        self.code, self.kernel = code, kernel
        self.vectors = Vectors(code, Registers(kernel.lanes, kernel.registers))
        strides = {name: word + 3 for name, word in _BY_ROWS.items()}
        self.addresses = {
            name: code.byte(f"%{name}", _emit_multiple(code, row, word)) for name, word in strides.items()
        }
        self.step = code.load_word("%table", RowBatchWord.WEIGHTS + 3)
        self.keys = code.load_word("%table", RowBatchWord.KEYS)

    def key(self, number: str) -> str:
        """Emit the address of a key or value, and prefetches of a later one; return the address."""
        code = self.code
        address = code.byte("%weights", code.let(f"mul i64 {number}, {self.step}"))
        later = code.byte(address, code.let(f"mul i64 {self.step}, {_AHEAD}"))
        for offset in range(0, 4 * self.kernel.count, _LINE):
            code.prefetch(code.byte(later, offset))
        return address

    def finish(self, value: str, offset: str | int, mask: str = "") -> None:
        """Emit the post-operations on a register of results, and its store so many bytes after the row's beginning."""
        code, vectors = self.code, self.vectors
        singles = iter(zip(("operand_0", "operand_1"), self.kernel.is_single, strict=False))
        for post_op in self.kernel.post_ops:
            operand = ""
            if post_op.operand:
                name, is_single = next(singles)
                operand = self._operand(self.addresses[name], offset, is_single, mask)
            value = emit_post_op(vectors, post_op, value, operand)
        at = code.byte(self.addresses["dst"], offset)
        if mask:
            code.masked_store(vectors.type, value, at, mask)
        else:
            vectors.store(value, at)

    def _operand(self, row: str, offset: str | int, is_single: bool, mask: str) -> str:
        """Emit the load of a register of a second operand."""
        if is_single:
            return self.vectors.splat(self.code.let(f"load float, ptr {row}"))
        at = self.code.byte(row, offset)
        return self.code.masked_load(self.vectors.type, at, mask) if mask else self.vectors.load(at)


_BY_ROWS = {
    "src": RowBatchWord.SRC,
    "dst": RowBatchWord.DST,
    "operand_0": RowBatchWord.OPERAND_0,
    "operand_1": RowBatchWord.OPERAND_1,
}
assert len(_BY_ROWS) == 2 + MOST_OPERANDS


def _emit_product(code: Code, kernel: RowBatchCode) -> str:
    """Emit the function that computes one product."""
    with code.loop("row", code.load_word("%table", RowBatchWord.ROWS)) as number:
        row = _Row(code, kernel, number)
        (_emit_sums_of_features if kernel.features == "summed" else _emit_sums_of_values)(row)
    names = ("src", "weights", "dst", "operand_0", "operand_1")
    return f"define internal void @product(ptr %table, {', '.join(f'ptr %{name}' for name in names)})"


def _emit_sums_of_features(row: _Row) -> None:
    """Emit the results of a row whose features are summed: as many keys as there are lanes at a time."""
    code, vectors, lanes = row.code, row.vectors, row.kernel.lanes
    query = [vectors.load(row.addresses["src"], i) for i in range(row.kernel.registers)]
    last = code.let(f"sub i64 {row.keys}, 1")
    rounded = code.let(f"add i64 {row.keys}, {lanes - 1}")
    with code.loop("block", code.let(f"udiv i64 {rounded}, {lanes}")) as block:
        first = code.let(f"mul i64 {block}, {lanes}")

        def products(j: int) -> str:
            number = code.let(f"add i64 {first}, {j}")
            is_over = code.let(f"icmp ugt i64 {number}, {last}")
            address = row.key(code.let(f"select i1 {is_over}, i64 {last}, i64 {number}"))
            total = vectors.binary("fmul", query[0], vectors.load(address))
            for i, part in enumerate(query[1:], 1):
                total = vectors.fma(part, vectors.load(address, i), total)
            return total

        results = _emit_lane_sums(row, products, 0, lanes)
        row.finish(results, code.let(f"mul i64 {first}, 4"), _emit_mask(row, first))


def _emit_lane_sums(row: _Row, emit: Callable[[int], str], begin: int, end: int) -> str:
    """Emit a register whose lanes are parts of the sums of the registers `begin` to `end`; whole sums for all lanes.

    The lanes of each are in order: each level of the tree adds neighboring lanes of two registers.
    """
    if end - begin == 1:
        return emit(begin)
    middle = (begin + end) // 2
    pair = [_emit_lane_sums(row, emit, *part) for part in ((begin, middle), (middle, end))]
    code, kind, lanes = row.code, row.vectors.type, row.kernel.lanes
    even, odd = (
        code.let(f"shufflevector {kind} {pair[0]}, {kind} {pair[1]}, {_integers(range(start, 2 * lanes, 2))}")
        for start in range(2)
    )
    return row.vectors.binary("fadd", even, odd)


def _emit_mask(row: _Row, first: str) -> str:
    """Emit the lanes that have a key, from number `first` on."""
    code, lanes = row.code, row.kernel.lanes
    kind = f"<{lanes} x i32>"
    left = code.let(f"sub i64 {row.keys}, {first}")
    number = code.let(f"trunc i64 {code.minmax('smin', left, lanes)} to i32")
    one = code.let(f"insertelement {kind} poison, i32 {number}, i32 0")
    limit = code.let(f"shufflevector {kind} {one}, {kind} poison, {kind} zeroinitializer")
    return code.let(f"icmp ult {_integers(range(lanes))}, {limit}")


def _integers(values: Sequence[int]) -> str:
    """Return a constant vector of integers with its type."""
    return f"<{len(values)} x i32> <" + ", ".join(f"i32 {value}" for value in values) + ">"


def _emit_sums_of_values(row: _Row) -> None:
    """Emit a row of results whose columns are the features: sums of values times their shares."""
    code, vectors, parts = row.code, row.vectors, range(row.kernel.registers)
    code.do("br label %values")
    code.label("values")
    code.do("br label %value")
    code.label("value")
    code.do("%n = phi i64 [0, %values], [%n_next, %value]")
    for i in parts:
        code.do(f"%sum{i} = phi {vectors.type} [zeroinitializer, %values], [%next{i}, %value]")
    at = code.let(f"getelementptr float, ptr {row.addresses['src']}, i64 %n")
    share = vectors.splat(code.let(f"load float, ptr {at}"))
    address = row.key("%n")
    for i in parts:
        code.do(f"%next{i} = {vectors.fma_call(share, vectors.load(address, i), f'%sum{i}')}")
    code.do("%n_next = add i64 %n, 1")
    code.do(f"%is_more = icmp ult i64 %n_next, {row.keys}")
    code.do("br i1 %is_more, label %value, label %summed")
    code.label("summed")
    for i in parts:
        row.finish(f"%next{i}", i * vectors.bytes)
