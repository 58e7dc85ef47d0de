"""Profiles: what is measured, and what is shown of it."""

import json
import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from inlay.errors import FileError, InvalidArguments
from inlay.graph.network import Node
from inlay.graph.op_graph import Op
from inlay.graph.plan import plan_graph
from inlay.graph.profiling import Profile
from inlay.graph.runtime.plain import plain_program
from inlay.graph.runtime.program_session import ProgramSession
from inlay.graph.session import Session
from inlay.measure.statistics import Spread
from tests.support.graph_programs import CASES, blocked, conv, drawn, graph_of, relu, views, with_reference
from tests.support.planner_graphs import HashedCosts
from tests.support.profiles import profile_of, require_narrow
from tests.support.refusals import raises_exactly


def chain(count: int, blocks: int = 1) -> Profile:
    """A profile of `blocks` times `count` ReLUs, each of other dims than the others of its block."""
    names = [(f"{block}.{i}", (i + 1, 3)) for block in range(blocks) for i in range(count)]
    ops = [relu(f"op{name}", f"x{name}", f"y{name}") for name, _ in names]
    dims = {f"{side}{name}": its for name, its in names for side in "xy"}
    inputs, outputs = (" ".join(f"{side}{name}" for name, _ in names) for side in "xy")
    graph = graph_of(ops, dims, inputs, outputs)
    program = plain_program(graph)
    program = replace(program, steps=tuple(replace(step, impl="jit:avx2", ms=0.5) for step in program.steps))
    return profile_of(program, graph, [1.0 + k % count for k in range(len(names))])


def rows_of(table: str) -> list[str]:
    """The lines of the table itself, without its head."""
    lines = table.splitlines()
    first = next(i for i, line in enumerate(lines) if line.split()[:2] == ["share", "ms"])
    return [line for line in lines[first + 1 :] if line.split()[1:2] == ["%"]]


@pytest.mark.parametrize("name", CASES)
def test_a_profile_has_every_step_in_order_with_its_share(name: str) -> None:
    case = CASES[name]()
    profile = ProgramSession(case.program, case.graph, engine="reference").profile(case.inputs(), runs=4)
    assert [one.step for one in profile] == list(case.program.steps)
    assert sum(one.share for one in profile) == pytest.approx(1.0)
    assert profile.steps_ms == pytest.approx(sum(one.ms for one in profile))
    assert all(0 < one.time.low <= one.ms <= one.time.high for one in profile)
    assert 0 < profile.run.low <= profile.run.median <= profile.run.high
    assert (profile.network, profile.runs, profile.threads) == ("by hand", 4, 1)
    assert profile.engine.startswith("reference")
    assert not profile.is_exact
    require_narrow(profile.table(top=None))


def test_a_profile_is_a_sequence() -> None:
    profile = chain(3)
    assert (len(profile), profile[0], profile[-1]) == (3, profile.timings[0], profile.timings[2])
    assert profile[1:] == profile.timings[1:]
    assert list(profile) == list(profile.timings)
    assert [one.ms for one in profile] == [1.0, 2.0, 3.0]


def test_formats_are_familiar_tags() -> None:
    case = blocked()
    profile = ProgramSession(case.program, case.graph, engine="reference").profile(case.inputs(), runs=1)
    assert [one.formats for one in profile] == ["nchw -> nChw16c", "nChw16c, nchw -> nChw16c", "nChw16c -> nchw"]
    case = with_reference()
    profile = ProgramSession(case.program, case.graph, engine="reference").profile(case.inputs(), runs=1)
    assert [one.formats for one in profile] == ["ab", "ab -> array", "array, ab -> ab", "ab"]


def test_a_format_without_a_tag_is_strided() -> None:
    case = views()
    profile = ProgramSession(case.program, case.graph, engine="reference").profile(case.inputs(), runs=1)
    assert profile[1].formats == "strided -> abcd"


def test_the_representation_is_one_line_without_weights() -> None:
    case = blocked()
    profile = ProgramSession(case.program, case.graph, engine="reference").profile(case.inputs(), runs=2)
    for text in (repr(profile), *map(repr, profile)):
        assert len(text) < 200
        assert "array" not in text
        assert "\n" not in text
    assert repr(chain(3)) == (
        "<Profile of by hand: a run 6.000 ms, 1.500 ms predicted; 3 steps one by one 6.000 ms; slowest op0.2, 3.000 ms>"
    )
    assert repr(chain(3)[0]) == "<op0.0: eltwise, ab, jit:avx2; 1.000 ms, predicted 0.500 ms>"


