"""Reports of plans fit 80 columns whatever names say, list every step on request, and group what is equal."""

import re
import unicodedata
from collections.abc import Mapping
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from inlay.graph.axis_roles import familiar_tag, find_axis_roles
from inlay.graph.op_graph import Op, OpGraph, PermuteView
from inlay.graph.plan import Cliff, Plan, plan_graph
from inlay.graph.program import Alternative
from inlay.graph.report import MOST_ROWS, explain_plan, figures, heading
from inlay.graph.text_layout import format_table, merge_names, shorten_middle, wrap_text
from inlay.notation.format_tag import FormatTag
from tests.support.graph_programs import add, conv, drawn, graph_of, join, relu
from tests.support.planner_graphs import POOL, HashedCosts, drawn_graph

ODD = st.text(st.sampled_from("abcdefz0189/._- 层\uff21é\u0301\u200d\n\t\x1b\0\U0001f600\u05d0"), max_size=120)
"""Texts with wide letters, accents, controls and letters that run from right to left."""
NAMES = st.tuples(ODD, ODD, ODD)
SEEDS, LENGTHS = st.integers(0, 40), st.integers(1, 12)


def width_of(line: str) -> int:
    """Columns of a line in a terminal, at most: two for each letter that may be wide, none for accents."""
    return sum(
        0 if unicodedata.category(c) in ("Mn", "Me", "Cf") else 2 if unicodedata.east_asian_width(c) in "WF" else 1
        for c in line
    )


def renamed(graph: OpGraph, names: Mapping[str, str]) -> OpGraph:
    """The graph with other names of operations and tensors."""

    def new(name: str) -> str:
        return names.get(name, name)

    ops = tuple(
        replace(
            op,
            name=new(op.name),
            reads={argument: new(tensor) for argument, tensor in op.reads.items()},
            writes={argument: new(tensor) for argument, tensor in op.writes.items()},
        )
        for op in graph.ops
    )
    tensors = {new(name): replace(tensor, name=new(name)) for name, tensor in graph.tensors.items()}
    inputs, outputs = (tuple(map(new, which)) for which in (graph.inputs, graph.outputs))
    return replace(graph, name=new("drawn"), inputs=inputs, outputs=outputs, ops=ops, tensors=tensors)


def plan_with(seed: int, length: int, odd: tuple[str, str, str], scale: float = 1.0) -> Plan:
    """The plan of a random graph with these texts in its names, and a cliff."""
    graph = drawn_graph(seed, length)
    known = ["drawn", *graph.tensors, *(op.name for op in graph.ops)]
    names = {name: f"{odd[i % 3]}{name}{odd[(i + 1) % 3]}" for i, name in enumerate(known)}
    plan = plan_graph(renamed(graph, names), HashedCosts(seed))
    cliff = Cliff(names["t0"], {"src": "abcd", odd[0]: odd[1]}, odd[2], 25.0, 0.5, ("plan", odd[0]))
    steps = tuple(replace(step, ms=step.ms * scale) for step in plan.program.steps)
    totals = {**plan.totals, odd[0]: 1e7}
    program = replace(plan.program, steps=steps)
    return replace(plan, program=program, ms=plan.ms * scale, cliffs=(cliff,), totals=totals, engine=odd[1])


@settings(max_examples=25)
@given(SEEDS, LENGTHS, NAMES, st.sampled_from([1.0, 1e-6, 1e6]))
def test_no_line_is_wider_than_80_columns(seed: int, length: int, odd: tuple[str, str, str], scale: float) -> None:
    plan = plan_with(seed, length, odd, scale)
    texts = [explain_plan(plan), explain_plan(plan, every_step=True)]
    for line in "\n".join(texts).split("\n"):
        assert width_of(line) <= 80
        assert line.isprintable()
        assert line == line.rstrip()
    assert texts == [str(plan), plan.explain(every_step=True)]
    assert all(width_of(line) <= 80 for line in heading(plan))


@settings(max_examples=15)
@given(SEEDS, LENGTHS, NAMES)
def test_with_every_step_each_one_has_a_row_in_order(seed: int, length: int, odd: tuple[str, str, str]) -> None:
    plan = plan_with(seed, length, odd)
    table = explain_plan(plan, every_step=True).split("\n\n")[1].split("\n")
    assert table[0].split()[-1] == "ms"
    rows = [line for line in table[1:] if not re.fullmatch(r"-- \d+ x the same \d+ steps:|--|-- end", line)]
    times = [line.split()[-1] for line in rows[: len(plan.program.steps)]]
    assert times == [f"{step.ms:.3f}" for step in plan.program.steps]
    assert len(rows) <= len(plan.program.steps) + 1  # a line on views may follow


