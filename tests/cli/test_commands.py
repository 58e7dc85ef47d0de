"""The command line: output, exit codes, and files."""

import os
import sys
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save_file

from inlay import __version__
from inlay.cli import main
from inlay.descriptor import MemoryDesc
from inlay.descriptor.compound_desc import CompoundDesc
from inlay.descriptor.compound_table import compound, compound_formats
from inlay.memory import pack
from inlay.notation.dictionary import list_rows, list_vendors
from inlay.notation.format_tag import ALIASES, ENUMERATED
from inlay.render import show
from inlay.storage import open_memories
from tests.support.command_line import INLAY, Capture, run_process, succeed


def test_show_prints_the_picture_of_the_library(capsys: Capture) -> None:
    out = succeed(capsys, "show", "nChw4c", "1x3x2x3", "--offsets", "--dtype", "bf16")
    assert out == f"{show(MemoryDesc((1, 3, 2, 3), 'bf16', 'nChw4c'), offsets=True)}\n"
    assert out.startswith("nChw4c (aBcd4b), 1 x 3 x 2 x 3 of bf16\n")


def test_show_keeps_the_colors_that_were_asked_for(capsys: Capture, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {"FORCE_COLOR": "1", "TERM": "xterm-256color", "NO_COLOR": ""}.items():
        monkeypatch.setenv(name, value)
    assert "\x1b[38;5;16;48;5;" in succeed(capsys, "show", "ab", "2x3")
    monkeypatch.setenv("NO_COLOR", "1")
    assert "\x1b" not in succeed(capsys, "show", "ab", "2x3")


def test_show_writes_an_svg_file(capsys: Capture) -> None:
    assert succeed(capsys, "show", "ab", "2,3", "--svg", "a.svg") == "wrote a.svg\n"
    assert Path("a.svg").read_text().startswith("<svg ")


def test_show_draws_the_bits_of_a_compound_format(capsys: Capture) -> None:
    drawn = str(show(CompoundDesc(compound("ggml:Q4_0"), (2, 64))))
    assert succeed(capsys, "show", "ggml:q4_0", "2x64") == f"{drawn}\n"
    assert main(["show", "ggml:Q4_0", "2x64", "--offsets"]) == 2
    error = "error: --offsets is for layouts, but ggml:Q4_0 is drawn bit by bit: leave the option out\n"
    assert capsys.readouterr().err == error


def test_show_draws_a_part_under_other_names_and_a_destination(capsys: Capture) -> None:
    desc = MemoryDesc((4, 6), "f32", "ab")
    out = succeed(capsys, "show", "ab", "4x6", "--names", "row,column", "--at", "row=1:3", "--at", "column=0,-1")
    assert out == f"{show(desc, names=('row', 'column'), at={'row': slice(1, 3), 'column': [0, 5]})}\n"
    out = succeed(capsys, "show", "ab", "4x6", "--to", "ba", "--names", "mk", "--heat-map")
    assert out == f"{show(desc, 'ba', names='mk', heat_map=True)}\n"
    assert succeed(capsys, "show", "ab", "4x6", "--no-heat-map") == f"{show(desc)}\n"


@pytest.mark.parametrize("suffix", ["svg", "png", "html", "txt"])
def test_show_writes_a_file_by_its_suffix(suffix: str, capsys: Capture) -> None:
    if suffix == "png":
        pytest.importorskip("resvg_py")
    name = f"a.{suffix}"
    assert succeed(capsys, "show", "ab", "2,3", "--out", name) == f"wrote {name}\n"
    starts = {"svg": b"<svg ", "png": b"\x89PNG", "html": b"<!doctype html>", "txt": b"ab, 2 x 3 of f32"}
    assert Path(name).read_bytes().startswith(starts[suffix])


@pytest.mark.parametrize(
    ("options", "error"),
    [
        (["--out", "a.jpg"], "a picture is saved as .svg, .png, .html or .txt, not '.jpg'"),
        (["--out", "a"], "a picture is saved as .svg, .png, .html or .txt, not 'without an ending'"),
        (["--svg", "a.png"], "--svg writes a file that ends in .svg, not '.png': use --out"),
        (["--svg", "a.svg", "--out", "a.png"], "--svg and --out both name the file of the picture: give one"),
        (["--at", "a"], "--at is an axis and its coordinates, such as n=0, c=8:16 or c=0,8: 'a' is not"),
        (["--at", "a=x"], "--at is an axis and its coordinates, such as n=0, c=8:16 or c=0,8: 'a=x' is not"),
        (["--at", "a=0", "--at", "a=1"], "--at chooses from axis a twice: give several coordinates as a=0,8"),
        (["--at", "c=0"], "at names axis 'c', but the axes are a, b"),
        (["--names", "x,y,z"], "2 axes need 2 names, not 3: x, y, z"),
    ],
)
def test_show_refuses_wrong_options(options: list[str], error: str, capsys: Capture) -> None:
    assert main(["show", "ab", "2x3", *options]) == 2
    assert capsys.readouterr().err == f"error: {error}\n"


@pytest.mark.parametrize(
    ("text", "dims", "pattern"),
    [
        ("nChw8c", "2x17x5x4", "n (c c8) h w -> n c h w c8"),
        ("(m m4 m32) (k k4) -> m k m32 m4 k4", "300x20", "(m m4 m32) (k k4) -> m k m32 m4 k4"),
        ("(rowx4 rowy8) col -> rowx4 col rowy8", "32x3", "(row row8) col -> row col row8"),
        ("a4 a8 -> a8 a4", "4x8", "a b -> b a"),
        ("(4,6):(1,4)", "4x6", "a b -> b a"),
    ],
)
def test_info_prints_the_pattern_in_the_names_of_the_axes(capsys: Capture, text: str, dims: str, pattern: str) -> None:
    lines = succeed(capsys, "info", text, dims).splitlines()
    assert [line.split(maxsplit=1)[1] for line in lines if line.startswith("pattern ")] == [pattern]


def test_offset_explains_the_digits(capsys: Capture) -> None:
    assert succeed(capsys, "offset", "OIhw4i16o4i", "33x17x3x3", "20,13,1,2", "--dtype", "s8") == (
        "s8:p:blocked:ABcd4b16a4b::f0, 33x17x3x3 padded to 48x32x3x3\n"
        "  o = 20 = 1,4      1 * 4608 + 4 * 4             4624\n"
        "  i = 13 = 0,3,1    0 * 2304 + 3 * 64 + 1 * 1     193\n"
        "  h =  1            1 * 768                       768\n"
        "  w =  2            2 * 256                       512\n"
        "element offset 6097, byte offset 6097\n"
    )


def test_names_lists_every_enumerated_tag_and_alias(capsys: Capture) -> None:
    words = set(succeed(capsys, "names").split())
    assert set(ENUMERATED) <= words
    assert set(ALIASES) <= words


def test_names_takes_a_pattern_and_lists_types(capsys: Capture) -> None:
    assert succeed(capsys, "names", "nChw16*") == "aBcd16b              nChw16c gOiw16o\n"
    assert succeed(capsys, "names", "--types", "bf*") == "bf16     16 bits  float     bfloat16\n"
    assert main(["names", "--types", "zz*"]) == 2
    assert capsys.readouterr().err == "error: no name matches 'zz*': `inlay names --types` lists all\n"


def test_names_prints_a_layout_in_every_notation(capsys: Capture) -> None:
    by_tag = succeed(capsys, "names", "nChw16c")
    assert by_tag.startswith("tag      aBcd16b\npattern  n (c c16) h w -> n c h w c16\nnames    onednn:nChw16c ")
    assert by_tag.endswith("         ascend:NC1HWC0          n c h w  f16\n")
    assert succeed(capsys, "names", "n (c c16) h w -> n c h w c16") == by_tag
    row = (
        "tensorrt:CHW16\naxes     n images, c channels, h rows, w columns\ntypes    f16\n"
        "source   NvInferRuntimeBase.h, nvinfer1::TensorFormat: kCHW16\n"
    )
    assert succeed(capsys, "names", "tensorrt:CHW16") == row + by_tag


def test_names_lists_the_layouts_of_vendors(capsys: Capture) -> None:
    assert succeed(capsys, "names", "awq:q*") == (
        "awq:qweight  k (n na4 nb2) -> k n nb2 na4  u4\nawq:qzeros   k (n na4 nb2) -> k n nb2 na4  u4\n"
    )
    names = {line.split()[0] for line in succeed(capsys, "names", "*:*").splitlines()}
    assert names == {row.name for vendor in list_vendors() for row in list_rows(vendor)} | {*compound_formats()}


def test_convert_reports_what_it_wrote(capsys: Capture) -> None:
    save_file({"conv1.weight": np.zeros((33, 17, 3, 3), np.float32), "bias": np.ones(3, np.float32)}, "w.safetensors")
    out = succeed(capsys, "convert", "w.safetensors", "-o", "p.safetensors", "--to", "conv*.weight=OIhw16i16o")
    assert out.startswith("wrote p.safetensors: 1 of 2 tensors converted, 55.3 kB in ")
    assert open_memories("p.safetensors")["conv1.weight"].desc.tag == "ABcd16b16a"


def test_convert_takes_from_dims_and_dtype(capsys: Capture) -> None:
    array = np.arange(2 * 17 * 3 * 5, dtype=np.float32).reshape(2, 17, 3, 5)
    np.save("m.npy", pack(array, "nChw16c").buffer.view(np.float32))
    arguments = ("--from", "nChw16c", "--dims", "2x17x3x5", "--to", "plain", "--dtype", "s32")
    succeed(capsys, "convert", "m.npy", "-o", "a.npy", *arguments)
    assert np.array_equal(np.load("a.npy"), array.astype(np.int32))


def test_a_dry_run_writes_nothing(capsys: Capture) -> None:
    np.save("a.npy", np.zeros((2, 17, 5, 4), np.float32))
    out = succeed(capsys, "convert", "a.npy", "-o", "p.safetensors", "--to", "nChw16c", "--dry-run")
    assert out == (
        "a: 2x17x5x4, f32::blocked:abcd::f0 -> f32:p:blocked:aBcd16b::f0, 2720 -> 5120 bytes\n"
        "reads 2.7 kB and writes 5.1 kB in 1 task of 7.8 kB\n"
    )
    assert [p.name for p in Path().iterdir()] == ["a.npy"]


@pytest.mark.parametrize("words", [["--help"], ["show", "-h"], ["offset", "-h"], ["convert", "-h"], ["names", "-h"]])
def test_help_names_every_argument_and_has_an_example(capsys: Capture, words: list[str]) -> None:
    out = succeed(capsys, *words)
    assert out.startswith("Usage: inlay ")
    assert words == ["--help"] or f"inlay {words[0]} " in out.split("\n", 1)[1]


def test_version(capsys: Capture) -> None:
    assert succeed(capsys, "--version") == f"inlay {__version__}\n"


def test_a_reader_that_stops_early_ends_the_command_without_a_word() -> None:
    read_end, write_end = os.pipe()
    os.close(read_end)
    code, _, err = run_process([*INLAY, "names"], stdout=write_end)
    os.close(write_end)
    assert (code, err) == (1, "")


def test_a_defect_is_reported_in_words_and_with_a_traceback_only_on_request(monkeypatch: pytest.MonkeyPatch) -> None:
    code = (
        "import sys\n"
        "from inlay import cli, storage\n"
        "def broken(*_, **__): raise AssertionError('impossible')\n"
        "storage.plan = broken\n"
        "sys.exit(cli.main())\n"
    )
    call = [sys.executable, "-c", code, "convert", "a.npy", "-o", "b.npy", "--to", "plain"]
    assert run_process(call) == (
        1,
        "",
        "internal error: AssertionError: impossible\n"
        "this is a defect of Inlay, please report it; INLAY_DEBUG=1 shows where it happened\n",
    )
    monkeypatch.setenv("INLAY_DEBUG", "1")
    assert run_process(call)[2].startswith("Traceback ")


def test_debug_keeps_the_traceback_of_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("INLAY_DEBUG", "1")
    err = run_process([*INLAY, "show", "nchw", "2x3"])[2]
    assert err.startswith("Traceback ")
    assert err.splitlines()[-1].startswith("inlay.errors.InvalidArguments: ")
