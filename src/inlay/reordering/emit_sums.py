"""The code that adds up int8 weights where they lie, as LLVM IR.

    inlay_sums(weights, sums, table, first sum, last sum)

A sum here is a register: as many 32-bit numbers as there are lanes, or, where neighbors in a register belong to one
channel anyway, half or a quarter as many. For each one, a loop of steps through the weights loads a register and adds
it. The table holds what the loops are, in words:

    0 loops that say which sum    1 loops around the steps    2, 3 how many steps, bytes from one to the next
    4 runs of the steps           5 ... (extent, bytes) of the loops, the fastest of each kind first

    OIhw4i16o4i   one sum: 16 o of 4 neighbors each; steps: 4 i and all of h, w and I, in one row
"""

from dataclasses import dataclass

from inlay.reordering.ir import Arithmetic, Code, Lanes

ENTRY = "inlay_sums"
"""The name of the function."""
WHICH, AROUND, STEPS, STEP, RUNS, LOOPS = range(6)
"""Words of the table."""


@dataclass(frozen=True, slots=True)
class SumKernel:
    """Everything that the code depends on, beside the target."""

    lanes: int
    """Weights that are loaded at once."""
    neighbors: int
    """How many in a row belong to one number: 1, 2 or 4."""

    @property
    def numbers(self) -> int:
        """The numbers of one sum."""
        return self.lanes // self.neighbors


def sums_ir(kernel: SumKernel, attributes: str, arithmetic: Arithmetic) -> str:
    """The module of `kernel`, with the function attributes of a target and what it has instructions for."""
    functions = (_offset_function(), _entry_function(kernel, arithmetic))
    texts = [f"{head} #0 {{\n" + "\n".join(code.lines) + "\n}" for head, code in functions]
    return "\n".join([*texts, f"attributes #0 = {{ nounwind {attributes} }}\n"])


def _offset_function() -> tuple[str, Code]:
    """How many bytes the values of `count` loops, which `index` says as one number, are away."""
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
    """Sums number `begin` to `end`, exclusive."""
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
    """The sum `%after` of the weights from `start` on that the steps and `loops` around them reach."""
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
    """The weights at `%here` as 32-bit numbers, neighbors added."""
    lanes = Lanes(code, kernel.numbers, arithmetic)
    width = 8 * kernel.neighbors
    element = f"i{width}"
    value = code.let(f"load {lanes.of(element)}, ptr %here, align 1")
    total = lanes.apply("ashr", element, value, width - 8) if width > 8 else value
    for low in range(width - 16, -1, -8):
        raised = lanes.apply("shl", element, value, width - 8 - low)
        total = lanes.apply("add", element, total, lanes.apply("ashr", element, raised, width - 8))
    return total if width == 32 else lanes.cast("sext", total, element, "i32")
