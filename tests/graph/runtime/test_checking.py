"""Programs that are wrong are refused before anything runs, each with the whole text."""

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from inlay.descriptor import MemoryDesc
from inlay.errors import InvalidArguments
from inlay.graph.op_graph import Op, OpGraph
from inlay.graph.program import Buffer, Program, Step
from inlay.graph.runtime.session import Session
from tests.support.graph_programs import RELU, Writing, conv, drawn, fused_sum, graph_of, relu, with_reference


def chain() -> OpGraph:
    """x -> a -> b -> y."""
    ops = [relu("one", "x", "a"), relu("two", "a", "b"), relu("three", "b", "y")]
    return graph_of(ops, dict.fromkeys("xaby", (2, 16, 3, 3)), "x", "y")


def written(graph: OpGraph, **bases: str) -> Writing:
    writing = Writing(graph)
    for name in graph.tensors:
        writing.buffer(name, base=bases.get(name, ""))
    return writing


def read_too_early() -> tuple[OpGraph, Program]:
    return (graph := chain()), written(graph).step("one").step("three").step("two").program()


def overwritten() -> tuple[OpGraph, Program]:
    ops = [relu("one", "x", "a"), relu("two", "a", "b"), relu("three", "a", "c"), relu("four", "b", "y")]
    graph = graph_of(ops, dict.fromkeys("xabcy", (2, 3)), "x", "y")
    writing = written(graph, b="a").step("one").step("two").step("three").step("four")
    return graph, writing.program()


def half_a_concatenation() -> tuple[OpGraph, Program]:
    ops = [
        relu("one", "x", "a"),
        relu("two", "x", "b"),
        Op("join", "concat", {"src_0": "a", "src_1": "b"}, {"dst": "c"}, parameters={"axis": 0}),
        relu("three", "c", "y"),
    ]
    graph = graph_of(ops, {**dict.fromkeys("xab", (2, 3)), **dict.fromkeys("cy", (4, 3))}, "x", "y")
    writing = Writing(graph).buffer("x").buffer("c").buffer("a", base="c").buffer("b").buffer("y")
    return graph, writing.step("one").step("two").step("three").program()


def another_format() -> tuple[OpGraph, Program]:
    graph = chain()
    writing = written(graph).buffer("a:nhwc", "nhwc", tensor="a", base="a").step("one").step("two", src="a:nhwc")
    return graph, writing.step("three").program()


def base_too_small() -> tuple[OpGraph, Program]:
    graph = chain()
    writing = written(graph).buffer("a:blocks", "nChw16c", tensor="a").step("one", dst="a:blocks")
    writing.buffer("b", base="a:blocks", offset=64)
    return graph, writing.program()


def unknown_base() -> tuple[OpGraph, Program]:
    return (graph := chain()), written(graph, a="attic").program()


def cyclic_base() -> tuple[OpGraph, Program]:
    return (graph := chain()), written(graph, a="b", b="a").program()


def begins_late() -> tuple[OpGraph, Program]:
    return (graph := chain()), written(graph).buffer("a", offset=4).program()


def no_such_tensor() -> tuple[OpGraph, Program]:
    graph = chain()
    program = written(graph).program()
    return graph, replace(program, buffers={**program.buffers, "t": Buffer("t", "tea", None, "t")})


def other_dims() -> tuple[OpGraph, Program]:
    return (graph := chain()), written(graph).buffer("a", MemoryDesc((2, 16, 9), "f32")).program()


def no_such_buffer() -> tuple[OpGraph, Program]:
    graph = chain()
    program = written(graph).step("one").program()
    return graph, replace(program, steps=(replace(program.steps[0], writes={"dst": "d"}),))


def twice() -> tuple[OpGraph, Program]:
    return (graph := chain()), written(graph).step("one").step("one").program()


def neither_operation_nor_node() -> tuple[OpGraph, Program]:
    graph = chain()
    return graph, replace(written(graph).program(), steps=(Step("one", "eltwise", {"src": "x"}, {"dst": "a"}),))


def sum_of_nothing() -> tuple[OpGraph, Program]:
    case = fused_sum()
    first, second = case.program.steps
    return case.graph, replace(case.program, steps=(first, replace(second, reads={"src": "x"})))


def sum_elsewhere() -> tuple[OpGraph, Program]:
    case = fused_sum()
    return case.graph, replace(
        case.program, buffers={**case.program.buffers, "y": replace(case.program.buffers["y"], base="y")}
    )


def convolution_in_place() -> tuple[OpGraph, Program]:
    graph = graph_of([conv("conv", "x", "y", drawn(4, 4, 1, 1))], dict.fromkeys("xy", (1, 4, 2, 2)), "x", "y")
    return graph, written(graph, y="x").step("conv").program()


def format_of_the_engine() -> tuple[OpGraph, Program]:
    graph = chain()
    program = written(graph).step("one").step("two").step("three").program()
    buffer = replace(program.buffers["a"], desc=MemoryDesc((2, 16, 3, 3), "f32", "nhwc"))
    return graph, replace(program, buffers={**program.buffers, "a": buffer})


def lacks_weights() -> tuple[OpGraph, Program]:
    case = fused_sum()
    first, second = case.program.steps
    return case.graph, replace(case.program, steps=(replace(first, constants={}), second))


