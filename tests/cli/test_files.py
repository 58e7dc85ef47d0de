"""Commands on files of tensors: what they contain, how they differ, what a conversion did."""

import json
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save_file

from inlay import cli
from inlay.memory import pack
from inlay.storage import open_memories, positioned_io, save_memories
from tests.support.command_line import Capture, complaint, succeed
from tests.support.tensor_files import numbered

CONVERT = ("convert", "w.safetensors", "-o", "p.safetensors", "--to", "conv*.weight=OIhw16i16o")


@pytest.fixture(autouse=True)
def weights(directory: Path) -> None:
    """A file of weights in the current directory."""
    tensors = {
        "conv1.weight": numbered((33, 3, 7, 7)),
        "conv1.bias": np.ones(33, np.float32),
        "mask": np.array([True, False, True]),
        "step": np.array(7, np.int64),
    }
    save_file(tensors, "w.safetensors", {"format": "pt", "note": "n" * 100})


def test_info_lists_the_tensors_of_a_file(capsys: Capture) -> None:
    succeed(capsys, *CONVERT)
    assert succeed(capsys, "info", "p.safetensors") == (
        "name          dims      type  format       bytes  padding\n"
        "conv1.weight  33x3x7x7  f32   ABcd16b16a  150528   87.1 %\n"
        "step          scalar    s64   -                8        -\n"
        "conv1.bias    33        f32   row-major      132        -\n"
        "mask          3         bool  row-major        3        -\n"
        "4 tensors, 150.7 kB, 87.0 % of them padding\n"
        "format: pt\n"
        f"note: {'n' * 57}...\n"
    )
    found = json.loads(succeed(capsys, "info", "p.safetensors", "--json"))
    assert found["tensors"][0] == {
        "name": "conv1.weight",
        "dims": [33, 3, 7, 7],
        "data_type": "f32",
        "format": "ABcd16b16a",
        "bytes": 150528,
        "padding_share": 1 - 33 * 3 * 7 * 7 * 4 / 150528,
    }


def test_info_of_an_array_and_of_an_empty_file(capsys: Capture) -> None:
    np.save("a.npy", np.asfortranarray(numbered((3, 5))))
    assert succeed(capsys, "info", "a.npy") == (
        "name  dims  type  format  bytes  padding\n"
        "a     3x5   f32   ba         60        -\n"
        "1 tensor, 60 bytes, no padding\n"
    )
    save_file({}, "none.safetensors")
    assert succeed(capsys, "info", "none.safetensors") == (
        "name  dims  type  format  bytes  padding\n0 tensors, 0 bytes, no padding\n"
    )


def test_names_of_files_may_have_spaces(capsys: Capture) -> None:
    np.save("a b.npy", numbered((3, 5)))
    assert succeed(capsys, "info", "a b.npy").splitlines()[-1] == "1 tensor, 60 bytes, no padding"
    assert succeed(capsys, "diff", "a b.npy", "a b.npy").splitlines()[-1] == "equal elements, equal formats"


def test_info_of_a_layout_is_as_before(capsys: Capture) -> None:
    assert succeed(capsys, "info", "nChw8c", "2x17x5x4").startswith("nChw8c (aBcd8b), 2 x 17 x 5 x 4 of f32\n")


def test_diff_compares_elements_and_formats(capsys: Capture) -> None:
    succeed(capsys, *CONVERT)
    assert succeed(capsys, "diff", "w.safetensors", "p.safetensors").splitlines()[-1] == (
        "equal elements, different formats"
    )
    assert succeed(capsys, "diff", "w.safetensors", "w.safetensors").splitlines()[-1] == "equal elements, equal formats"


def test_diff_ends_with_1_if_elements_differ(capsys: Capture) -> None:
    values = numbered((33, 3, 7, 7), np.uint8)
    save_memories("a.safetensors", {"t": pack(values, "abcd")})
    values[1, 2, 3, 4] ^= 1
    save_memories("b.safetensors", {"t": pack(values, "aBcd8b")})
    assert cli.main(["diff", "a.safetensors", "b.safetensors"]) == 1
    assert capsys.readouterr() == (
        "t: 1 of 4851 elements differ by up to 1, the first at 1,2,3,4; u8 row-major and u8 aBcd8b\n"
        "different elements, different formats\n",
        "",
    )
    assert cli.main(["diff", "a.safetensors", "b.safetensors", "--json"]) == 1
    assert json.loads(capsys.readouterr()[0])["tensors"][0]["different"] == 1


