"""What the benchmark says of its times: several runs as one, aims, a file that a run goes on with, a picture."""

import json
import math
import subprocess
import sys
from dataclasses import replace
from fnmatch import fnmatch
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from benchmarks.aims import Aim, Reason, aims_over, known_reasons, missed_aims, missed_by, stale_reasons
from benchmarks.buffers import ThreadedMemcpy
from benchmarks.cases import Case, Pair, Size, all_cases
from benchmarks.record import (
    Figure,
    Machine,
    Record,
    Row,
    Setup,
    Unreadable,
    as_json,
    load_record,
    merge_records,
    open_record,
    rows_of,
)
from benchmarks.report import bar_of, bystander_lines, met_text, misses_table
from benchmarks.rounds import Result, Rounds, measure_in_quiet
from inlay.bench.measurement import Measurement, percent_text
from inlay.descriptor import Extras
from inlay.measure.statistics import Spread
from inlay.render.bars import SCALE, draw_bars
from inlay.reordering.attributes import Attributes, Scales, ZeroPoints
from tests.support.paths import ROOT
from tests.support.refusals import raises_exactly

L2, BEYOND = Size("L2", 1 << 19), Size("beyond", 1 << 27, warm=False)
CASE = Case(Pair("ab", "ba", "f32", "f32", "", "promised", 80), BEYOND, (4096, 4096))
FAMILY = Case(Pair("oihw", "hwio", "f32", "s8", "a note", "weights"), L2, (64, 80, 3, 3))
MACHINE = Machine(("a processor", "a system"), (0, 1), 1 << 20, 1 << 25)
SETUP = Setup(MACHINE, Rounds(count=3), {"Inlay": "1.0", "oneDNN": "3.2.0"}, {"torch": "pip install torch"})


def result(case: Case = CASE, run: int = 0, share: float | None = 0.0, **seconds: float) -> Result:
    """Times that are the same in three rounds; the copy takes a second."""
    times = {name: [t, t, t] for name, t in seconds.items()}
    return Result(case, Measurement(times, {"memcpy": [1.0, 1.0, 1.0]}), run, share)


def like(case: Case, **changed: Any) -> Case:
    """A case whose pair is another one."""
    return replace(case, pair=replace(case.pair, **changed))


def row(case: Case = CASE, **seconds: float) -> Row:
    return rows_of([result(case, 0, None, **seconds)])[0]


def inlay_times(record: Record) -> list[tuple[str, int, float]]:
    """The label, the run and the first time of Inlay, of each result."""
    return [(r.case.label, r.run, r.measured.seconds["Inlay"][0]) for r in record.results]


def test_of_three_runs_a_figure_is_the_middle_one_between_the_lowest_and_the_highest() -> None:
    rows = rows_of([result(run=i, Inlay=inlay, oneDNN=2.0) for i, inlay in enumerate((1.25, 2.0, 1.0))])
    assert [len(r.results) for r in rows] == [3]
    assert rows[0].percent_of_copy("Inlay") == Spread(80.0, 50.0, 100.0)
    assert rows[0].times_faster_than("oneDNN") == Spread(1.6, 1.0, 2.0)


def test_a_peer_that_one_run_lacks_has_no_figure_and_its_reason_is_kept() -> None:
    without = Result(CASE, Measurement({"Inlay": [1.0]}, {"memcpy": [1.0]}, {"oneDNN": "unimplemented"}), 1)
    (found,) = rows_of([result(Inlay=1.0, oneDNN=2.0), without])
    assert found.peers == ["Inlay"]
    assert found.absent == {"oneDNN": "unimplemented"}


def test_results_of_one_case_stand_in_one_row_and_of_two_in_two() -> None:
    smaller = replace(CASE, size=L2, dims=(256, 256))
    rows = rows_of([result(run=0), result(smaller, run=0), result(run=1), result(smaller, run=1)])
    assert [(r.case.label, len(r.results)) for r in rows] == [("ab -> ba f32 beyond", 2), ("ab -> ba f32 L2", 2)]


