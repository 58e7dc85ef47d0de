"""`benchmarks decoding`: turns of processes with a tiny decoder; tables, aims and notes of stored results."""

import json
from pathlib import Path
from typing import Any

import pytest

from benchmarks.decoding import (
    CONTESTANTS,
    RATIOS,
    DecodingLoad,
    decoding_aims,
    decoding_notes,
    decoding_table,
    load_decoding,
    measure_decoding,
)
from benchmarks.record import Unreadable

TINY = DecodingLoad(layers=1, width=64, heads=2, vocabulary=96, starts=(5, 60), steps=3)
"""The second turn passes from the plan of 64 positions to the next one."""
MS = {"Inlay f32": 20, "Inlay bf16": 12, "Inlay 4-bit": 5, "ONNX Runtime f32": 26, "ONNX Runtime f32, not spinning": 22}


def one_round(others: float = 0.0, **changed: float) -> dict[str, Any]:
    """Return the times of a round, in milliseconds at 128 positions and twice as many at 256."""
    seconds = {name: {"128": ms / 1e3, "256": 2 * ms / 1e3} for name, ms in {**MS, **changed}.items()}
    errors = {name: 5e-3 if "bf16" in name else None if "4-bit" in name else 0.0 for name in seconds}
    return {"seconds": seconds, "errors": errors, "others": others}


def results(*rounds: dict[str, Any]) -> dict[str, Any]:
    return {"rounds": list(rounds), "threads": 2, "load": {"starts": [128, 256]}}


def test_aims_are_beside_the_fastest_configuration() -> None:
    found = {aim.name: (aim.found, aim.is_met) for aim in decoding_aims(results(one_round(), one_round()))}
    assert found == {
        "Inlay f32 x ONNX Runtime f32, not spinning": ("1.10 [1.10-1.10]", False),
        "Inlay 4-bit x Inlay bf16": ("2.40 [2.40-2.40]", True),
        "Inlay bf16 x Inlay f32": ("1.67 [1.67-1.67]", True),
    }
    assert not decoding_aims({})


def test_the_table_has_a_line_for_each_contestant() -> None:
    table = decoding_table(results(one_round(), one_round()))
    assert [str(column.header) for column in table.columns] == ["contestant", "after 128", "after 256", "difference"]
    assert [str(cell) for cell in table.columns[0].cells] == [name for name in CONTESTANTS if name in MS]
    assert next(str(cell) for cell in table.columns[2].cells) == "40.0 [40.0-40.0]"
    assert [str(cell) for cell in table.columns[3].cells] == ["0e+00", "5e-03", "-", "0e+00", "0e+00"]


def test_disturbed_rounds_are_not_to_be_quoted() -> None:
    assert decoding_notes(results(one_round())) == ["1 rounds, 2 threads"]
    line = "others took up to 25 % of the processors in a turn: not to be quoted"
    assert decoding_notes(results(one_round(), one_round(others=0.25))) == ["2 rounds, 2 threads", line]
    assert not decoding_notes({})


def test_compared_contestants_exist() -> None:
    assert {name for first, others, _ in RATIOS for name in (first, *others)} <= CONTESTANTS.keys()


def test_a_file_of_something_else_is_refused(tmp_path: Path) -> None:
    (tmp_path / "decoding.json").write_text('{"run": 1}')
    with pytest.raises(Unreadable, match="holds no result of a decoder"):
        load_decoding(tmp_path)


@pytest.mark.heavy
def test_processes_take_turns_and_decode_the_same_tokens(tmp_path: Path) -> None:
    pytest.importorskip("onnxruntime")
    names = tuple(CONTESTANTS)
    assert measure_decoding(tmp_path, names, 2, 1, TINY, iter((False, False, True)).__next__) == 1
    found = load_decoding(tmp_path)
    assert json.loads((tmp_path / "decoding.json").read_text()) == found
    (first,) = found["rounds"]
    assert first["seconds"].keys() == set(names)
    assert all(seconds > 0 for times in first["seconds"].values() for seconds in times.values())
    errors = {str(name): float(str(error)) for name, error in _last_cells(found)}
    assert errors["Inlay f32"] < 1e-4
    assert errors["Inlay 4-bit"] < 1e-3
    assert 0 < errors["Inlay bf16"] < 0.2
    assert measure_decoding(tmp_path, ("Inlay f32",), 2, 1, TINY, lambda: False) == 0
    assert load_decoding(tmp_path)["rounds"][0] == first
    assert load_decoding(tmp_path)["rounds"][1]["seconds"].keys() == {"Inlay f32"}


def _last_cells(found: dict[str, Any]) -> list[tuple[Any, Any]]:
    """Return the name and the difference of each contestant."""
    columns = decoding_table(found).columns
    return list(zip(columns[0].cells, columns[-1].cells, strict=True))