def repeated(blocks: int) -> OpGraph:
    """A network of equal blocks: two convolutions, a ReLU and a shortcut."""
    ops: list[Op] = [conv("stem/Conv", "x", "b0", drawn(16, 8, 1, 1))]
    for i in range(blocks):
        ops += [
            conv(f"blocks.{i}/one/Conv", f"b{i}", f"m{i}", drawn(16, 16, 1, 1, seed=i)),
            Op(f"blocks.{i}/Pool", "pooling", {"src": f"m{i}"}, {"dst": f"p{i}"}, parameters=POOL),
            replace(add(f"p{i}", f"b{i}", f"b{i + 1}"), name=f"blocks.{i}/Add"),
        ]
    dims = {name: (1, 16, 4, 4) for op in ops for name in (*op.reads.values(), *op.writes.values())}
    return graph_of(ops, {**dims, "x": (1, 8, 4, 4)}, "x", f"b{blocks}")


def test_equal_steps_are_one_row_and_equal_blocks_are_named() -> None:
    plan = plan_graph(repeated(12), HashedCosts(3))
    head, longest, blocks, *_ = explain_plan(plan).split("\n\n")
    steps = [step for step in plan.program.steps if "/one/Conv" in step.name]
    assert head.startswith("by hand: ")
    rows = longest.split("\n")
    assert len(rows) <= 1 + MOST_ROWS + 2
    assert len([row for row in rows if "/one/Conv" in row]) == 1
    ms = sum(step.ms for step in steps)
    share = f"{100 * ms / plan.ms:.1f} %"
    (row,) = [row for row in rows if "/one/Conv" in row]
    assert row.split()[:5] == [*share.split(), f"{ms:.3f}", "12", "x"]
    assert "blocks.*/one/Conv" in row
    assert re.search(r"12 x \d+ steps +blocks\.\*", blocks)
    (block,) = figures(plan)["blocks"]
    assert block["count"] == 12
    every = explain_plan(plan, every_step=True)
    assert f"-- 12 x the same {block['length']} steps:" in every
    assert all(step.name in every for step in steps)


def test_of_many_different_steps_the_longest_are_listed_and_the_others_counted() -> None:
    names = [f"t{i}" for i in range(15)]
    ops = [relu(f"relu{i}", *pair) for i, pair in enumerate(zip(["x", *names[:-1]], names, strict=True))]
    plan = plan_graph(graph_of(ops, dict.fromkeys(["x", *names], (2, 3)), "x", "t14"), HashedCosts(0))
    steps = tuple(replace(step, ms=float(i + 1), impl=f"jit{i}") for i, step in enumerate(plan.program.steps))
    plan = replace(plan, program=replace(plan.program, steps=steps), ms=120.0)
    table = explain_plan(plan).split("\n\n")[1].split("\n")
    assert [row.split()[3] for row in table[1:11]] == [f"relu{i}" for i in range(14, 4, -1)]
    assert table[11] == "the other 5 steps take 15.000 ms, 12.5 % (inlay plan --all lists every step)"


def test_reorders_of_equal_formats_are_one_row_with_their_sums() -> None:
    plan = next(plan for seed in range(99) if len((plan := plan_graph(repeated(6), HashedCosts(seed))).reorders) > 6)
    steps = tuple(
        replace(step, alternative=Alternative.known(0.0)) if step.kind == "reorder" else step
        for step in plan.program.steps
    )
    plan = replace(plan, program=replace(plan.program, steps=steps))
    (part,) = [part for part in explain_plan(plan).split("\n\n") if "reorders take" in part]
    lines = part.split("\n")
    rows = [line for line in lines[1:] if line.endswith("+0.000 ms")]
    counts = [int(found[1]) if (found := re.search(r"(\d+) x ", row)) else 1 for row in rows]
    assert sum(counts) == len(plan.reorders) > len(rows)
    assert sum(float(row.split()[0]) for row in rows) == pytest.approx(sum(s.ms for s in plan.reorders), abs=0.01)
    assert lines[-1] == "+0.000 ms: the best plan without it takes no longer, but has other reorders"
    assert "reads n" in part, "tags are those of images"


# Roles of axes