@pytest.mark.parametrize(
    ("case", "seconds", "missed"),
    [
        (CASE, {"Inlay": 1.25, "oneDNN": 1.25}, []),
        (CASE, {"Inlay": 1.26, "oneDNN": 1.3}, ["copy"]),
        (CASE, {"Inlay": 1.0, "oneDNN": 0.9, "oneDNN 3.13": 1.1, "torch": 0.5}, ["oneDNN"]),
        (CASE, {"Inlay": 2.0, "oneDNN": 0.9, "oneDNN 3.13": 1.1}, ["copy", "oneDNN", "oneDNN 3.13"]),
        (FAMILY, {"Inlay": 9.0, "oneDNN": 9.5}, []),
        (FAMILY, {"Inlay": 9.0, "NumPy": 1.0}, None),
    ],
)
def test_a_case_misses_its_percentage_or_a_rival(
    case: Case, seconds: dict[str, float], missed: list[str] | None
) -> None:
    assert missed_by(row(case, **seconds)) == missed
    assert met_text(row(case, **seconds)) == (
        "-" if missed is None else "NO: " + ", ".join(missed) if missed else "yes"
    )


def test_aims_over_many_cases_count_and_average_the_promised_ones() -> None:
    faster = like(CASE, dst_tag="aB16b", aim=85)
    rows = [
        row(CASE, Inlay=1.0, oneDNN=2.0, NumPy=9.0),
        row(faster, Inlay=2.0, oneDNN=16.0, NumPy=18.0),
        row(replace(CASE, size=L2), Inlay=1.0, oneDNN=0.5),
        row(FAMILY, Inlay=1.0, oneDNN=0.5),
    ]
    assert aims_over(rows) == [
        Aim("promised cases beyond the L3: at 85 % of the copy", "0 of 1", "1", False),
        Aim("promised cases beyond the L3: at 80 % of the copy", "1 of 1", "1", True),
        Aim("promised cases beyond the L3: geometric mean x oneDNN", "4.00", ">= 2.5", True),
        Aim("promised cases beyond the L3: geometric mean x NumPy", "9.00", ">= 10", False),
        Aim("promised cases: slower than oneDNN", "1 of 3", "0", False),
        Aim("cases of the families: slower than oneDNN", "1 of 1", "0", False),
    ]


def test_drawn_pairs_have_aims_of_their_own() -> None:
    beyond = like(CASE, table="drawn", aim=60)
    small = replace(beyond, size=L2)
    rows = [
        row(beyond, Inlay=2.0, oneDNN=4.0),
        row(like(beyond, dst_tag="aB16b"), Inlay=1.0, oneDNN=0.5),
        row(small, Inlay=1.0, oneDNN=1.0, NumPy=2.0),
        row(like(small, dst_tag="aB16b"), Inlay=1.0, oneDNN=2.0, NumPy=0.9),
    ]
    assert aims_over(rows) == [
        Aim("drawn cases beyond the L3: at 60 % of the copy", "1 of 2", "2", False),
        Aim("drawn cases beyond the L3: geometric mean, % of the copy", "71", ">= 70", True),
        Aim("drawn cases in caches: not slower than the fastest peer", "50% of 2", ">= 95%", False),
    ]


def test_a_miss_stands_beside_its_reason_and_a_reason_without_a_miss_is_stale() -> None:
    rows = [
        row(CASE, Inlay=2.0, oneDNN=1.0),
        row(FAMILY, Inlay=1.0, oneDNN=0.5),
        row(like(CASE, dst_tag="aB8b"), Inlay=1.0),
    ]
    transposed = Reason("ab -> ba*beyond", "copy", "4096 rows share a set of the cache", "blocks of 8 rows: 3 % more")
    never = Reason("ab -> aB8b*", "", "not missed", "")
    elsewhere = Reason("nchw -> nhwc*", "", "not measured", "")
    found = missed_aims(rows, [transposed, never, elsewhere])
    assert [(row.case.label, missed, reason) for row, missed, reason in found] == [
        ("ab -> ba f32 beyond", "copy", transposed),
        ("ab -> ba f32 beyond", "oneDNN", None),
        ("oihw -> hwio f32 -> s8 a note L2", "oneDNN", None),
    ]
    assert stale_reasons([transposed, never, elsewhere], rows) == [never]
    table = misses_table(found)
    assert table.title == "Missed: 3: 2 without a reason"
    cells = [[str(cell) for cell in column.cells] for column in table.columns]
    assert cells[1] == ["50.0 [50-50] % of copy", "0.50 [0.50-0.50] x oneDNN", "0.50 [0.50-0.50] x oneDNN"]
    assert cells[2] == ["80 %", "1", "1"]
    assert cells[3] == [transposed.reason, *["no reason is written down"] * 2]
    assert cells[4] == [transposed.tried, "", ""]


