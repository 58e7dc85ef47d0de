"""`benchmarks precision`: tables, aims and notes of stored results."""

from typing import Any

import pytest

from benchmarks.precision import NETWORKS, PRECISIONS, PrecisionResult, precision_aims, precision_notes, precision_table

SECONDS = {"Inlay": [1e-3] * 3, "OpenVINO": [1.2e-3] * 3, "torch": [3e-3] * 3}


def result(precision: str = "bf16", predicted: float = 1.0, own: float | None = 2.0, **more: Any) -> PrecisionResult:
    """Inlay takes 1 ms, OpenVINO 1.2 ms, torch 3 ms; ONNX Runtime is absent."""
    lines = {
        name: {
            "how": "",
            "difference": 1e-3 * (1 + index),
            "seconds": seconds,
            "inlay_is_times_as_fast": dict.fromkeys(("median", "low", "high"), seconds[0] / 1e-3),
        }
        for index, (name, seconds) in enumerate(SECONDS.items())
    }
    found: dict[str, Any] = {"measured": lines, "absent": {"ONNX Runtime": "not installed"}, "share_of_others": 0.0}
    found |= {"predicted_ms": predicted, "own": None if own is None else dict.fromkeys(("median", "low", "high"), own)}
    return PrecisionResult("bert", 8, precision, {**found, **more})


def test_a_result_has_ratios_errors_and_the_error_of_the_prediction() -> None:
    one = result(predicted=0.8)
    assert one.label == "bert b8 bf16"
    assert one.off == pytest.approx(0.25)
    ratio, absent = one.ratio("OpenVINO"), one.ratio("ONNX Runtime")
    assert ratio is not None
    assert absent is None
    assert ratio.median == pytest.approx(1.2)
    assert one.error("torch") == 3e-3
    assert one.error("ONNX Runtime") is None


def test_aims_are_means_of_each_precision() -> None:
    aims = {aim.name: (aim.found, aim.is_met) for aim in precision_aims([result(), result("int8", own=1.4)])}
    assert aims == {
        "bf16: mean x OpenVINO": ("1.200", True),
        "bf16: mean x torch": ("3.000", True),
        "bf16: mean x own f32": ("2.000", True),
        "int8: mean x OpenVINO": ("1.200", True),
        "int8: mean x own f32": ("1.400", False),
        "predicted times, worst bert b8 int8": ("0 %", True),
    }
    (*_, worst) = precision_aims([result(predicted=0.5)])
    assert (worst.found, worst.is_met) == ("100 %", False)


def test_who_is_absent_and_what_was_disturbed_is_said() -> None:
    assert precision_notes([result(), result("int8", share_of_others=0.2)]) == [
        "bert b8 bf16: ONNX Runtime is absent: not installed",
        "bert b8 int8: ONNX Runtime is absent: not installed",
        "bert b8 int8: others took over 10 % of the processors: not to be quoted",
    ]


def test_the_table_has_a_line_for_each_result() -> None:
    table = precision_table([result(), result("f32", own=None)])
    assert table.row_count == 2
    assert [str(column.header) for column in table.columns][:4] == ["network", "Inlay ms", "x own f32", "x OpenVINO"]
    assert [str(cell) for cell in table.columns[6].cells] == ["1e-03", "1e-03"]


def test_the_cell_of_a_runtime_that_crashed_has_the_signal() -> None:
    one = result(absent={"ONNX Runtime": "crashed (signal 11)"})
    assert one.ratio_or_reason("ONNX Runtime") == "crashed (signal 11)"
    assert result().ratio_or_reason("ONNX Runtime") == "-"
    assert result().ratio_or_reason("OpenVINO") == "1.20 [1.20-1.20]"
    cells = [str(cell) for column in precision_table([one]).columns for cell in column.cells]
    assert cells[3:6] == ["1.20 [1.20-1.20]", "crashed (signal 11)", "3.00 [3.00-3.00]"]
    assert precision_notes([one]) == ["bert b8 bf16: ONNX Runtime is absent: crashed (signal 11)"]


def test_the_networks_are_those_of_the_aims() -> None:
    assert set(NETWORKS) == {"resnet50", "mobilenet_v2", "densenet121", "bert", "vit_b", "unet"}
    assert PRECISIONS[0] == "f32"