def test_axes_of_images_weights_and_sequences_have_their_letters() -> None:
    dims: dict[str, tuple[int, ...]] = {
        "x": (1, 16, 4, 4),
        "a": (1, 16, 4, 4),
        "b": (1, 16, 4, 4),
        "c": (1, 32, 4, 4),
        "f": (1, 4, 4, 32),
    }
    ops = [
        conv("conv", "x", "a", drawn(16, 16, 1, 1)),
        relu("relu", "a", "b"),
        join("b", "b", "c"),
        Op("turn", "view", {"src": "c"}, {"dst": "f"}, transforms=(PermuteView((0, 2, 3, 1)),)),
        Op("lstm", "lstm", {"src_layer": "s", "src_iter": "h"}, {"dst_layer": "t"}),
        Op("dynamic", "convolution", {"src": "i", "weights": "w"}, {"dst": "o"}),
    ]
    dims |= {"s": (3, 1, 8), "h": (1, 1, 1, 8), "t": (3, 1, 8), "i": (1, 4, 9), "w": (2, 2, 2, 3), "o": (1, 4, 7)}
    roles = find_axis_roles(graph_of(ops, dims, "x s h i w", "f t o"))
    assert roles == {
        **dict.fromkeys("xabc", "nchw"),
        **dict.fromkeys("st", "tnc"),
        **dict.fromkeys("io", "ncw"),
        "h": "ldnc",
        "w": "goiw",
    }


@pytest.mark.parametrize(
    ("tag", "roles", "familiar"),
    [
        ("abcd", "nchw", "nchw"),
        ("acdb", "nchw", "nhwc"),
        ("aBcd16b", "nchw", "nChw16c"),
        ("aBcde8b", "ncdhw", "nCdhw8c"),
        ("ABcd16b16a", "oihw", "OIhw16i16o"),
        ("aBCde4c16b4c", "goihw", "gOIhw4i16o4i"),
        ("abc", "tnc", "tnc"),
        ("ba", None, "ba"),
    ],
)
def test_a_familiar_tag_names_the_same_format(tag: str, roles: str | None, familiar: str) -> None:
    assert familiar_tag(tag, roles) == familiar
    assert FormatTag.parse(familiar) == FormatTag.parse(tag)


# Text


@given(ODD, st.integers(0, 60))
def test_a_text_is_shortened_to_its_ends(text: str, columns: int) -> None:
    found = shorten_middle(text, columns)
    assert width_of(found) <= columns
    assert found.isprintable()
    if "..." in found and "..." not in text and columns > 12 and text.isascii() and text.isprintable():
        begin, _, end = found.partition("...")
        assert text.startswith(begin)
        assert text.endswith(end)
        assert len(end) > len(begin)
        assert len(found) == columns
    if text.isprintable() and width_of(text) <= columns:
        assert found == text


@given(ODD, st.integers(12, 60))
def test_wrapped_text_has_all_words_that_fit(text: str, columns: int) -> None:
    lines = wrap_text(text, columns)
    assert all(width_of(line) <= columns for line in lines)
    if text.isascii() and text.isprintable() and all(len(word) <= columns - 2 for word in text.split()):
        assert " ".join(lines).split() == text.split()


def test_the_columns_that_may_are_narrowed_and_empty_ones_left_out() -> None:
    rows = [("name", "", "ms"), ("a/very/long/name/of/a/step/7", "", "1.000"), ("short", "", "12.000")]
    assert format_table(rows, right=(2,), shrink={0: 20}, columns=24).split("\n") == [
        "name                  ms",
        "a.../of/a/step/7   1.000",
        "short             12.000",
    ]


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        ([], ""),
        (["a"], "a"),
        (["a", "a"], "a"),
        (["Conv_1", "Conv_12", "Conv_3", "Conv_4"], "Conv_*"),
        (["l.0/b.1/Conv", "l.0/b.2/Conv"], "l.0/b.{1,2}/Conv"),
        (["l.0/b.1/Conv", "l.1/b.2/Conv"], "l.*/b.*/Conv"),
        (["layer.a/norm/Mul", "layer.bc/norm/Mul"], "layer.*/norm/Mul"),
        (["stem/Conv", "b.0/one/Conv", "b.1/one/Conv"], "b.{0,1}/one/Conv, ..."),
        (["conv", "relu", "x"], "conv, ..."),
        (["aa", "aaa"], "aa*"),
    ],
)
def test_names_are_merged(names: list[str], expected: str) -> None:
    assert merge_names(names) == expected


def test_a_step_is_called_by_its_first_operation_and_what_the_others_do() -> None:
    ops = [conv("Conv_0", "x", "a", drawn(16, 16, 1, 1)), relu("Relu_1", "a", "y")]
    graph = graph_of(ops, dict.fromkeys("xay", (1, 16, 4, 4)), "x", "y")
    plan = next(p for seed in range(99) if len((p := plan_graph(graph, HashedCosts(seed))).program.steps) == 1)
    assert "  Conv_0 +relu  " in explain_plan(plan)
