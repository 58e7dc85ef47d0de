"""The machine code of a Winograd convolution, as LLVM IR: one module for convolutions of all sizes.

    inlay_winograd(table)       what one thread of a team does; the words of the table are `Word`

A thread has a run of work items, each a block of tiles by a group of destination channels. For each item:

    input      6x6 pixels of each tile, for one vector of channels at a time: B^T d B, into 36 matrices V (tiles x ic)
    products   each of the 36: M = V U, by a tile of registers of up to ROWS rows by PANEL vectors
    output     A^T m A: 4x4 pixels, the bias added, bounded below, stored

Where pixels lie outside of an image, zeros are read and a spare line is written: a table of addresses, with the bytes
from one vector of channels to the next, says so for each tile.

Weights have an opaque format, and a reorder that leads to it:

    desc = weights_desc(64, 32, registers)          inlay-winograd-4x3-64: 36 matrices in panels of 64 columns
    transforming(reorder_operation).bind({"src": weights, "dst": Memory(desc)})()

In this order: arithmetic of registers; weights; makers of functions, for one tile of pixels and its results, for a
block of tiles, for the products; the module and its entry. A maker writes the body of its function to `code`, between
the label of the entry and the return, and returns the head.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import product

import numpy as np

from inlay.descriptor import MemoryDesc, Opaque
from inlay.engines.inlay.winograd_tables import (
    A_PAIRED,
    KERNEL,
    OUT,
    POINTS,
    TILE,
    B,
    Word,
    pointer,
    transformed_weights,
)
from inlay.errors import Unimplemented
from inlay.memory import Memory
from inlay.primitives.attributes import PLAIN
from inlay.primitives.engine import Operation, PlainImplementation
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


_PREFIX = "inlay-winograd-4x3-"


def weights_desc(oc: int, ic: int, registers: Registers) -> MemoryDesc:
    """The format of weights for the machine code of such registers."""
    head = {"inlay": "memory_desc", "version": 1, "kind": "opaque", "data_type": "f32"}
    named = {"dims": (oc, ic, KERNEL, KERNEL), "name": f"{_PREFIX}{registers.columns}", "nbytes": 4 * POINTS * oc * ic}
    return MemoryDesc.from_json(json.dumps({**head, **named}))


def is_transformed(desc: MemoryDesc) -> bool:
    """Whether a descriptor is that of weights for a Winograd convolution."""
    return isinstance(desc.layout, Opaque) and desc.layout.name.startswith(_PREFIX)


def transforming(operation: Operation) -> PlainImplementation:
    """What brings weights of any layout to the format of a Winograd convolution.

    Raises:
        Unimplemented: the destination is no such format, the source has no layout or is not f32, or there are
            attributes.
    """
    src, dst = operation.descs["src"], operation.descs["dst"]
    if not is_transformed(dst) or src.kind not in ("blocked", "digits") or str(src.data_type) != "f32":
        raise Unimplemented(f"weights of a Winograd convolution are made of f32 in a layout: no reorder from {src!r}")
    if operation.attributes != PLAIN:
        raise Unimplemented("weights of a Winograd convolution are made without attributes")
    return PlainImplementation(operation, operation.descs, "winograd:weights", _bind)


def _bind(memories: Mapping[str, Memory]) -> Callable[[], None]:
    """What transforms once."""
    src, dst = memories["src"], memories["dst"]
    assert isinstance(dst.desc.layout, Opaque)
    panel = int(dst.desc.layout.name.removeprefix(_PREFIX))

    def run() -> None:
        found = transformed_weights(src.unpack(), panel)
        dst.buffer[: found.nbytes] = found.view(np.uint8)

    return run


def places_function(code: Code, registers: Registers) -> str:
    """Addresses of `side` x `side` pixels from (y, x) on, each with the bytes to its next vector."""
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


def tile_function(code: Code, registers: Registers) -> str:
    """The image, row and column of tiles of tile number `tile`, as words."""
    down, across = (code.load_word("%table", word) for word in (Word.TILES_DOWN, Word.TILES_ACROSS))
    line = code.let(f"udiv i64 %tile, {across}")
    for i, value in enumerate((f"udiv i64 {line}, {down}", f"urem i64 {line}, {down}", f"urem i64 %tile, {across}")):
        code.do(f"store i64 {code.let(value)}, ptr {code.word('%found', i)}")
    return "define internal void @tile_of(ptr %table, i64 %tile, ptr %found)"


def input_function(code: Code, registers: Registers) -> str:
    """One tile: `count` vectors of channels from `places` to the 36 matrices from `v` on, by way of `temporary`."""
    vectors = Vectors(code, registers)
    splats = constants(vectors, B)
    with code.loop("channel", "%count") as c:
        for j in range(TILE):
            column = [vectors.load(_placed(code, i * TILE + j, c)) for i in range(TILE)]
            for i, value in enumerate(transformed(vectors, B, splats, column)):
                vectors.store(value, code.byte("%temporary", (i * TILE + j) * vectors.bytes))
        at = code.byte("%v", code.let(f"mul i64 {c}, {vectors.bytes}"))
        for i in range(TILE):
            row = [vectors.load("%temporary", i * TILE + j) for j in range(TILE)]
            for j, value in enumerate(transformed(vectors, B, splats, row)):
                vectors.store(value, code.byte(at, code.let(f"mul i64 %matrix, {i * TILE + j}")))
    return "define internal void @input(ptr %places, i64 %count, ptr %v, i64 %matrix, ptr %temporary)"


def output_function(code: Code, registers: Registers) -> str:
    """One tile: `count` vectors of channels from the 36 matrices from `m` on to `places`, from channel `first` on."""
    vectors = Vectors(code, registers)
    splats = constants(vectors, A_PAIRED)
    bound = vectors.splat("%bound")
    with code.loop("channel", "%count") as c:
        at = code.byte("%m", code.let(f"mul i64 {c}, {vectors.bytes}"))
        for j in range(TILE):
            places = [code.byte(at, code.let(f"mul i64 %matrix, {i * TILE + j}")) for i in range(TILE)]
            column = paired(vectors, [vectors.load(place) for place in places])
            for i, value in enumerate(transformed(vectors, A_PAIRED, splats, column)):
                vectors.store(value, code.byte("%temporary", (i * TILE + j) * vectors.bytes))
        channel = code.let(f"add i64 %first, {c}")
        bias = vectors.load(code.byte("%bias", code.let(f"mul i64 {channel}, {vectors.bytes}")))
        for i in range(OUT):
            row = paired(vectors, [vectors.load("%temporary", i * TILE + j) for j in range(TILE)])
            for j, value in enumerate(transformed(vectors, A_PAIRED, splats, row)):
                total = vectors.two("fadd", value, bias)
                is_less = code.let(f"fcmp olt {vectors.type} {total}, {bound}")
                bools = f"<{registers.lanes} x i1>"
                kept = code.let(f"select {bools} {is_less}, {vectors.type} {bound}, {vectors.type} {total}")
                vectors.store(kept, _placed(code, i * OUT + j, channel))
    arguments = "ptr %places, i64 %first, i64 %count, ptr %m, i64 %matrix, ptr %bias, float %bound, ptr %temporary"
    return f"define internal void @output({arguments})"


def _placed(code: Code, pixel: int, channel: str) -> str:
    """The address of a vector of channels of a pixel in the table of places."""
    place = code.let(f"load ptr, ptr {code.word('%places', 2 * pixel)}")
    step = code.load_word("%places", 2 * pixel + 1)
    return code.byte(place, code.let(f"mul i64 {step}, {channel}"))


_SRC = (Word.SRC_H, Word.SRC_W, Word.SRC_ROW, Word.SRC_PIXEL, Word.SRC_VECTOR)
_DST = (Word.DST_H, Word.DST_W, Word.DST_ROW, Word.DST_PIXEL, Word.DST_VECTOR)


def inputs_function(code: Code, registers: Registers) -> str:
    """`count` tiles from number `first` on, to the rows of the matrices from `v` on."""
    places, found, temporary = _room(code, registers)
    vectors, matrix = code.load_word("%table", Word.IC_VECTORS), code.load_word("%table", Word.V_MATRIX)
    row = code.let(f"mul i64 {vectors}, {4 * registers.lanes}")
    top, left = (code.load_word("%table", word) for word in (Word.TOP, Word.LEFT))
    with code.loop("tile", "%count") as t:
        image, y, x = _position(code, t, found)
        base = code.byte(pointer(code, Word.SRC), _times(code, image, code.load_word("%table", Word.SRC_IMAGE)))
        y, x = (code.let(f"sub i64 {value}, {less}") for value, less in ((y, top), (x, left)))
        told = ", ".join(f"i64 {value}" for value in (y, x, *(code.load_word("%table", word) for word in _SRC), TILE))
        code.do(f"call void @places(ptr {places}, ptr {base}, ptr %outside, {told})")
        at = code.byte("%v", _times(code, t, row))
        code.do(f"call void @input(ptr {places}, i64 {vectors}, ptr {at}, i64 {matrix}, ptr {temporary})")
    return "define internal void @inputs(ptr %table, i64 %first, i64 %count, ptr %v, ptr %outside)"


def outputs_function(code: Code, registers: Registers) -> str:
    """The rows of the matrices from `m` on to `count` tiles from number `first` on, for so many panels of channels."""
    places, found, temporary = _room(code, registers)
    matrix, row = (code.load_word("%table", word) for word in (Word.M_MATRIX, Word.M_ROW))
    bias, low = pointer(code, Word.BIAS), code.let(f"load float, ptr {code.word('%table', Word.BOUND)}")
    begin, many = _vectors(code, registers)
    with code.loop("tile", "%count") as t:
        image, y, x = _position(code, t, found)
        base = code.byte(pointer(code, Word.DST), _times(code, image, code.load_word("%table", Word.DST_IMAGE)))
        told = ", ".join(f"i64 {value}" for value in (y, x, *(code.load_word("%table", word) for word in _DST), OUT))
        code.do(f"call void @places(ptr {places}, ptr {base}, ptr %spare, {told})")
        at = code.byte("%m", _times(code, t, row))
        told = f"i64 {begin}, i64 {many}, ptr {at}, i64 {matrix}, ptr {bias}, float {low}, ptr {temporary}"
        code.do(f"call void @output(ptr {places}, {told})")
    words = ", ".join(f"i64 %{name}" for name in ("first", "count", "panel", "panels"))
    return f"define internal void @outputs(ptr %table, {words}, ptr %m, ptr %spare)"


def _room(code: Code, registers: Registers) -> list[str]:
    """Room for the places of a tile, for its number, and for a tile of registers."""
    sizes = (16 * POINTS, 3 * 8, 4 * registers.lanes * POINTS)
    return [code.let(f"alloca [{size} x i8], align 64") for size in sizes]


def _vectors(code: Code, registers: Registers) -> tuple[str, str]:
    """The first vector of channels of the panels, and how many there are: the last panel may not be full."""
    begin = code.let(f"mul i64 %panel, {registers.panel}")
    left = code.let(f"sub i64 {code.load_word('%table', Word.OC_VECTORS)}, {begin}")
    full = code.let(f"mul i64 %panels, {registers.panel}")
    is_less = code.let(f"icmp ult i64 {full}, {left}")
    return begin, code.let(f"select i1 {is_less}, i64 {full}, i64 {left}")


def _position(code: Code, t: str, found: str) -> tuple[str, str, str]:
    """The image, and the row and column of the first result, of tile number `t` of the block."""
    code.do(f"call void @tile_of(ptr %table, i64 {code.let(f'add i64 %first, {t}')}, ptr {found})")
    image, y, x = (code.load_word(found, i) for i in range(3))
    return image, _times(code, y, str(OUT)), _times(code, x, str(OUT))


def _times(code: Code, one: str, other: str) -> str:
    return code.let(f"mul i64 {one}, {other}")


ROWS = 6
"""Most rows of a tile of registers."""


def _sizes(registers: Registers) -> list[tuple[int, int]]:
    """Rows and vectors of each tile of registers."""
    return list(product(range(1, ROWS + 1), range(1, registers.panel + 1)))


def micro_function(code: Code, registers: Registers, rows: int, width: int) -> str:
    """`rows` rows of a product by `width` vectors of columns, over all of `k`."""
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


def product_function(code: Code, registers: Registers) -> str:
    """`rows` rows by `width` vectors, by the tile of registers of that size."""
    sizes = _sizes(registers)
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


def products_function(code: Code, registers: Registers) -> str:
    """All 36 products of `rows` tiles, for `panels` panels from number `first` on."""
    load = [code.load_word("%table", w) for w in (Word.IC_VECTORS, Word.OC_VECTORS, Word.V_MATRIX, Word.M_MATRIX)]
    ic_vectors, oc_vectors, v_matrix, m_matrix = load
    m_row, weights = code.load_word("%table", Word.M_ROW), pointer(code, Word.WEIGHTS)
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
                begin, end = (share(code, "%rows", strips, of) for of in (strip, code.let(f"add i64 {strip}, 1")))
                a = code.byte(v, code.let(f"mul i64 {begin}, {a_row}"))
                to = code.byte(c, code.let(f"mul i64 {begin}, {m_row}"))
                count = code.let(f"sub i64 {end}, {begin}")
                arguments = f"ptr {a}, i64 {a_row}, ptr {b}, i64 {k}, ptr {to}, i64 {m_row}, i64 {count}, i64 {width}"
                code.do(f"call void @product({arguments})")
    return "define internal void @products(ptr %table, ptr %v, ptr %m, i64 %rows, i64 %first, i64 %panels)"


def share(code: Code, count: str, parts: str, part: str) -> str:
    """Where part number `part` begins, of `count` things in `parts` equal parts."""
    return code.let(f"udiv i64 {code.let(f'mul i64 {count}, {part}')}, {parts}")


ENTRY = "inlay_winograd"
"""The function."""
_MAKERS = (
    places_function,
    tile_function,
    input_function,
    inputs_function,
    product_function,
    products_function,
    output_function,
    outputs_function,
)


def module(registers: Registers, attributes: str) -> str:
    """The module, with the function attributes of a target."""
    makers = [partial(make, registers=registers) for make in (*_MAKERS, _entry)]
    makers += [partial(micro_function, registers=registers, rows=r, width=w) for r, w in _sizes(registers)]
    texts, declarations = [], set()
    for make in makers:
        code = Code()
        code.label("entry")
        head = make(code)
        code.do("ret void")
        texts.append(f"{head} #0 {{\n" + "\n".join(code.lines) + "\n}")
        declarations |= code.declarations
    return "\n".join([*sorted(declarations), *texts, f"attributes #0 = {{ nounwind {attributes} }}\n"])


def _entry(code: Code, registers: Registers) -> str:
    """What the calling thread does of the whole: item after item, tiles transformed once for items that share them."""
    thread, threads = (_asked(code, word) for word in (Word.THREAD_NUM, Word.NUM_THREADS))
    items, groups = (code.load_word("%table", word) for word in (Word.ITEMS, Word.GROUPS))
    begin, end = (share(code, items, threads, part) for part in (thread, code.let(f"add i64 {thread}, 1")))
    room = code.let(f"mul i64 {thread}, {code.load_word('%table', Word.ROOM)}")
    v = code.byte(pointer(code, Word.SCRATCH), room)
    m, outside = (code.byte(v, code.load_word("%table", word)) for word in (Word.M_AT, Word.SPARE_AT))
    code.do(f"store <{registers.lanes} x float> zeroinitializer, ptr {outside}, align 4")
    code.do("br label %item")
    code.label("item")
    code.do(f"%item_index = phi i64 [{begin}, %entry], [%item_next, %multiply]")
    code.do("%known = phi i64 [-1, %entry], [%block, %multiply]")
    code.do(f"%is_any = icmp ult i64 %item_index, {end}")
    code.do("br i1 %is_any, label %work, label %exit")
    code.label("work")
    code.do(f"%block = udiv i64 %item_index, {groups}")
    first, count = _part(code, Word.TILES, Word.BLOCKS, "%block")
    code.do("%is_known = icmp eq i64 %known, %block")
    code.do("br i1 %is_known, label %multiply, label %transform")
    code.label("transform")
    code.do(f"call void @inputs(ptr %table, i64 {first}, i64 {count}, ptr {v}, ptr {outside})")
    code.do("br label %multiply")
    code.label("multiply")
    panel, panels = _part(code, Word.PANELS, Word.GROUPS, code.let(f"urem i64 %item_index, {groups}"))
    code.do(f"call void @products(ptr %table, ptr {v}, ptr {m}, i64 {count}, i64 {panel}, i64 {panels})")
    spare = code.byte(outside, 4 * registers.lanes)
    tiles = f"i64 {first}, i64 {count}, i64 {panel}, i64 {panels}"
    code.do(f"call void @outputs(ptr %table, {tiles}, ptr {m}, ptr {spare})")
    code.do("%item_next = add i64 %item_index, 1")
    code.do("br label %item")
    code.label("exit")
    return f"define void @{ENTRY}(ptr %table)"


def _asked(code: Code, word: Word) -> str:
    """The answer of a function of the OpenMP runtime, whose address is a word of the table."""
    return code.let(f"sext i32 {code.let(f'call i32 {pointer(code, word)}()')} to i64")


def _part(code: Code, things: Word, parts: Word, part: str) -> tuple[str, str]:
    """The first thing, and how many, of a part."""
    total, many = code.load_word("%table", things), code.load_word("%table", parts)
    first, last = (share(code, total, many, of) for of in (part, code.let(f"add i64 {part}, 1")))
    return first, code.let(f"sub i64 {last}, {first}")