def test_a_program_without_steps_has_a_profile() -> None:
    graph = graph_of([], {"x": (2, 3)}, "x", "x")
    profile = ProgramSession(plain_program(graph), graph, engine="reference").profile({"x": drawn(2, 3)}, runs=2)
    assert (len(profile), profile.steps_ms, profile.predicted_ms) == (0, 0.0, None)
    assert repr(profile).startswith("<Profile of by hand: a run ")
    require_narrow(str(profile))


TABLE = """\
by hand: a run takes 20.000 ms (20.000 to 20.000); predicted 6.000 ms
12 steps one by one, each waited for: 24.000 ms
engine 1.0, 2 threads, medians of 5 runs

 share      ms  predicted  count  step   formats  kernel
50.0 %  12.000      2.000      4  op*.2  ab       jit
33.3 %   8.000      2.000      4  op*.1  ab       jit
4 more steps: 4.000 ms, 16.7 %

4 x 3 equal steps take 24.000 ms, 100.0 %: op0.0 to op0.2"""


def test_equal_steps_are_a_row_and_repeated_blocks_are_named() -> None:
    profile = replace(chain(3, blocks=4), run=Spread(20.0, 20.0, 20.0))
    assert profile.table(top=2) == TABLE
    assert len(rows_of(profile.table(top=None))) == 3
    assert "more step" not in profile.table(top=None)


def test_rows_are_sorted_by_share_and_sum_up_to_all() -> None:
    profile = chain(15, blocks=2)
    rows = rows_of(profile.table(top=None))
    shares = [float(row.split()[0]) for row in rows]
    assert shares == sorted(shares, reverse=True)
    assert sum(shares) == pytest.approx(100, abs=1)
    assert sum(int(row.split()[4]) for row in rows) == 30
    assert len(rows_of(str(profile))) == 10
    (rest,) = [line for line in str(profile).splitlines() if " more steps: " in line]
    assert float(rest.split()[3]) == pytest.approx(2 * sum(range(1, 6)))


def test_steps_of_other_implementations_are_rows_of_their_own() -> None:
    profile = chain(1, blocks=2)
    first, second = profile
    other = replace(profile, timings=(first, replace(second, impl="ref:any")))
    assert [row.split()[-1] for row in rows_of(other.table())] == ["jit", "ref:any"]


def test_long_names_are_cut_so_that_lines_fit() -> None:
    profile = chain(2)
    ops = tuple(f"/encoder/layers.{i}/attention/query/MatMul" for i in range(5))
    timings = [
        replace(one, label=" +".join(ops), formats="nChw16c, nChw16c -> nChw16c", impl="brgconv:avx512_core")
        for one in profile
    ]
    long = replace(profile, network="n" * 300, timings=tuple(timings))
    require_narrow(long.table())
    require_narrow(repr(long)[:80])
    assert all("MatMul" in row and "brg" in row and "..." in row for row in rows_of(long.table()))


@pytest.mark.parametrize("top", [0, -1, 1.5, "ten", True])
def test_a_number_of_rows_is_from_1_on(top: object) -> None:
    with raises_exactly(InvalidArguments, f"top is {top!r}: give the number of rows, from 1 on, or None for all rows"):
        chain(2).table(top=top)  # type: ignore[arg-type]


def test_figures_are_json() -> None:
    profile = chain(3)
    figures = json.loads(json.dumps(profile.figures(), allow_nan=False))
    assert figures["steps_ms"] == 6.0
    assert figures["predicted_ms"] == 1.5
    assert figures["run"] == {"ms": 6.0, "low": 6.0, "high": 6.0}
    assert [step["ms"] for step in figures["steps"]] == [1.0, 2.0, 3.0]
    assert figures["steps"][0] | {"share": 0} == {
        "name": "op0.0",
        "label": "op0.0",
        "kind": "eltwise",
        "ops": ["op0.0"],
        "formats": "ab",
        "impl": "jit:avx2",
        "ms": 1.0,
        "low": 1.0,
        "high": 1.0,
        "predicted": 0.5,
        "source": "modelled",
        "share": 0,
        "nbytes": profile[0].step.nbytes,
    }


def events_of(path: Path) -> list[dict[str, object]]:
    content = json.loads(path.read_text())
    events: list[dict[str, object]] = content["traceEvents"]
    return events


def require_trace_format(events: Sequence[dict[str, object]]) -> None:
    """The rules of the Trace Event Format that Perfetto needs."""
    for event in events:
        assert event["ph"] in ("X", "M")
        assert isinstance(event["name"], str)
        assert all(isinstance(event[key], int) for key in ("pid", "tid"))
        assert isinstance(event["args"], dict)
        if event["ph"] == "X":
            assert isinstance(event["cat"], str)
            assert all(isinstance(event[key], float) and event[key] >= 0 for key in ("ts", "dur"))  # type: ignore[operator]
        else:
            assert event["name"] in ("process_name", "thread_name")
            assert isinstance(event["args"]["name"], str)