def one_too_many() -> tuple[OpGraph, Program]:
    case = fused_sum()
    first, second = case.program.steps
    constants = {**first.constants, "bias": drawn(8)}
    return case.graph, replace(case.program, steps=(replace(first, constants=constants), second))


def blocks_for_numpy() -> tuple[OpGraph, Program]:
    case = with_reference()
    blocks = MemoryDesc((2, 3), "f32", "aB16b")
    buffers = {**case.program.buffers, "b": replace(case.program.buffers["b"], desc=blocks)}
    steps = list(case.program.steps)
    last = steps[-1].operation
    assert last is not None
    steps[-1] = replace(steps[-1], operation=replace(last, descs={"src": blocks, "dst": last.descs["dst"]}))
    return case.graph, replace(case.program, buffers=buffers, steps=tuple(steps))


def no_such_output() -> tuple[OpGraph, Program]:
    graph = chain()
    return graph, replace(written(graph).program(), outputs={"y": "z"})


PARTS = "write it before, or store what is written there elsewhere"
PLAIN = "MemoryDesc((2, 16, 3, 3), 'f32', 'abcd')"


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (
            read_too_early,
            f"step three reads src from buffer b, but nothing was written to all of its bytes: {PARTS}",
        ),
        (overwritten, f"step three reads src from buffer a, but b was written there since: {PARTS}"),
        (
            half_a_concatenation,
            f"step three reads src from buffer c, but nothing was written to all of its bytes: {PARTS}",
        ),
        (
            another_format,
            "step two reads src from buffer a:nhwc, but they hold a, the same tensor in another place or format: "
            f"{PARTS}",
        ),
        (
            base_too_small,
            "program of 1 steps: buffer b occupies bytes 64 to 1216 of buffer a:blocks, which has 1152: "
            "give it a larger base, or memory of its own",
        ),
        (unknown_base, "program of 0 steps: the base of buffer a is 'attic', which is no buffer: add one"),
        (cyclic_base, "program of 0 steps: the bases of buffer a form a cycle: give it memory of its own"),
        (begins_late, "program of 0 steps: buffer a has memory of its own and offset 4: make it 0"),
        (
            no_such_tensor,
            "program of 0 steps: buffer t is of tensor 'tea', which the graph does not have",
        ),
        (
            other_dims,
            "program of 0 steps: buffer a is MemoryDesc((2, 16, 9), 'f32', 'abc'), but tensor a has dims "
            "(2, 16, 3, 3) of float32: describe it so",
        ),
        (no_such_buffer, "step one: dst is buffer 'd', which the program does not have: add it"),
        (no_such_output, "y is buffer 'z', which the program does not have: add it"),
        (twice, "two steps of the program are called one: give each a name of its own"),
        (
            neither_operation_nor_node,
            "step one, a eltwise, has neither an operation nor a node: a reference has a node, all else an operation",
        ),
        (
            sum_of_nothing,
            "step main adds the old destination, and does not read it: a post-operation Sum and the read `sum` come "
            "together",
        ),
        (
            sum_elsewhere,
            "step main adds to s, and writes y elsewhere or in another format: a sum is done in place",
        ),
        (
            convolution_in_place,
            "step conv, a convolution: dst y shares bytes with src x: store it elsewhere",
        ),
        (
            format_of_the_engine,
            "step one: dst is buffer a, MemoryDesc((2, 16, 3, 3), 'f32', 'nhwc'), and reference takes "
            f"{PLAIN}: add a reorder, or ask the engine for this format",
        ),
        (lacks_weights, "step short, a convolution, lacks weights: it is given dst, src"),
        (one_too_many, "step short, a convolution, has no bias: it takes dst, src, weights"),
        (
            blocks_for_numpy,
            "step where is computed by NumPy, and buffer b is MemoryDesc((2, 3), 'f32', 'aB16b'): give it a format "
            "without blocks",
        ),
    ],
)
def test_a_wrong_program_is_refused(make: Callable[[], tuple[OpGraph, Program]], text: str) -> None:
    graph, program = make()
    with pytest.raises(InvalidArguments) as refused:
        Session(program, graph, engine="reference")
    assert str(refused.value) == text


def test_functions_of_elements_may_work_in_place() -> None:
    graph = chain()
    program = written(graph, b="a", y="a").step("one").step("two").step("three").program()
    x = drawn(2, 16, 3, 3)
    assert np.array_equal(Session(program, graph, engine="reference").run({"x": x})["y"], np.maximum(x, 0))


def test_a_sum_in_place_of_an_input_leaves_the_input_to_others_before_it() -> None:
    w = drawn(4, 4, 1, 1)
    add = Op("add", "binary", {"src_0": "m", "src_1": "x"}, {"dst": "y"}, parameters={"algorithm": "add"})
    act = Op("act", "eltwise", {"src": "x"}, {"dst": "z"}, parameters=RELU)
    graph = graph_of([conv("conv", "x", "m", w), act, add], dict.fromkeys("xmyz", (1, 4, 2, 2)), "x", "y z")
    late = written(graph, y="x").step("conv").step("add", src_0="m", src_1="x")
    late.steps[-1] = replace(late.steps[-1], name="add")
    program = late.step("act").program()
    with pytest.raises(InvalidArguments) as refused:
        Session(program, graph, engine="reference")
    assert str(refused.value) == "step add, a binary: dst y shares bytes with src_1 x: store it elsewhere"
