"""Functions that multiply: tiles of registers of every size, and what divides the 36 products into them."""

from inlay.engine.inlay.table import Word, pointer
from inlay.engine.inlay.tiles import POINTS
from inlay.engine.inlay.vectors import Registers, Vectors
from inlay.reordering.ir import Code

ROWS = 6
"""Most rows of a tile of registers."""


def widths(registers: Registers) -> range:
    """Vectors of the tiles of registers."""
    return range(1, registers.panel + 1)


def micro_function(registers: Registers, rows: int, width: int) -> tuple[str, Code]:
    """`rows` rows of a product by `width` vectors of columns, over all of `k`."""
    code = Code()
    vectors = Vectors(code, registers)
    code.label("entry")
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
    code.do("ret void")
    return f"define internal void @micro{rows}_{width}(ptr %a, i64 %a_row, ptr %b, i64 %k, ptr %c, i64 %c_row)", code


def product_function(registers: Registers) -> tuple[str, Code]:
    """`rows` rows by `width` vectors, by the tile of registers of that size."""
    code = Code()
    code.label("entry")
    sizes = [(rows, width) for rows in range(1, ROWS + 1) for width in widths(registers)]
    size = code.let(f"add i64 {code.let(f'mul i64 %rows, {registers.panel + 1}')}, %width")
    cases = " ".join(f"i64 {r * (registers.panel + 1) + w}, label %size{r}_{w}" for r, w in sizes)
    code.do(f"switch i64 {size}, label %done [{cases}]")
    for rows, width in sizes:
        code.label(f"size{rows}_{width}")
        code.do(f"call void @micro{rows}_{width}(ptr %a, i64 %a_row, ptr %b, i64 %k, ptr %c, i64 %c_row)")
        code.do("br label %done")
    code.label("done")
    code.do("ret void")
    arguments = "ptr %a, i64 %a_row, ptr %b, i64 %k, ptr %c, i64 %c_row, i64 %rows, i64 %width"
    return f"define internal void @product({arguments})", code


def products_function(registers: Registers) -> tuple[str, Code]:
    """All 36 products of `rows` tiles, for `panels` panels from number `first` on."""
    code = Code()
    code.label("entry")
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
    code.do("ret void")
    return "define internal void @products(ptr %table, ptr %v, ptr %m, i64 %rows, i64 %first, i64 %panels)", code


def share(code: Code, count: str, parts: str, part: str) -> str:
    """Where part number `part` begins, of `count` things in `parts` equal parts."""
    return code.let(f"udiv i64 {code.let(f'mul i64 {count}, {part}')}, {parts}")