def test_diff_of_layouts_is_as_before(capsys: Capture) -> None:
    out = succeed(capsys, "diff", "nChw8c", "n (c c8) h w -> n c h w c8", "2x17x5x4")
    assert out == "the same: f32:p:blocked:aBcd8b::f0\n"


def test_a_target_is_replaced_on_request(capsys: Capture) -> None:
    succeed(capsys, *CONVERT)
    assert complaint(capsys, *CONVERT) == (
        "cannot write p.safetensors: it exists; choose another name, or allow that it is replaced (--overwrite, in "
        "Python overwrite=True)"
    )
    succeed(capsys, *CONVERT, "--overwrite")


def test_a_plan_is_printed_as_json(capsys: Capture, directory: Path) -> None:
    found = json.loads(succeed(capsys, *CONVERT, "--dry-run", "--json"))
    assert (found["target"], found["tasks"], len(found["tensors"])) == ("p.safetensors", 4, 4)
    assert [path.name for path in directory.iterdir()] == ["w.safetensors"]


def test_memory_cuts_tensors_into_boxes(capsys: Capture) -> None:
    options = (*CONVERT, "--memory", "16 kB")
    found = json.loads(succeed(capsys, *options, "--dry-run", "--json"))
    assert found["tasks"] > 10
    assert found["task_bytes"] <= 16_000
    succeed(capsys, *options, "--verify")
    assert open_memories("p.safetensors")["conv1.weight"].unpack().tobytes() == numbered((33, 3, 7, 7)).tobytes()


def test_a_report_says_what_was_done_and_lost(capsys: Capture) -> None:
    values = np.full(3000, 7, np.float32)
    values[:3] = 300, -300, 0.25
    save_file({"w": values}, "f.safetensors")
    command = ("convert", "f.safetensors", "-o", "q.safetensors", "--to", "plain", "--dtype", "s8")
    succeed(capsys, *command, "--report", "r.json")
    found = json.loads(Path("r.json").read_text())
    (tensor,) = found["tensors"]
    assert (tensor["source"], tensor["target"]) == ("f32::blocked:a::f0", "s8::blocked:a::f0")
    assert {key: tensor[key] for key in ("bytes_read", "bytes_written", "nonzero", "zeroed", "saturated", "loss")} == {
        "bytes_read": 12000,
        "bytes_written": 3000,
        "nonzero": 3000,
        "zeroed": 1,
        "saturated": 2,
        "loss": 0.001,
    }
    assert found["bytes_written_per_second"] == pytest.approx(3000 / found["seconds"])


def test_a_report_that_cannot_be_written_is_an_error_before_the_conversion(capsys: Capture) -> None:
    assert cli.main([*CONVERT, "--report", "nowhere/r.json"]) == 2
    out, err = capsys.readouterr()
    assert (out, Path("p.safetensors").exists()) == ("", False)
    assert err == "error: cannot write nowhere/r.json: the directory nowhere does not exist; create it first\n"


def test_a_verified_conversion_says_so(capsys: Capture) -> None:
    lines = succeed(capsys, *CONVERT, "--verify").splitlines()
    assert len(lines) == 2
    assert lines[1].startswith("verified p.safetensors: every element is that of the source, in ")


def test_a_conversion_that_writes_wrong_bytes_is_found(capsys: Capture, monkeypatch: pytest.MonkeyPatch) -> None:
    def spoil(descriptor: int, data: memoryview, offset: int) -> None:
        positioned_io.write_at(descriptor, memoryview(bytes(data)[:-1] + b"\x55"), offset)

    monkeypatch.setattr("inlay.storage.file_target.write_at", spoil)
    assert cli.main([*CONVERT, "--verify"]) == 2
    out, err = capsys.readouterr()
    assert out.startswith("wrote p.safetensors: ")
    assert err == (
        "error: p.safetensors differs from its source w.safetensors: tensor step, 1 byte differs, the first at 7: "
        "0x55 in place of 0x00; convert it again\n"
    )


def test_no_names_reach_the_terminal_with_control_codes(capsys: Capture) -> None:
    name = "n\x1b]0;title\x07\nwrote x"
    save_memories("h.safetensors", {name: pack(numbered((3, 5)), "ab")}, {name: name})
    save_memories("g.safetensors", {name: pack(numbered((3, 5)), "ba"), f"{name}2": pack(numbered((2,)), "a")})
    for command in (["info", "h.safetensors"], ["diff", "h.safetensors", "g.safetensors"]):
        cli.main(command)
        out, err = capsys.readouterr()
        assert all(c.isprintable() or c == "\n" for c in out + err)
        assert not any(line.startswith("wrote") for line in out.splitlines())