def test_the_projects_reasons_are_about_cases_that_exist() -> None:
    labels = [case.label.lower() for case in all_cases(MACHINE.sizes)]
    for reason in known_reasons():
        assert any(fnmatch(label, reason.case.lower()) for label in labels), reason.case


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("miss = [", "misses.toml holds no list of reasons: "),
        ("", "misses.toml holds no list of reasons: KeyError('miss')"),
        ("[[miss]]\ncase = 'a'\nreason = 'b'\nwhy = 'c'", "misses.toml holds no list of reasons: TypeError("),
        ("[[miss]]\ncase = 'a'\nreason = ''", "misses.toml has an entry without a case or without a reason: "),
        (
            "[[miss]]\ncase = 'a'\nreason = 'b'\nmisses = 'torch'",
            "misses.toml: 'torch' is no aim: give one of copy, oneDNN, oneDNN 3.13",
        ),
    ],
)
def test_a_file_of_reasons_that_says_nothing_is_refused(tmp_path: Path, text: str, words: str) -> None:
    path = tmp_path / "misses.toml"
    path.write_text(text)
    with pytest.raises(Unreadable) as refused:
        known_reasons(path)
    assert str(refused.value).startswith(words)


def test_json_holds_every_time_and_the_figures_formed_from_them() -> None:
    seconds = {"Inlay": [2.0, 4.0, 4.0], "NumPy": [8.0, 8.0, 12.0]}
    copies = {"slow": [4.0, 4.0, 4.0], "a": [1.0, 2.0, 1.0]}
    measured = Result(CASE, Measurement(seconds, copies, {"b": "no"}))
    figures = [Figure("import inlay", Spread(0.2, 0.1, 0.3), 0.15)]
    read = json.loads(json.dumps(as_json(Record(SETUP, None, [measured], figures))))
    measurements = read["results"][0]["measured"]
    assert measurements["NumPy"]["seconds"] == [8.0, 8.0, 12.0]
    assert measurements["Inlay"]["percent_of_copy"] == {"median": 50.0, "low": 37.5, "high": 50.0}
    assert measurements["NumPy"]["inlay_is_times_as_fast"] == {"median": 3.0, "low": 2.5, "high": 3.5}
    assert (measured.measured.best_copy, read["results"][0]["copies"]) == ("a", copies)
    assert read["results"][0]["absent"] == {"b": "no"}
    assert read["startup"][0]["is_met"] is False
    assert read["missing"] == {"torch": "pip install torch"}
    assert read["is_complete"] is False


def test_an_interrupted_run_goes_on_where_it_stopped(tmp_path: Path) -> None:
    path = tmp_path / "new folder" / "times.json"
    first = open_record(path, SETUP)
    first.startup = [Figure("import inlay", Spread(0.2, 0.1, 0.3), None)]
    first.add(result(run=1, Inlay=1.0, oneDNN=2.0))
    first.add(result(FAMILY, Inlay=1.0))
    again = open_record(path, SETUP)
    assert (again.results, again.startup, again.setup) == (first.results, first.startup, first.setup)
    found = [(case, run) for case in (CASE, FAMILY) for run in (0, 1) if again.result(case, run)]
    assert found == [(CASE, 1), (FAMILY, 0)]
    assert again.result(replace(CASE, dims=(4096, 2048)), 1) is None
    assert list(path.parent.iterdir()) == [path]


def test_a_file_gives_the_figures_that_were_printed_when_it_was_written(tmp_path: Path) -> None:
    """Times a millionth apart may stand on either side of what a figure is rounded at: 87.55 percent here."""
    record = open_record(tmp_path / "times.json", SETUP)
    record.add(result(Inlay=1.1422048, oneDNN=1 / 3))
    again = load_record(tmp_path / "times.json")
    assert percent_text(rows_of(again.results)[0].percent_of_copy("Inlay")) == "87.5 [88-88]"
    assert again.results == record.results


def test_a_disturbed_case_is_known_and_replaced_in_its_place() -> None:
    record = Record(SETUP, None, [result(CASE, share=0.5, Inlay=1.0), result(FAMILY, share=0.09, Inlay=2.0)])
    assert [r.is_loud for r in record.results] == [True, False]
    record.add(result(CASE, share=0.0, Inlay=3.0))
    record.add(result(CASE, run=1, share=None, Inlay=4.0))
    assert inlay_times(record) == [(CASE.label, 0, 3.0), (FAMILY.label, 0, 2.0), (CASE.label, 1, 4.0)]
    assert not any(r.is_loud for r in record.results)


