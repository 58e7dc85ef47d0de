"""Names of axes in emitted code: the caller's own, whatever C, C++ or the code itself calls by the same name."""

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import inlay
from inlay import MemoryDesc
from inlay.cli import main
from inlay.emission.c_names import identifiers, letters
from tests.support.emitted_programs import GCC, STRICT, buffer_size, caller, compile_library, judge_function

needs_gcc = pytest.mark.skipif(GCC is None, reason="gcc is not installed")
PATTERNS = [
    "(for r4) while -> while for r4",
    "(src r2) dst -> dst src r2",
    "(int64_t r4) memcpy -> int64_t memcpy r4",
    "(f_convert r4) f_load -> f_load f_convert r4",
    "(class r4) linux -> linux class r4",
    "(M r4) m -> m M r4",
    "(dst_linear r4) src_linear -> src_linear dst_linear r4",
    "(INT64_C r4) register -> register INT64_C r4",
    f"({'row' * 20} r4) col -> col {'row' * 20} r4",
    "(c c4) c_ -> c_ c c4",
    "(default r4) default_ -> default r4 default_",
    "(INT8_MAX r4) SIZE_MAX -> SIZE_MAX INT8_MAX r4",
    "(size_t r4) NULL -> NULL size_t r4",
]


@needs_gcc
@pytest.mark.parametrize("form", ["u8", "s4"])
def test_names_that_c_uses_compile(form: str, tmp_path: Path) -> None:
    """Each pattern packs and unpacks, also swizzled, with a conversion, and with 4-bit elements."""
    cases, source = [], ""
    for i, pattern in enumerate(PATTERNS):
        desc = MemoryDesc((10, 6), form, pattern)
        array = MemoryDesc((10, 6), "s32", "ab")
        source += str(inlay.emit(array, desc, name=f"f{i}" if i != 3 else "f"))
        source += str(inlay.emit(MemoryDesc((10, 6), form, f"Swizzle<1,1,1> o {pattern}"), name=f"s{i}"))
        cases.append((f"f{i}" if i != 3 else "f", array, desc))
    library = compile_library(tmp_path, {"emitted.c": source.encode()}, *STRICT)
    for name, array, desc in cases:
        content = np.random.default_rng(0).integers(-9, 9, buffer_size(array) // 4).astype(np.int32).view(np.uint8)
        judge_function(caller(library, name), array, desc, content)


def test_names_are_kept() -> None:
    text = str(inlay.emit(MemoryDesc((300, 20), "u8", "(row r4) (col c4) -> row col r4 c4"), name="w"))
    assert "int64_t w_offset(int64_t row, int64_t col)" in text
    assert "for (int64_t row0 = 0; row0 < 75; row0++) {" in text
    words = str(inlay.emit(MemoryDesc((300, 20), "u8", "(row r4) col -> row col r4"), form="words"))
    assert words.startswith("u8 tensor of row = 300, col = 20; slowest to fastest in memory: row / 4, col, row % 4;")


@given(st.lists(st.text("abcfor_019\u00e4", max_size=40), max_size=12), st.sets(st.text("ab_", max_size=3)))
def test_identifiers_are_distinct_and_free(names: list[str], taken: set[str]) -> None:
    result = identifiers(names, taken)
    assert len(result) == len(names) == len(set(result))
    assert all(name.isascii() and name.isidentifier() and not name[-1].isdigit() for name in result)
    assert not {*result} & {"for", *taken - {f"{letter}_" for letter in letters(12)}}


def test_the_command_takes_any_text(capsys: pytest.CaptureFixture[str]) -> None:
    """Names of the dictionary, patterns, CuTe's texts, swizzles and compound formats."""
    for text, dims, expected in (
        ("tensorrt:CHW32", "2x40x5x5", "return n * 1600 + c / 32 * 800 + c % 32 + h * 160 + w * 32;"),
        ("(row r4) col -> col row r4", "10x3", "int64_t packed_offset(int64_t row, int64_t col)"),
        ("(10,3):(3,1)", "10x3", "return a * 3 + b;"),
        ("Swizzle<3,3,3> o (8,64):(64,1)", "8x64", "return linear ^ ((linear & 448) >> 3);"),
        ("ggml:Q4_0", "2x64", "void packed_unpack(const uint8_t *src, float *dst)"),
        ("GGML:q6_k", "2x256", "void packed_assemble(const uint8_t *quants, const int8_t *scales, const uint16_t"),
    ):
        assert main(["emit", text, dims]) == 0
        assert expected in capsys.readouterr().out, text
    assert main(["emit", "nhwc", "2x40x5x5", "--to", "tensorrt:CHW32", "--form", "words"]) == 0
    assert "c / 32" in capsys.readouterr().out


def test_the_command_refuses_other_types_of_a_compound_format(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["emit", "ggml:Q4_0", "2x64", "--dtype", "f16"]) == 2
    assert capsys.readouterr().err == (
        "error: data type f16 is passed for ggml:Q4_0: a compound format has its own types and unpacks to f32; "
        "leave it out\n"
    )
    assert main(["emit", "ggml:Q4_0", "2x64", "--to", "ab"]) == 2
    assert "has no dst" in capsys.readouterr().err


def test_a_reorder_and_a_text_are_arguments() -> None:
    src, dst = MemoryDesc((2, 17, 5, 4), "u8", "nhwc"), MemoryDesc((2, 17, 5, 4), "u8", "nChw8c")
    expected = inlay.emit(src, dst, name="f")
    assert inlay.emit(inlay.Reorder(src, dst), name="f") == expected
    assert inlay.emit(inlay.Reorder(src, dst, inlay.Attributes()), name="f") == expected
    assert inlay.emit(src, "nChw8c", name="f") == expected