def test_a_trace_has_the_steps_one_after_the_other(tmp_path: Path) -> None:
    profile, path = chain(3), tmp_path / "trace.json"
    profile.save_trace(path)
    events = events_of(path)
    require_trace_format(events)
    tracks = {event["args"]["name"]: event["tid"] for event in events if event["name"] == "thread_name"}  # type: ignore[index]
    assert list(tracks) == ["whole run", "steps one by one", "steps as predicted"]
    spans = {
        name: [(one["name"], one["ts"], one["dur"]) for one in events if one["ph"] == "X" and one["tid"] == track]
        for name, track in tracks.items()
    }
    assert spans["whole run"] == [("by hand", 0.0, 6000.0)]
    assert spans["steps one by one"] == [("op0.0", 0.0, 1000.0), ("op0.1", 1000.0, 2000.0), ("op0.2", 3000.0, 3000.0)]
    assert spans["steps as predicted"] == [("op0.0", 0.0, 500.0), ("op0.1", 500.0, 500.0), ("op0.2", 1000.0, 500.0)]
    assert [path.name for path in tmp_path.iterdir()] == ["trace.json"]


@pytest.mark.parametrize("name", CASES)
def test_measured_profiles_make_valid_traces(tmp_path: Path, name: str) -> None:
    case = CASES[name]()
    profile = ProgramSession(case.program, case.graph, engine="reference").profile(case.inputs(), runs=1)
    profile.save_trace(str(tmp_path / "trace.json"))
    events = events_of(tmp_path / "trace.json")
    require_trace_format(events)
    assert len([event for event in events if event["ph"] == "X"]) == len(profile) + 1  # these have no predictions


def test_a_trace_is_written_completely_or_not_at_all(tmp_path: Path) -> None:
    path = tmp_path / "trace.json"
    path.write_text("before")
    broken = replace(chain(1), run=Spread(float("nan"), 0.0, 0.0))
    with pytest.raises(ValueError, match="JSON"):
        broken.save_trace(path)
    assert path.read_text() == "before"
    with pytest.raises(FileError, match="does not exist; create it first"):
        chain(1).save_trace(tmp_path / "nowhere" / "trace.json")


def test_predictions_are_those_of_the_plan() -> None:
    graph = graph_of([conv("conv", "x", "y", drawn(3, 2, 1, 1))], {"x": (1, 2, 4, 4), "y": (1, 3, 4, 4)}, "x", "y")
    plan = plan_graph(graph, HashedCosts())
    profile = Session(None, plan, engine="reference").profile({"x": drawn(1, 2, 4, 4)}, runs=1)
    assert [one.predicted for one in profile] == [step.ms for step in plan.program.steps]
    assert profile.predicted_ms == pytest.approx(plan.ms)
    assert f"predicted {plan.ms:.3f} ms" in str(profile)


def test_inputs_whose_bytes_other_tensors_use_are_copied_before_each_run() -> None:
    """An arena stores later tensors where the indices were; a run that began with these would refuse them."""
    gather = Node("gather", "Gather", ("table", "ids"), ("g",), {"axis": 0})
    ops = [
        Op("gather", "reference", {"src_1": "ids"}, {"dst_0": "g"}, {"table": drawn(4, 2)}, node=gather),
        relu("one", "g", "a"),
        relu("two", "a", "b"),
        relu("three", "b", "y"),
    ]
    dims = {"ids": (8,), **dict.fromkeys("gaby", (8, 2))}
    graph = graph_of(ops, dims, "ids", "y", ids=np.int64)
    session = ProgramSession(plain_program(graph), graph, engine="reference")
    ids = np.array([0, 1, 2, 3, 3, 2, 1, 0])
    assert len(session.profile({"ids": ids}, runs=3)) == len(session.program.steps)
    assert np.array_equal(ids, [0, 1, 2, 3, 3, 2, 1, 0])


def test_a_whole_run_and_its_steps_are_both_stated() -> None:
    profile = replace(chain(3), run=Spread(5.0, 4.5, 5.5))
    whole, steps, _, *_ = str(profile).splitlines()
    assert whole == "by hand: a run takes 5.000 ms (4.500 to 5.500); predicted 1.500 ms"
    assert steps == "3 steps one by one, each waited for: 6.000 ms"
    assert "exact kernels" not in str(profile)
    assert "exact kernels ran: these inputs lead to NaN" in str(replace(profile, is_exact=True))


def test_names_of_a_model_cannot_control_the_terminal() -> None:
    profile = chain(1)
    (one,) = profile
    spoiled = replace(profile, network="net\x1b[2J", timings=(replace(one, label="a\x1b[31mb\n"),))
    for text in (str(spoiled), repr(spoiled)):
        assert not re.search(r"\x1b|b\n\n", text)
