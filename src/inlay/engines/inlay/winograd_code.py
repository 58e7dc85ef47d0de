"""The machine code of a Winograd convolution, generated as LLVM IR: one module for convolutions of all sizes.

    inlay_winograd(table)       the work of one thread of a team; the words of the table are `TableWord`

A thread computes a contiguous range of work items, each a block of tiles times a group of destination channels. For
each item:

    input      transform 6x6 pixels of each tile, B^T d B, one vector of channels at a time: 36 matrices V (tiles x ic)
    products   36 matrix products M = V U, by micro-kernels of up to ROWS rows times `Registers.panel` vectors
    output     transform to 4x4 results, A^T m A, add the bias, apply the lower bound, and store

For pixels outside of an image, zeros are read and a spare vector is written. Each tile therefore has a table of pixels
with two words each: the address, and the stride of vectors of channels, which is 0 for pixels outside.

The weights have an opaque format, which a reorder produces:

    desc = weights_desc(64, 32, registers)          inlay-winograd-4x3-64: 36 matrices in panels of 64 columns
    create_weights_transform(reorder_operation).bind({"src": weights, "dst": Memory(desc)})()

The order of this module: arithmetic of vector registers; weights; emitters of functions for one tile, for a block of
tiles, and for the products; the module and its entry. An emitter appends the body of an LLVM function to `code`, from
after the entry label to before the return, and returns the head of the function.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import product

import numpy as np

from inlay.descriptor import MemoryDesc, Opaque
from inlay.engines.inlay.team_code import emit_openmp_call, emit_part, emit_pointer
from inlay.engines.inlay.winograd_tables import (
    A_PAIRED,
    KERNEL,
    OUT,
    POINTS,
    TILE,
    B,
    TableWord,
    transform_weights,
)
from inlay.errors import Unimplemented
from inlay.memory import Memory
from inlay.primitives.attributes import PLAIN
from inlay.primitives.engine import Operation, PlainImplementation
from inlay.reordering.ir import Code, suffix


@dataclass(frozen=True, slots=True)
class Registers:
    """The vector registers of a target that a micro-kernel uses."""

    lanes: int
    """Number of floats in a vector register."""
    panel: int
    """Number of vectors in a full panel of the weights: the largest width of a micro-kernel."""

    @property
    def columns(self) -> int:
        """The number of channels in a full panel of the weights."""
        return self.lanes * self.panel

    def panels(self, channels: int) -> int:
        """Return the number of panels for a number of channels; the last one may be narrower."""
        return -(-channels // self.columns)


class Vectors:
    """An emitter of instructions on vector registers; its methods return the names of their results."""

    def __init__(self, code: Code, registers: Registers) -> None:
        """Emit to `code`."""
        self.code, self.lanes = code, registers.lanes
        self.type = f"<{registers.lanes} x float>"
        self.bytes = 4 * registers.lanes

    def load(self, address: str, offset: int = 0) -> str:
        """Load the vector that is `offset` vectors after an address."""
        at = self.code.byte(address, offset * self.bytes) if offset else address
        return self.code.let(f"load {self.type}, ptr {at}, align 4")

    def store(self, value: str, address: str) -> None:
        """Store a vector."""
        self.code.do(f"store {self.type} {value}, ptr {address}, align 4")

    def splat(self, value: str) -> str:
        """Broadcast a float to a vector."""
        one = self.code.let(f"insertelement {self.type} poison, float {value}, i32 0")
        zeros = f"<{self.lanes} x i32> zeroinitializer"
        return self.code.let(f"shufflevector {self.type} {one}, {self.type} poison, {zeros}")

    def fma(self, a: str, b: str, c: str) -> str:
        """Compute a * b + c, rounded once."""
        return self.code.let(self.fma_call(a, b, c))

    def fma_call(self, a: str, b: str, c: str) -> str:
        """Return the call that computes a * b + c, without a name for its result."""
        name = f"llvm.fma.{suffix(self.type)}"
        self.code.declarations.add(f"declare {self.type} @{name}({', '.join([self.type] * 3)})")
        return f"call {self.type} @{name}({', '.join(f'{self.type} {value}' for value in (a, b, c))})"

    def binary(self, operation: str, a: str, b: str) -> str:
        """Emit `fadd`, `fsub` or `fmul`."""
        return self.code.let(f"{operation} {self.type} {a}, {b}")


def emit_constants(vectors: Vectors, matrix: Sequence[Sequence[float]]) -> dict[float, str]:
    """Emit a vector for each entry of a matrix and its negation, except 0, 1 and -1."""
    factors = sorted({abs(value) for row in matrix for value in row} - {0.0, 1.0})
    signed = [sign * value for value in factors for sign in (1.0, -1.0)]
    return {value: vectors.splat(repr(value)) for value in signed}


def emit_transform(
    vectors: Vectors, matrix: Sequence[Sequence[float]], splats: dict[float, str], values: Sequence[str]
) -> list[str]:
    """Emit the product of a matrix and vectors, and return a vector for each row.

    Two rows that differ only in the signs of odd columns are the sum and the difference of the same two partial sums.
    """
    results: dict[int, str] = {}
    for i, row in enumerate(matrix):
        if i in results:
            continue
        twin = next((k for k in range(i + 1, len(matrix)) if _is_twin(row, matrix[k])), None)
        if twin is None:
            results[i] = _emit_weighted_sum(vectors, splats, [(f, v) for f, v in zip(row, values, strict=True) if f])
            continue
        even = [(f, v) for k, (f, v) in enumerate(zip(row, values, strict=True)) if f and k % 2 == 0]
        odd = [(f, v) for k, (f, v) in enumerate(zip(row, values, strict=True)) if f and k % 2 == 1]
        even_sum, odd_sum = _emit_weighted_sum(vectors, splats, even), _emit_weighted_sum(vectors, splats, odd)
        results[i], results[twin] = vectors.binary("fadd", even_sum, odd_sum), vectors.binary("fsub", even_sum, odd_sum)
    return [results[i] for i in range(len(matrix))]


def emit_pair_sums(vectors: Vectors, values: Sequence[str]) -> list[str]:
    """Emit the sum and the difference of the values at p and -p, and at q and -q: the input of `A_PAIRED`."""
    zero, p, minus_p, q, minus_q, infinity = values
    both = [vectors.binary(operation, *pair) for pair in ((p, minus_p), (q, minus_q)) for operation in ("fadd", "fsub")]
    return [zero, *both, infinity]


def _is_twin(row: Sequence[float], other: Sequence[float]) -> bool:
    """Return whether two rows differ exactly in the signs of odd columns."""
    signs = [-1.0 if k % 2 else 1.0 for k in range(len(row))]
    return any(row[1::2]) and list(other) == [sign * value for sign, value in zip(signs, row, strict=True)]


def _emit_weighted_sum(vectors: Vectors, splats: dict[float, str], terms: Sequence[tuple[float, str]]) -> str:
    """Emit the sum of factors times vectors; terms with the factor 1 or -1 come first, as they need no product."""
    (factor, total), *rest = sorted(terms, key=lambda term: (term[0] != 1.0, abs(term[0]) != 1.0))
    if factor != 1.0:
        total = vectors.binary("fmul", splats[factor], total)
    for factor, value in rest:
        if abs(factor) == 1.0:
            total = vectors.binary("fadd" if factor > 0 else "fsub", total, value)
        else:
            total = vectors.fma(splats[factor], value, total)
    return total


_PREFIX = "inlay-winograd-4x3-"


def weights_desc(oc: int, ic: int, registers: Registers) -> MemoryDesc:
    """Return the descriptor of transformed weights for machine code with such registers."""
    head = {"inlay": "memory_desc", "version": 1, "kind": "opaque", "data_type": "f32"}
    fields = {"dims": (oc, ic, KERNEL, KERNEL), "name": f"{_PREFIX}{registers.columns}", "nbytes": 4 * POINTS * oc * ic}
    return MemoryDesc.from_json(json.dumps({**head, **fields}))


def is_winograd_weights(desc: MemoryDesc) -> bool:
    """Return whether a descriptor is that of transformed weights of a Winograd convolution."""
    return isinstance(desc.layout, Opaque) and desc.layout.name.startswith(_PREFIX)


def create_weights_transform(operation: Operation) -> PlainImplementation:
    """Create the reorder from weights of any layout to the format of a Winograd convolution.

    Raises:
        Unimplemented: the destination has another format, the source has no layout or is not f32, or there are
            attributes.
    """
    src, dst = operation.descs["src"], operation.descs["dst"]
    if not is_winograd_weights(dst) or src.kind not in ("blocked", "digits") or str(src.data_type) != "f32":
        raise Unimplemented(f"weights of a Winograd convolution are made of f32 in a layout: no reorder from {src!r}")
    if operation.attributes != PLAIN:
        raise Unimplemented("weights of a Winograd convolution are made without attributes")
    return PlainImplementation(operation, operation.descs, "winograd:weights", _bind)


def _bind(memories: Mapping[str, Memory]) -> Callable[[], None]:
    """Return a function that transforms the weights once at each call."""
    src, dst = memories["src"], memories["dst"]
    assert isinstance(dst.desc.layout, Opaque)
    panel = int(dst.desc.layout.name.removeprefix(_PREFIX))

    def run() -> None:
        matrices = transform_weights(src.unpack(), panel)
        dst.buffer[: matrices.nbytes] = matrices.view(np.uint8)

    return run


def emit_addresses(code: Code, registers: Registers) -> str:
    """Emit `places`: it writes the table of `side` x `side` pixels from (y, x) on to `places`.

    An entry has the address of the pixel, and the stride of vectors of channels in bytes. Pixels outside of the image
    have the address `outside` and the stride 0.
    """
    with code.loop("down", "%side") as i:
        y = code.let(f"add i64 %y, {i}")
        is_row = code.let(f"icmp ult i64 {y}, %h")
        row = code.let(f"mul i64 {y}, %row")
        line = code.let(f"mul i64 {i}, %side")
        with code.loop("across", "%side") as j:
            x = code.let(f"add i64 %x, {j}")
            is_in = code.let(f"and i1 {is_row}, {code.let(f'icmp ult i64 {x}, %w')}")
            offset = code.let(f"add i64 {row}, {code.let(f'mul i64 {x}, %pixel')}")
            place = code.let(f"select i1 {is_in}, ptr {code.byte('%image', offset)}, ptr %outside")
            step = code.let(f"select i1 {is_in}, i64 %vector, i64 0")
            entry = code.let(f"shl i64 {code.let(f'add i64 {line}, {j}')}, 1")
            code.do(f"store ptr {place}, ptr {code.word('%places', entry)}")
            code.do(f"store i64 {step}, ptr {code.word('%places', code.let(f'or i64 {entry}, 1'))}")
    arguments = ("%y", "%x", "%h", "%w", "%row", "%pixel", "%vector", "%side")
    numbers = ", ".join(f"i64 {name}" for name in arguments)
    return f"define internal void @places(ptr %places, ptr %image, ptr %outside, {numbers})"


def emit_tile_of(code: Code, registers: Registers) -> str:
    """Emit `tile_of`: it writes three words to `found`: the image of tile number `tile`, and its row and column."""
    down, across = (code.load_word("%table", word) for word in (TableWord.TILES_DOWN, TableWord.TILES_ACROSS))
    line = code.let(f"udiv i64 %tile, {across}")
    for i, value in enumerate((f"udiv i64 {line}, {down}", f"urem i64 {line}, {down}", f"urem i64 %tile, {across}")):
        code.do(f"store i64 {code.let(value)}, ptr {code.word('%found', i)}")
    return "define internal void @tile_of(ptr %table, i64 %tile, ptr %found)"


def emit_input(code: Code, registers: Registers) -> str:
    """Emit `input`: it transforms one tile, `count` vectors of channels.

    It reads the pixels in the table `places`, and writes to the 36 matrices from `v` on. `temporary` has space for one
    vector per pixel, the result of the transform of columns.
    """
    vectors = Vectors(code, registers)
    splats = emit_constants(vectors, B)
    with code.loop("channel", "%count") as c:
        for j in range(TILE):
            column = [vectors.load(_emit_vector_address(code, i * TILE + j, c)) for i in range(TILE)]
            for i, value in enumerate(emit_transform(vectors, B, splats, column)):
                vectors.store(value, code.byte("%temporary", (i * TILE + j) * vectors.bytes))
        at = code.byte("%v", code.let(f"mul i64 {c}, {vectors.bytes}"))
        for i in range(TILE):
            row = [vectors.load("%temporary", i * TILE + j) for j in range(TILE)]
            for j, value in enumerate(emit_transform(vectors, B, splats, row)):
                vectors.store(value, code.byte(at, code.let(f"mul i64 %matrix, {i * TILE + j}")))
    return "define internal void @input(ptr %places, i64 %count, ptr %v, i64 %matrix, ptr %temporary)"


def emit_output(code: Code, registers: Registers) -> str:
    """Emit `output`: it computes the results of one tile, `count` vectors of channels from vector `first` on.

    It reads the 36 matrices from `m` on, and writes to the pixels in the table `places`.
    """
    vectors = Vectors(code, registers)
    splats = emit_constants(vectors, A_PAIRED)
    bound = vectors.splat("%bound")
    with code.loop("channel", "%count") as c:
        at = code.byte("%m", code.let(f"mul i64 {c}, {vectors.bytes}"))
        for j in range(TILE):
            places = [code.byte(at, code.let(f"mul i64 %matrix, {i * TILE + j}")) for i in range(TILE)]
            column = emit_pair_sums(vectors, [vectors.load(place) for place in places])
            for i, value in enumerate(emit_transform(vectors, A_PAIRED, splats, column)):
                vectors.store(value, code.byte("%temporary", (i * TILE + j) * vectors.bytes))
        channel = code.let(f"add i64 %first, {c}")
        bias = vectors.load(code.byte("%bias", code.let(f"mul i64 {channel}, {vectors.bytes}")))
        for i in range(OUT):
            row = emit_pair_sums(vectors, [vectors.load("%temporary", i * TILE + j) for j in range(TILE)])
            for j, value in enumerate(emit_transform(vectors, A_PAIRED, splats, row)):
                total = vectors.binary("fadd", value, bias)
                is_less = code.let(f"fcmp olt {vectors.type} {total}, {bound}")
                bools = f"<{registers.lanes} x i1>"
                kept = code.let(f"select {bools} {is_less}, {vectors.type} {bound}, {vectors.type} {total}")
                vectors.store(kept, _emit_vector_address(code, i * OUT + j, channel))
    arguments = "ptr %places, i64 %first, i64 %count, ptr %m, i64 %matrix, ptr %bias, float %bound, ptr %temporary"
    return f"define internal void @output({arguments})"


def _emit_vector_address(code: Code, pixel: int, channel: str) -> str:
    """Emit the address of a vector of channels of a pixel, from its entry in the table of pixels."""
    place = code.let(f"load ptr, ptr {code.word('%places', 2 * pixel)}")
    step = code.load_word("%places", 2 * pixel + 1)
    return code.byte(place, code.let(f"mul i64 {step}, {channel}"))


_SRC = (
    TableWord.SRC_H,
    TableWord.SRC_W,
    TableWord.SRC_ROW_STRIDE,
    TableWord.SRC_PIXEL_STRIDE,
    TableWord.SRC_VECTOR_STRIDE,
)
_DST = (
    TableWord.DST_H,
    TableWord.DST_W,
    TableWord.DST_ROW_STRIDE,
    TableWord.DST_PIXEL_STRIDE,
    TableWord.DST_VECTOR_STRIDE,
)


def emit_inputs(code: Code, registers: Registers) -> str:
    """Emit `inputs`: it transforms `count` tiles from number `first` on; each is a row of the matrices from `v` on."""
    places, position, temporary = _emit_buffers(code, registers)
    vectors, matrix = code.load_word("%table", TableWord.IC_VECTORS), code.load_word("%table", TableWord.V_STRIDE)
    row = code.let(f"mul i64 {vectors}, {4 * registers.lanes}")
    top, left = (code.load_word("%table", word) for word in (TableWord.TOP, TableWord.LEFT))
    with code.loop("tile", "%count") as t:
        image, y, x = _emit_tile_position(code, t, position)
        base = code.byte(
            emit_pointer(code, TableWord.SRC),
            _emit_multiply(code, image, code.load_word("%table", TableWord.SRC_IMAGE_STRIDE)),
        )
        y, x = (code.let(f"sub i64 {value}, {less}") for value, less in ((y, top), (x, left)))
        arguments = ", ".join(
            f"i64 {value}" for value in (y, x, *(code.load_word("%table", word) for word in _SRC), TILE)
        )
        code.do(f"call void @places(ptr {places}, ptr {base}, ptr %outside, {arguments})")
        at = code.byte("%v", _emit_multiply(code, t, row))
        code.do(f"call void @input(ptr {places}, i64 {vectors}, ptr {at}, i64 {matrix}, ptr {temporary})")
    return "define internal void @inputs(ptr %table, i64 %first, i64 %count, ptr %v, ptr %outside)"


def emit_outputs(code: Code, registers: Registers) -> str:
    """Emit `outputs`: it computes the results of `count` tiles from number `first` on.

    It reads the rows of the matrices from `m` on, which have the channels of `panels` panels from `panel` on.
    """
    places, position, temporary = _emit_buffers(code, registers)
    matrix, row = (code.load_word("%table", word) for word in (TableWord.M_STRIDE, TableWord.M_ROW_STRIDE))
    bias = emit_pointer(code, TableWord.BIAS)
    low = code.let(f"load float, ptr {code.word('%table', TableWord.LOWER_BOUND)}")
    begin, many = _emit_vector_range(code, registers)
    with code.loop("tile", "%count") as t:
        image, y, x = _emit_tile_position(code, t, position)
        base = code.byte(
            emit_pointer(code, TableWord.DST),
            _emit_multiply(code, image, code.load_word("%table", TableWord.DST_IMAGE_STRIDE)),
        )
        arguments = ", ".join(
            f"i64 {value}" for value in (y, x, *(code.load_word("%table", word) for word in _DST), OUT)
        )
        code.do(f"call void @places(ptr {places}, ptr {base}, ptr %spare, {arguments})")
        at = code.byte("%m", _emit_multiply(code, t, row))
        arguments = f"i64 {begin}, i64 {many}, ptr {at}, i64 {matrix}, ptr {bias}, float {low}, ptr {temporary}"
        code.do(f"call void @output(ptr {places}, {arguments})")
    words = ", ".join(f"i64 %{name}" for name in ("first", "count", "panel", "panels"))
    return f"define internal void @outputs(ptr %table, {words}, ptr %m, ptr %spare)"


def _emit_buffers(code: Code, registers: Registers) -> list[str]:
    """Emit stack buffers: the table of pixels of a tile, the words of `tile_of`, and a vector per pixel."""
    sizes = (16 * POINTS, 3 * 8, 4 * registers.lanes * POINTS)
    return [code.let(f"alloca [{size} x i8], align 64") for size in sizes]


def _emit_vector_range(code: Code, registers: Registers) -> tuple[str, str]:
    """Emit the first vector of channels of the panels, and the number of vectors; the last panel may be narrower."""
    begin = code.let(f"mul i64 %panel, {registers.panel}")
    left = code.let(f"sub i64 {code.load_word('%table', TableWord.OC_VECTORS)}, {begin}")
    full = code.let(f"mul i64 %panels, {registers.panel}")
    is_less = code.let(f"icmp ult i64 {full}, {left}")
    return begin, code.let(f"select i1 {is_less}, i64 {full}, i64 {left}")


def _emit_tile_position(code: Code, t: str, position: str) -> tuple[str, str, str]:
    """Emit the image, and the row and column of the first result, of tile number `t` of the block."""
    code.do(f"call void @tile_of(ptr %table, i64 {code.let(f'add i64 %first, {t}')}, ptr {position})")
    image, y, x = (code.load_word(position, i) for i in range(3))
    return image, _emit_multiply(code, y, str(OUT)), _emit_multiply(code, x, str(OUT))


def _emit_multiply(code: Code, one: str, other: str) -> str:
    """Emit a product of 64-bit integers."""
    return code.let(f"mul i64 {one}, {other}")


ROWS = 6
"""Largest number of rows of a micro-kernel."""


def _micro_kernel_sizes(registers: Registers) -> list[tuple[int, int]]:
    """Return the size of each micro-kernel: rows and vectors of columns."""
    return list(product(range(1, ROWS + 1), range(1, registers.panel + 1)))


def emit_micro_kernel(code: Code, registers: Registers, rows: int, width: int) -> str:
    """Emit a micro-kernel: it computes `rows` rows times `width` vectors of C = A B, with inner dimension `k`.

    The sums stay in registers. A is row-major; B is a panel, whose row has `width` vectors.
    """
    vectors = Vectors(code, registers)
    lines = ["%a"]
    for _ in range(1, rows):
        lines.append(code.byte(lines[-1], "%a_row"))
    code.do("br label %next")
    code.label("next")
    code.do("%i = phi i64 [0, %entry], [%i_next, %next]")
    sums = [[f"%sum{r}_{w}" for w in range(width)] for r in range(rows)]
    for r in range(rows):
        for w in range(width):
            code.do(f"{sums[r][w]} = phi {vectors.type} [zeroinitializer, %entry], [%next{r}_{w}, %next]")
    panel = code.byte("%b", code.let(f"mul i64 %i, {width * vectors.bytes}"))
    columns = [vectors.load(panel, w) for w in range(width)]
    for r in range(rows):
        place = code.let(f"getelementptr float, ptr {lines[r]}, i64 %i")
        factor = vectors.splat(code.let(f"load float, ptr {place}"))
        for w in range(width):
            code.do(f"%next{r}_{w} = {vectors.fma_call(factor, columns[w], sums[r][w])}")
    code.do("%i_next = add i64 %i, 1")
    code.do("%more = icmp ult i64 %i_next, %k")
    code.do("br i1 %more, label %next, label %done")
    code.label("done")
    line = "%c"
    for r in range(rows):
        for w in range(width):
            vectors.store(f"%next{r}_{w}", code.byte(line, w * vectors.bytes))
        line = code.byte(line, "%c_row")
    return f"define internal void @micro{rows}_{width}(ptr %a, i64 %a_row, ptr %b, i64 %k, ptr %c, i64 %c_row)"


def emit_product(code: Code, registers: Registers) -> str:
    """Emit `product`: it calls the micro-kernel of size `rows` times `width`."""
    sizes = _micro_kernel_sizes(registers)
    size = code.let(f"add i64 {code.let(f'mul i64 %rows, {registers.panel + 1}')}, %width")
    cases = " ".join(f"i64 {r * (registers.panel + 1) + w}, label %size{r}_{w}" for r, w in sizes)
    code.do(f"switch i64 {size}, label %done [{cases}]")
    for rows, width in sizes:
        code.label(f"size{rows}_{width}")
        code.do(f"call void @micro{rows}_{width}(ptr %a, i64 %a_row, ptr %b, i64 %k, ptr %c, i64 %c_row)")
        code.do("br label %done")
    code.label("done")
    arguments = "ptr %a, i64 %a_row, ptr %b, i64 %k, ptr %c, i64 %c_row, i64 %rows, i64 %width"
    return f"define internal void @product({arguments})"


def emit_products(code: Code, registers: Registers) -> str:
    """Emit `products`: it computes all 36 products M = V U of `rows` tiles, for `panels` panels from `first` on.

    The rows are divided into strips of at most ROWS, of nearly equal size.
    """
    load = [
        code.load_word("%table", w)
        for w in (TableWord.IC_VECTORS, TableWord.OC_VECTORS, TableWord.V_STRIDE, TableWord.M_STRIDE)
    ]
    ic_vectors, oc_vectors, v_matrix, m_matrix = load
    m_row, weights = code.load_word("%table", TableWord.M_ROW_STRIDE), emit_pointer(code, TableWord.WEIGHTS)
    k = code.let(f"mul i64 {ic_vectors}, {registers.lanes}")
    a_row = code.let(f"mul i64 {k}, 4")
    vector = code.let(f"mul i64 {k}, {4 * registers.lanes}")  # bytes of one vector of columns of the weights
    u_matrix = code.let(f"mul i64 {vector}, {oc_vectors}")
    strips = code.let(f"udiv i64 {code.let(f'add i64 %rows, {ROWS - 1}')}, {ROWS}")
    with code.loop("point", POINTS) as point:
        v = code.byte("%v", code.let(f"mul i64 {point}, {v_matrix}"))
        m = code.byte("%m", code.let(f"mul i64 {point}, {m_matrix}"))
        u = code.byte(weights, code.let(f"mul i64 {point}, {u_matrix}"))
        with code.loop("panel", "%panels") as relative:
            before = code.let(f"mul i64 {relative}, {registers.panel}")
            skipped = code.let(f"mul i64 {code.let(f'add i64 {relative}, %first')}, {registers.panel}")
            width = code.minmax("smin", code.let(f"sub i64 {oc_vectors}, {skipped}"), registers.panel)
            b = code.byte(u, code.let(f"mul i64 {skipped}, {vector}"))
            c = code.byte(m, code.let(f"mul i64 {before}, {4 * registers.lanes}"))
            with code.loop("strip", strips) as strip:
                begin, end = emit_part(code, "%rows", strips, strip)
                a = code.byte(v, code.let(f"mul i64 {begin}, {a_row}"))
                to = code.byte(c, code.let(f"mul i64 {begin}, {m_row}"))
                count = code.let(f"sub i64 {end}, {begin}")
                arguments = f"ptr {a}, i64 {a_row}, ptr {b}, i64 {k}, ptr {to}, i64 {m_row}, i64 {count}, i64 {width}"
                code.do(f"call void @product({arguments})")
    return "define internal void @products(ptr %table, ptr %v, ptr %m, i64 %rows, i64 %first, i64 %panels)"


ENTRY = "inlay_winograd"
"""Name of the exported function."""
_EMITTERS = (
    emit_addresses,
    emit_tile_of,
    emit_input,
    emit_inputs,
    emit_product,
    emit_products,
    emit_output,
    emit_outputs,
)


def build_module(registers: Registers, attributes: str) -> str:
    """Return the LLVM IR of the module; `attributes` are the function attributes of the target."""
    emitters = [partial(emit, registers=registers) for emit in (*_EMITTERS, _emit_entry)]
    emitters += [
        partial(emit_micro_kernel, registers=registers, rows=r, width=w) for r, w in _micro_kernel_sizes(registers)
    ]
    texts, declarations = [], set()
    for emit in emitters:
        code = Code()
        code.label("entry")
        head = emit(code)
        code.do("ret void")
        texts.append(f"{head} #0 {{\n" + "\n".join(code.lines) + "\n}")
        declarations |= code.declarations
    return "\n".join([*sorted(declarations), *texts, f"attributes #0 = {{ nounwind {attributes} }}\n"])


def _emit_entry(code: Code, registers: Registers) -> str:
    """Emit the exported function: it computes the work items of the calling thread.

    The tiles of a block are transformed once for consecutive items of the same block.
    """
    thread, threads = (emit_openmp_call(code, word) for word in (TableWord.THREAD_NUM, TableWord.NUM_THREADS))
    items, groups = (code.load_word("%table", word) for word in (TableWord.ITEMS, TableWord.GROUPS))
    begin, end = emit_part(code, items, threads, thread)
    offset = code.let(f"mul i64 {thread}, {code.load_word('%table', TableWord.SCRATCH_NBYTES)}")
    v = code.byte(emit_pointer(code, TableWord.SCRATCH), offset)
    m, outside = (code.byte(v, code.load_word("%table", word)) for word in (TableWord.M_OFFSET, TableWord.SPARE_OFFSET))
    code.do(f"store <{registers.lanes} x float> zeroinitializer, ptr {outside}, align 4")
    code.do("br label %item")
    code.label("item")
    code.do(f"%item_index = phi i64 [{begin}, %entry], [%item_next, %multiply]")
    code.do("%known = phi i64 [-1, %entry], [%block, %multiply]")
    code.do(f"%is_any = icmp ult i64 %item_index, {end}")
    code.do("br i1 %is_any, label %work, label %exit")
    code.label("work")
    code.do(f"%block = udiv i64 %item_index, {groups}")
    first, count = _emit_part_range(code, TableWord.TILES, TableWord.BLOCKS, "%block")
    code.do("%is_known = icmp eq i64 %known, %block")
    code.do("br i1 %is_known, label %multiply, label %transform")
    code.label("transform")
    code.do(f"call void @inputs(ptr %table, i64 {first}, i64 {count}, ptr {v}, ptr {outside})")
    code.do("br label %multiply")
    code.label("multiply")
    panel, panels = _emit_part_range(
        code, TableWord.PANELS, TableWord.GROUPS, code.let(f"urem i64 %item_index, {groups}")
    )
    code.do(f"call void @products(ptr %table, ptr {v}, ptr {m}, i64 {count}, i64 {panel}, i64 {panels})")
    spare = code.byte(outside, 4 * registers.lanes)
    tiles = f"i64 {first}, i64 {count}, i64 {panel}, i64 {panels}"
    code.do(f"call void @outputs(ptr %table, {tiles}, ptr {m}, ptr {spare})")
    code.do("%item_next = add i64 %item_index, 1")
    code.do("br label %item")
    code.label("exit")
    return f"define void @{ENTRY}(ptr %table)"


def _emit_part_range(code: Code, things: TableWord, parts: TableWord, part: str) -> tuple[str, str]:
    """Emit the first index and the number of items of a part; two words of the table have the total and the parts."""
    total, many = code.load_word("%table", things), code.load_word("%table", parts)
    first, last = emit_part(code, total, many, part)
    return first, code.let(f"sub i64 {last}, {first}")
