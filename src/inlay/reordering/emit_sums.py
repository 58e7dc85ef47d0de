"""Code generation for the sums of int8 weights, as LLVM IR.

    inlay_sums(weights, sums, table, first sum, last sum)

One sum is a vector register of 32-bit numbers, one for each lane; or half or a quarter as many, if 2 or 4 neighboring
weights belong to one channel and are added first. For each sum, a loop steps through the weights, loads a register and
adds it. The words of the table describe the loops:

    0        number of loops that number the sums
    1        number of loops around the steps
    2, 3     number of steps, and bytes from one step to the next
    4        number of times that the steps are executed: the product of the extents of the loops around them
    5 ...    (extent, stride in bytes) of the loops of word 0, then of word 1, innermost first

    OIhw4i16o4i   one sum: 16 o of 4 neighbors each; steps: 4 i and all of h, w and I, which are contiguous
"""

from dataclasses import dataclass

from inlay.reordering.instructions import Arithmetic
from inlay.reordering.ir import Code, Lanes

ENTRY = "inlay_sums"
"""Name of the function."""
WHICH, AROUND, STEPS, STEP, RUNS, LOOPS = range(6)
"""Positions of the words in the table."""


@dataclass(frozen=True, slots=True)
class SumKernel:
    """The inputs of code generation, without the target."""

    lanes: int
    """Number of weights in one load."""
    neighbors: int
    """Number of consecutive weights that are added to one number: 1, 2 or 4."""

    @property
    def numbers(self) -> int:
        """Number of 32-bit numbers of one sum."""
        return self.lanes // self.neighbors


def sums_ir(kernel: SumKernel, attributes: str, arithmetic: Arithmetic) -> str:
    """Return the module of `kernel`; `attributes` are the LLVM function attributes of the target."""
    functions = (_offset_function(), _entry_function(kernel, arithmetic))
    texts = [f"{head} #0 {{\n" + "\n".join(code.lines) + "\n}" for head, code in functions]
    return "\n".join([*texts, f"attributes #0 = {{ nounwind {attributes} }}\n"])


def _offset_function() -> tuple[str, Code]:
    """Write a function that returns the offset in bytes of combined iteration `index` of `count` nested loops."""
    code = Code()
    code.label("entry")
    code.do("br label %head")
    code.label("head")
    code.do("%loop = phi i64 [0, %entry], [%loop_next, %body]")
    code.do("%rest = phi i64 [%index, %entry], [%rest_next, %body]")
    code.do("%at = phi i64 [0, %entry], [%at_next, %body]")
    code.do("%any = icmp ult i64 %loop, %count")
    code.do("br i1 %any, label %body, label %exit")
    code.label("body")
    words = code.word("%loops", code.let("shl i64 %loop, 1"))
    extent, stride = code.load_word(words, 0), code.load_word(words, 1)
    value = code.let(f"urem i64 %rest, {extent}")
    code.do(f"%rest_next = udiv i64 %rest, {extent}")
    code.do(f"%at_next = add i64 %at, {code.let(f'mul i64 {value}, {stride}')}")
    code.do("%loop_next = add i64 %loop, 1")
    code.do("br label %head")
    code.label("exit")
    code.do("ret i64 %at")
    return "define internal i64 @place(ptr %loops, i64 %count, i64 %index)", code


def _entry_function(kernel: SumKernel, arithmetic: Arithmetic) -> tuple[str, Code]:
    """Write the entry function, which computes sums `begin` to `end`, exclusive."""
    code = Code()
    vector = f"<{kernel.numbers} x i32>"
    code.label("entry")
    which = code.load_word("%table", WHICH)
    loops = code.word("%table", LOOPS)
    others = code.word(loops, code.let(f"shl i64 {which}, 1"))
    code.do("br label %sum")
    code.label("sum")
    code.do("%index = phi i64 [%begin, %entry], [%index_next, %sum_done]")
    code.do("%more = icmp ult i64 %index, %end")
    code.do("br i1 %more, label %find, label %exit")
    code.label("find")
    start = code.byte("%weights", code.let(f"call i64 @place(ptr {loops}, i64 {which}, i64 %index)"))
    _emit_accumulation(code, kernel, arithmetic, start, others)
    code.label("sum_done")
    place = code.byte("%sums", code.let(f"mul i64 %index, {4 * kernel.numbers}"))
    code.do(f"store {vector} %after, ptr {place}, align 4")
    code.do("%index_next = add i64 %index, 1")
    code.do("br label %sum")
    code.label("exit")
    code.do("ret void")
    return f"define void @{ENTRY}(ptr %weights, ptr %sums, ptr %table, i64 %begin, i64 %end)", code


def _emit_accumulation(code: Code, kernel: SumKernel, arithmetic: Arithmetic, start: str, loops: str) -> None:
    """Append the loops that accumulate one sum, `%after`, over the weights from `start` on."""
    vector = f"<{kernel.numbers} x i32>"
    around, steps, step, runs = (code.load_word("%table", word) for word in (AROUND, STEPS, STEP, RUNS))
    code.do("br label %run")
    code.label("run")
    code.do("%run_index = phi i64 [0, %find], [%run_next, %run_done]")
    code.do(f"%before = phi {vector} [zeroinitializer, %find], [%after, %run_done]")
    first = code.byte(start, code.let(f"call i64 @place(ptr {loops}, i64 {around}, i64 %run_index)"))
    code.do("br label %step")
    code.label("step")
    code.do("%count = phi i64 [0, %run], [%count_next, %step]")
    code.do(f"%here = phi ptr [{first}, %run], [%there, %step]")
    code.do(f"%sofar = phi {vector} [%before, %run], [%after, %step]")
    code.do(f"%after = add {vector} %sofar, {_load_widened(code, kernel, arithmetic)}")
    code.do(f"%there = getelementptr i8, ptr %here, i64 {step}")
    code.do("%count_next = add i64 %count, 1")
    code.do(f"%again = icmp ult i64 %count_next, {steps}")
    code.do("br i1 %again, label %step, label %run_done")
    code.label("run_done")
    code.do("%run_next = add i64 %run_index, 1")
    code.do(f"%rerun = icmp ult i64 %run_next, {runs}")
    code.do("br i1 %rerun, label %run, label %sum_done")


def _load_widened(code: Code, kernel: SumKernel, arithmetic: Arithmetic) -> str:
    """Append a load of the weights at `%here` as 32-bit numbers, with neighbors added; return its name."""
    lanes = Lanes(code, kernel.numbers, arithmetic)
    width = 8 * kernel.neighbors
    element = f"i{width}"
    value = code.let(f"load {lanes.of(element)}, ptr %here, align 1")
    total = lanes.apply("ashr", element, value, width - 8) if width > 8 else value
    for low in range(width - 16, -1, -8):
        raised = lanes.apply("shl", element, value, width - 8 - low)
        total = lanes.apply("add", element, total, lanes.apply("ashr", element, raised, width - 8))
    return total if width == 32 else lanes.cast("sext", total, element, "i32")
