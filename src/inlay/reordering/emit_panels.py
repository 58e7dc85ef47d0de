"""The code of panels, as LLVM IR: for each panel, a kernel fills a buffer, then its rows are streamed to their places.

    inlay_panels(source, destination, table, first panel, last panel)

The words of the table: the address of the kernel, of its table, and its tiles; the addresses of the panels' offsets
(source and destination of each, in bytes) and of the rows' offsets; rows; bytes of a row; bytes from row to row of the
buffer; then the pool of buffers: the address of its flags, a word for each buffer, of the buffers, and their count.

A call takes the first buffer whose flag is 0, sets the flag to 1, and gives the buffer back at the end. A thread that
finds none waits: whoever has one is in this code and gives it back without help from anybody.
"""

from dataclasses import dataclass

from inlay.reordering.elements import LINE
from inlay.reordering.ir import Code, module_text

ENTRY = "inlay_panels"
"""The name of the function."""
KERNEL, TABLE, TILES, OFFSETS, ROWS, COUNT, ROW_BYTES, PITCH, FLAGS, BUFFERS, POOL = range(11)
"""Numbers of the words of the table."""
BUFFER_BYTES = 1 << 19
"""From one buffer of the pool to the next."""


@dataclass(frozen=True, slots=True)
class PanelKernel:
    """The code of both passes: one for all panels, it depends on the target alone."""


def panels_ir(fence: str, pause: str, attributes: str) -> str:
    """Return the module of panels.

    Args:
        fence: the statement that makes streaming stores visible to other threads.
        pause: the statement that tells the processor that a loop waits.
        attributes: LLVM function attributes of the target.
    """
    return module_text([_ends_function(), _rows_function(), _entry_function(fence, pause)], attributes)


def _ends_function() -> tuple[str, Code]:
    """Copy fewer bytes than a line, in at most six steps of powers of two."""
    code = Code()
    code.label("entry")
    code.do("br label %size1")
    before, at = "entry", "0"
    for size in (1, 2, 4, 8, 16, 32):
        following = f"size{2 * size}" if size < LINE // 2 else "done"
        code.label(f"size{size}")
        if size > 1:
            at = code.let(f"phi i64 [{at}, %{before}], [%end{size // 2}, %copy{size // 2}]")
        bit = code.let(f"and i64 %n, {size}")
        has = code.let(f"icmp ne i64 {bit}, 0")
        code.do(f"br i1 {has}, label %copy{size}, label %{following}")
        code.label(f"copy{size}")
        value = code.let(f"load i{8 * size}, ptr {code.byte('%src', at)}, align 1")
        code.do(f"store i{8 * size} {value}, ptr {code.byte('%dst', at)}, align 1")
        code.do(f"%end{size} = add i64 {at}, {size}")
        code.do(f"br label %{following}")
        before = f"size{size}"
    code.label("done")
    code.do("ret void")
    return "define internal void @ends(ptr %src, ptr %dst, i64 %n) noinline", code


def _rows_function() -> tuple[str, Code]:
    """Stream the rows of a buffer to their places in the destination."""
    code = Code()
    code.label("entry")
    rows = code.let(f"inttoptr i64 {code.load_word('%table', ROWS)} to ptr")
    count, nbytes, pitch = (code.load_word("%table", word) for word in (COUNT, ROW_BYTES, PITCH))
    with code.loop("row", count) as i:
        src = code.byte("%buffer", code.let(f"mul i64 {i}, {pitch}"))
        dst = code.byte("%dst", code.load_word(rows, i))
        address = code.let(f"ptrtoint ptr {dst} to i64")
        to_line = code.let(f"and i64 {code.let(f'sub i64 0, {address}')}, {LINE - 1}")
        code.do(f"call void @ends(ptr {src}, ptr {dst}, i64 {to_line})")
        left = code.let(f"sub i64 {nbytes}, {to_line}")
        lines = code.let(f"lshr i64 {left}, {LINE.bit_length() - 1}")
        first_src, first_dst = code.byte(src, to_line), code.byte(dst, to_line)
        with code.loop("line", lines) as line:
            at = code.let(f"shl i64 {line}, {LINE.bit_length() - 1}")
            value = code.let(f"load <{LINE} x i8>, ptr {code.byte(first_src, at)}, align 1")
            place = code.byte(first_dst, at)
            code.do(f"store <{LINE} x i8> {value}, ptr {place}, align {LINE}, !nontemporal !0")
        done = code.let(f"shl i64 {lines}, {LINE.bit_length() - 1}")
        rest = code.let(f"sub i64 {left}, {done}")
        code.do(f"call void @ends(ptr {code.byte(first_src, done)}, ptr {code.byte(first_dst, done)}, i64 {rest})")
    code.do("ret void")
    return "define internal void @rows(ptr %buffer, ptr %dst, ptr %table) noinline", code


def _entry_function(fence: str, pause: str) -> tuple[str, Code]:
    """Both passes of panel `begin` to `end`, exclusive."""
    code = Code()
    code.label("entry")
    code.do("%any = icmp ult i64 %begin, %end")
    code.do("br i1 %any, label %claim, label %exit")
    flag, buffer = _claim(code, pause)
    kernel = code.let(f"inttoptr i64 {code.load_word('%table', KERNEL)} to ptr")
    inner = code.let(f"inttoptr i64 {code.load_word('%table', TABLE)} to ptr")
    offsets = code.let(f"inttoptr i64 {code.load_word('%table', OFFSETS)} to ptr")
    tiles = code.load_word("%table", TILES)
    count = code.let("sub i64 %end, %begin")
    with code.loop("panel", count) as i:
        pair = code.let(f"shl i64 {code.let(f'add i64 %begin, {i}')}, 1")
        src = code.byte("%src", code.load_word(offsets, pair))
        dst = code.byte("%dst", code.load_word(offsets, code.let(f"add i64 {pair}, 1")))
        code.do(f"call void {kernel}(ptr {src}, ptr {buffer}, ptr {inner}, i64 0, i64 {tiles})")
        code.do(f"call void @rows(ptr {buffer}, ptr {dst}, ptr %table)")
    code.do_declared(fence)
    code.do(f"store atomic i64 0, ptr {flag} release, align 8")
    code.do("br label %exit")
    code.label("exit")
    code.do("ret void")
    return f"define void @{ENTRY}(ptr %src, ptr %dst, ptr %table, i64 %begin, i64 %end)", code


def _claim(code: Code, pause: str) -> tuple[str, str]:
    """Take a buffer of the pool; return the addresses of its flag and of the buffer."""
    code.label("claim")
    flags = code.let(f"inttoptr i64 {code.load_word('%table', FLAGS)} to ptr")
    pool = code.load_word("%table", POOL)
    code.do("br label %try")
    code.label("try")
    code.do("%number = phi i64 [0, %claim], [%following, %taken]")
    flag = code.word(flags, "%number")
    old = code.let(f"atomicrmw xchg ptr {flag}, i64 1 acq_rel")
    is_free = code.let(f"icmp eq i64 {old}, 0")
    code.do(f"br i1 {is_free}, label %claimed, label %taken")
    code.label("taken")
    code.do_declared(pause)
    one_more = code.let("add i64 %number, 1")
    is_last = code.let(f"icmp eq i64 {one_more}, {pool}")
    code.do(f"%following = select i1 {is_last}, i64 0, i64 {one_more}")
    code.do("br label %try")
    code.label("claimed")
    buffers = code.let(f"inttoptr i64 {code.load_word('%table', BUFFERS)} to ptr")
    return flag, code.byte(buffers, code.let(f"mul i64 %number, {BUFFER_BYTES}"))