@pytest.mark.parametrize(
    ("shares", "taken"), [([0.02], 0), ([0.5, 0.0], 1), ([0.5, 0.3, 0.4], 1), ([None], 0), ([0.3, 0.5, 0.2, 0.0], 2)]
)
def test_a_disturbed_case_is_measured_again_and_the_quietest_attempt_counts(
    shares: list[float | None], taken: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    attempts = iter([result(share=share, Inlay=1.0 + i) for i, share in enumerate(shares)])
    monkeypatch.setattr("benchmarks.rounds.measure_case", lambda *_: next(attempts))
    found = measure_in_quiet(CASE, [], ThreadedMemcpy(MACHINE.processors[:1]), Rounds())
    assert found.measured.seconds["Inlay"][0] == 1.0 + taken


def test_a_finished_run_is_not_gone_on_with(tmp_path: Path) -> None:
    path = tmp_path / "times.json"
    record = open_record(path, SETUP)
    record.is_complete = True
    record.add(result(Inlay=1.0))
    assert open_record(path, SETUP).results == []
    assert load_record(path).results == record.results


def test_attributes_and_sums_behind_weights_are_read_back(tmp_path: Path) -> None:
    attributes = Attributes(Scales(3, (8, 1), "f16"), dst_zero_points=ZeroPoints(1), sum=0.5)
    case = like(FAMILY, attributes=attributes, extras=Extras(9, compensation_mask=1, asymmetric_mask=1))
    path = tmp_path / "times.json"
    open_record(path, SETUP).add(result(case, Inlay=1.0))
    assert load_record(path).results[0].case == case
    assert open_record(path, SETUP).result(case, 0)
    assert not open_record(path, SETUP).result(FAMILY, 0)


@pytest.mark.parametrize(
    ("what", "other"),
    [
        ("rounds", replace(SETUP, rounds=Rounds(count=9))),
        ("versions", replace(SETUP, versions={"Inlay": "1.1"})),
        ("machine", replace(SETUP, machine=replace(MACHINE, processors=(0,)))),
    ],
)
def test_a_run_does_not_go_on_with_one_of_another_setup(tmp_path: Path, what: str, other: Setup) -> None:
    path = tmp_path / "times.json"
    open_record(path, SETUP).add(result(Inlay=1.0))
    words = (
        f"{path} holds an unfinished run of other {what}: {getattr(SETUP, what)}, not {getattr(other, what)}; "
        "name another file or delete it"
    )
    with raises_exactly(Unreadable, words):
        open_record(path, other)


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"machine": {}}'])
def test_a_file_of_somebody_else_is_refused(tmp_path: Path, text: str) -> None:
    path = tmp_path / "times.json"
    path.write_text(text)
    with pytest.raises(Unreadable, match=r"times.json is no file that `python -m benchmarks --json` wrote: "):
        open_record(path, SETUP)


def test_merged_files_are_runs_numbered_one_after_another() -> None:
    figures = [Figure("import inlay", Spread(0.2, 0.1, 0.3), None)]
    one = Record(SETUP, None, [result(run=0, Inlay=1.0), result(run=2, Inlay=2.0)], [], True)
    two = Record(SETUP, None, [result(run=0, Inlay=3.0)], figures, True)
    whole = merge_records([one, two])
    assert inlay_times(whole) == [(CASE.label, 0, 1.0), (CASE.label, 1, 2.0), (CASE.label, 2, 3.0)]
    assert (whole.startup, whole.is_complete) == (figures, True)


def test_files_of_two_machines_are_not_merged() -> None:
    elsewhere = Record(replace(SETUP, machine=replace(MACHINE, lines=("another",))), Path("b.json"))
    with raises_exactly(Unreadable, "b.json comes from another machine than a.json: another, not a processor"):
        merge_records([Record(SETUP, Path("a.json")), elsewhere])


@pytest.mark.parametrize(
    ("shares", "lines"),
    [
        ([None, None], []),
        ([0.01, -0.02], ["other processes took 0 % of the processors during the run"]),
        (
            [0.0, 0.5],
            [
                "other processes took 25 % of the processors during the run: NOT TO BE QUOTED, "
                "threads that wait for each other suffer most from company",
                "10 % or more in oihw -> hwio f32 -> s8 a note L2: not to be quoted, "
                "threads that wait for each other suffer most from company",
            ],
        ),
    ],
)
def test_company_is_named_with_the_cases_that_had_it(shares: list[float | None], lines: list[str]) -> None:
    results = [result(CASE, share=shares[0], Inlay=1.0), result(FAMILY, share=shares[1], Inlay=1.0)]
    assert bystander_lines(rows_of(results)) == lines


