"""One meaning for each name: compound formats and layouts of the dictionary have no name in common."""

from pathlib import Path

import numpy as np
import pytest

import inlay
from inlay import CompoundDesc, MemoryDesc, compound, verify
from inlay.cli import main
from inlay.descriptor.compound_desc import parse_desc
from inlay.descriptor.compound_table import compound_formats
from inlay.errors import InvalidArguments, NotationError
from inlay.notation.dictionary import list_rows


def test_no_name_is_both_a_compound_format_and_a_layout() -> None:
    layouts = {row.name.lower() for row in list_rows()}
    assert not layouts & {name.lower() for name in compound_formats()}


@pytest.mark.parametrize("name", compound_formats())
def test_the_name_of_a_compound_format_is_that_everywhere(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    multiple = compound(name).required_multiple
    dims = (1,) * (2 - len(multiple)) + tuple(multiple)
    text = "x".join(map(str, dims))
    described = parse_desc(name, dims)
    assert described == CompoundDesc(compound(name), dims)
    assert str(inlay.show(name)).startswith(f"{name};")
    assert main(["show", name, text]) == 0
    assert capsys.readouterr().out.startswith(f"{name}, {text} in ")
    assert main(["emit", name, text, "--form", "words"]) == 0
    assert capsys.readouterr().out.startswith(f"{name} tensor of ")
    assert main(["names", name]) == 0
    assert capsys.readouterr().out.startswith(f"{name}  compound format of ")
    problem = f"{name} is a compound format, whose buffer has several streams: use "
    with pytest.raises(InvalidArguments, match=problem):
        MemoryDesc(dims, "u4", name)
    with pytest.raises(NotationError):
        inlay.named(name)


def test_the_order_of_quants_is_a_layout() -> None:
    for name in ("ggml:Q4_0.qs", "ggml:Q8_0.qs", "ggml:Q4_K.qs", "ggml:MXFP4.qs"):
        assert parse_desc(name, (2, 256), "u8") == MemoryDesc((2, 256), "u8", inlay.named(name).pattern)


def test_verify_takes_the_name_of_a_compound_format(tmp_path: Path) -> None:
    memory = inlay.pack_compound(np.linspace(-1, 1, 64, dtype=np.float32).reshape(2, 32), "ggml:Q4_0")
    assert verify("ggml:Q4_0", memory.buffer, memory.unpack())
    assert verify("ggml:q4_0", memory.buffer, memory.streams(), dims=(2, 32))
    with pytest.raises(InvalidArguments, match="has its own types and unpacks to f32; leave it out"):
        verify("ggml:Q4_0", memory.buffer, memory.streams(), dims=(2, 32), data_type="u4")
    np.save(tmp_path / "values.npy", memory.unpack())
    (tmp_path / "packed.bin").write_bytes(memory.buffer.tobytes())
    call = ["verify", "ggml:Q4_0", "2x32", str(tmp_path / "packed.bin")]
    assert main([*call, "--logical", str(tmp_path / "values.npy")]) == 0
    assert main(call) == 2