def test_the_picture_has_a_bar_per_case_as_long_as_its_percentage_and_a_line_at_the_aim() -> None:
    rows = [
        row(CASE, Inlay=1.25, oneDNN=2.0, NumPy=50.0),
        row(like(CASE, dst_tag="aB8b", aim=85), Inlay=2.0, oneDNN=0.4),
        row(FAMILY, Inlay=4.0, torch=8.0),
    ]
    svg = ElementTree.fromstring(draw_bars([bar_of(one) for one in rows], ["a processor", "<versions>"]))
    space = {"": "http://www.w3.org/2000/svg"}
    assert svg.find("desc", space).text == "a processor\n<versions>"  # type: ignore[union-attr]
    cases = [g for g in svg.iter(f"{{{space['']}}}g") if g.find("title", space) is not None]
    bars = [g.find("rect", space) for g in cases]
    assert [bar.get("class") for bar in bars if bar is not None] == ["met", "missed", "free"]
    widths = [float(bar.get("width", "")) for bar in bars if bar is not None]
    assert [width / widths[0] for width in widths] == pytest.approx([1, 50 / 80, 25 / 80], rel=1e-2)
    assert [len(g.findall("path[@class='aim']", space)) for g in cases] == [1, 1, 0]
    marks = [[path.get("class") for path in g.findall("path", space) if "mark" in path.get("class", "")] for g in cases]
    assert marks == [["mark p0", "mark p2"], ["mark p0"], ["mark p3"]]
    title = cases[0].find("title", space)
    assert title is not None
    assert title.text == (
        "ab -> ba f32 beyond, 4096x4096: copy 1.0 s (memcpy); aim 80 % of the copy and no slower than oneDNN\n"
        "Inlay: 80.0 [80-80] % of the copy\n"
        "oneDNN: 50.0 [50-50] % of the copy, Inlay is 1.60 [1.60-1.60] times as fast\n"
        "NumPy: 2.0 [2-2] % of the copy, Inlay is 40.0 [40.0-40.0] times as fast"
    )


def test_what_is_beyond_the_scale_of_the_picture_stands_at_its_edge() -> None:
    drawn = draw_bars([bar_of(row(FAMILY, Inlay=100 / percent)) for percent in (SCALE, 4 * SCALE)], [])
    rects = ElementTree.fromstring(drawn).iter("{http://www.w3.org/2000/svg}rect")
    widths = [rect.get("width") for rect in rects if rect.get("class") == "free"]
    assert len(set(widths[-2:])) == 1


def benchmark(*arguments: str) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, "-m", *arguments]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)


def test_runs_print_their_tables_write_their_times_and_merge_to_the_same_tables(tmp_path: Path) -> None:
    times, picture = tmp_path / "times.json", tmp_path / "times.svg"
    options = ("--no-startup", "--rounds", "1", "--runs", "2", "--only", "ab -> ba u8 l2")
    done = benchmark("benchmarks", *options, "--json", str(times), "--svg", str(picture))
    assert done.returncode == 0, done.stderr
    assert "ab -> ba" in done.stdout
    first, second = json.loads(times.read_text())["results"]
    assert (first["pair"]["dst_tag"], first["run"], second["run"]) == ("ba", 0, 1)
    assert math.prod(first["dims"]) * 2 == first["nbytes"]
    assert len(first["measured"]["NumPy"]["seconds"]) == 1
    again = benchmark("benchmarks", "merge", str(times), "--svg", str(tmp_path / "again.svg"))
    assert again.returncode == 0, again.stderr
    assert again.stdout.splitlines() == done.stdout.splitlines()
    assert (tmp_path / "again.svg").read_text() == picture.read_text()


def test_a_run_stops_when_its_minutes_are_over_and_goes_on_with_the_same_command(tmp_path: Path) -> None:
    times = tmp_path / "times.json"
    options = ("--no-startup", "--rounds", "1", "--only", "ab -> ba ?? l2", "--json", str(times))
    done = benchmark("benchmarks", *options, "--minutes", "0")
    assert (done.returncode, done.stdout) == (3, "1 cases are still to be measured: the same command goes on\n")
    again = benchmark("benchmarks", *options, "--minutes", "5")
    assert again.returncode == 0, again.stderr
    assert len(json.loads(times.read_text())["results"]) == 1


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("benchmarks", "--only", "nchw -> nowhere"), "no case of the sizes"),
        (("benchmarks", "--table", "weight"), "no table is called 'weight'"),
        (("benchmarks", "--sizes", "L1"), "no size is called 'l1'"),
        (("benchmarks", "merge", "pyproject.toml"), "is no file that"),
    ],
)
def test_options_that_name_nothing_are_refused(options: tuple[str, ...], words: str) -> None:
    done = benchmark(*options)
    assert done.returncode == 2
    assert words in done.stderr
