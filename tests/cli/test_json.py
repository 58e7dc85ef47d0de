"""`--json` of every command: documents that the published schema describes completely, and errors as documents."""

import json
import shutil
from collections.abc import Iterator
from copy import deepcopy
from pathlib import Path
from typing import Any

import jsonschema
import numpy as np
import numpy.typing as npt
import pytest
import typer
from safetensors.numpy import save_file

from inlay import cli
from inlay.cli import app
from inlay.cli.error_documents import error_document
from inlay.descriptor import MemoryDesc
from inlay.errors import FormatTagError
from inlay.memory import pack
from inlay.render import show
from tests.support.command_line import IMAGE, Capture, outputs, write_classifier
from tests.support.json_page import DEFINITIONS, SCHEMA, sections, tables, written

COMMANDS = {name for name, command in typer.main.get_command(app).commands.items() if not command.hidden}  # type: ignore[attr-defined]
"""The commands of the application."""


def strict_schema(name: str) -> dict[str, Any]:
    """The schema of a document in which an object has the described properties and no others."""
    schema = deepcopy(SCHEMA) | {"$ref": f"#/$defs/{name}"}
    close(schema["$defs"])
    return schema


def close(value: Any) -> None:
    """Allow no other property in each object of a schema that lists its properties."""
    if isinstance(value, dict):
        if "properties" in value and isinstance(value["properties"], dict) and value.get("type") == "object":
            value.setdefault("additionalProperties", False)
        for entry in value.values():
            close(entry)
    elif isinstance(value, list):
        for entry in value:
            close(entry)


def require_document(text: str, name: str) -> Any:
    """The document of a text, which is checked."""
    document = json.loads(text, parse_constant=lambda constant: pytest.fail(f"{constant} is not JSON"))
    jsonschema.Draft202012Validator(strict_schema(name)).validate(document)
    return document


CASES: list[tuple[str, list[str]]] = [
    ("show", ["show", "nChw8c", "2x17x5x4"]),
    ("show", ["show", "any", "2x17"]),
    ("show", ["show", "ggml:Q4_0", "4x64"]),
    ("show", ["show", "ab", "2", "3", "--svg", "a.svg"]),
    ("show", ["show", "nchw", "2x17x5x4", "--to", "nChw8c", "--out", "b.svg"]),
    ("show", ["show", "Swizzle<3,4,3> o (8,128):(128,1)", "8x128", "--dtype", "u8"]),
    ("explore", ["explore", "nChw8c", "2", "17", "5", "4", "--to", "nchw", "--out", "page.html"]),
    ("explore", ["explore", "ab", "--names", "row,col", "--view", "permute:col,row", "--out", "page.html"]),
    ("offset", ["offset", "OIhw4i16o4i", "33x17x3x3", "20,13,1,2", "--dtype", "s8"]),
    ("info_layout", ["info", "(m m4 m32) (k k4) -> m k m32 m4 k4", "300x20"]),
    ("info_file", ["info", "w.safetensors"]),
    ("diff_layouts", ["diff", "nchw", "nhwc", "2x3x4x5"]),
    ("diff_layouts", ["diff", "nchw", "abcd", "2x3x4x5"]),
    ("diff_files", ["diff", "w.safetensors", "w.safetensors"]),
    ("names_layout", ["names", "tensorrt:CHW4"]),
    ("names_layout", ["names", "nChw16c"]),
    ("names_list", ["names", "nChw16*"]),
    ("names_list", ["names", "awq:*"]),
    ("names_list", ["names", "--types"]),
    ("names_list", ["names", "ggml:Q4_0"]),
    ("infer", ["infer", "table.npy", "3x4", "--table", "physical"]),
    ("infer", ["infer", "packed.npy", "2x3x8x8", "--logical", "image.npy"]),
    ("verify", ["verify", "nChw8c", "2x3x8x8", "packed.npy", "--logical", "image.npy"]),
    ("convert_plan", ["convert", "w.safetensors", "-o", "p.safetensors", "--to", "w=ba", "--dry-run"]),
    ("convert", ["convert", "w.safetensors", "-o", "p.safetensors", "--to", "w=ba", "--verify"]),
    (
        "convert",
        ["convert", "w.safetensors", "-o", "q.safetensors", "--to", "w=plain", "--quantize", "absmax", "--dtype", "s8"],
    ),
    ("emit", ["emit", "nChw8c", "2x17x5x4"]),
    ("emit", ["emit", "nChw8c", "2x17x5x4", "-o", "a.c"]),
    ("emit", ["emit", "nChw8c", "2x17x5x4", "--form", "words"]),
    ("plan", ["plan", "net.onnx", "--batch", "2", "--costs", "analytic"]),
    ("plan", ["plan", "net.onnx", "--batch", "2", "--isa", "avx2"]),
    ("plan", ["plan", "net.onnx", "--batch", "2", "--costs", "analytic", "--html", "p.html", "--picture", "p.svg"]),
    ("run", ["run", "net.onnx", "--input", "image.npy", "--costs", "analytic"]),
    (
        "run",
        ["run", "net.onnx", "--input", "image.npy", "--costs", "analytic", "--html", "p.html", "--trace", "t.json"],
    ),
    ("run", ["run", "net.onnx", "--input", "image.npy", "--costs", "analytic", "--profile", "-o", "y.npz"]),
    ("bench_reorder", ["bench", "ab", "ba", "8", "8", "--rounds", "1"]),
    (
        "bench_network",
        [
            "bench",
            "net.onnx",
            "--batch",
            "2",
            "--rounds",
            "1",
            "--peers",
            "",
            "--engine",
            "reference",
            "--costs",
            "analytic",
        ],
    ),
    ("bench_machine", ["bench", "--machine"]),
    ("doctor", ["doctor"]),
    ("completion", ["completion", "bash"]),
]
"""Names of definitions, and commands that print such documents."""


@pytest.fixture(autouse=True)
def write_files() -> None:
    """The files that the commands read."""
    np.save("table.npy", np.arange(12).reshape(3, 4).T)
    np.save("image.npy", IMAGE)
    np.save("packed.npy", pack(IMAGE, "nChw8c").buffer.view(np.float32))
    weights: dict[str, npt.NDArray[Any]] = {
        "w": np.arange(-6, 6, dtype=np.float32).reshape(3, 4),
        "b": np.ones(2, np.float16),
    }
    save_file(weights, "w.safetensors")
    write_classifier()


@pytest.mark.usefixtures("quiet_machine")
@pytest.mark.parametrize(
    ("name", "arguments"), CASES, ids=lambda value: value if isinstance(value, str) else value[-1][:12]
)
def test_a_document_is_what_the_schema_says(name: str, arguments: list[str], capsys: Capture) -> None:
    out, err = outputs(capsys, *arguments, "--json")
    require_document(out, name)
    assert "error" not in err


def test_every_command_and_every_definition_has_a_case() -> None:
    assert {arguments[0] for _, arguments in CASES} == COMMANDS
    used = {name for name, definition in DEFINITIONS.items() if definition["description"].startswith("`inlay ")}
    assert {name for name, _ in CASES} == used


def test_the_schema_is_valid() -> None:
    jsonschema.Draft202012Validator.check_schema(SCHEMA)
    assert list(find_references(SCHEMA)) == [name for name in find_references(SCHEMA) if name in DEFINITIONS]


def find_references(value: Any) -> Iterator[str]:
    """The names of the definitions that a schema refers to."""
    if isinstance(value, dict):
        if isinstance(value.get("$ref"), str):
            yield value["$ref"].removeprefix("#/$defs/")
        for entry in value.values():
            yield from find_references(entry)
    elif isinstance(value, list):
        for entry in value:
            yield from find_references(entry)


def test_the_page_has_the_tables_of_the_schema() -> None:
    assert written().strip() == tables().strip()  # python -m tests.support.json_page writes them
    assert set(sections()) == set(DEFINITIONS)


WRONG: list[tuple[list[str], str]] = [
    (["show", "nchz", "2x3x4x5"], "FormatTagError"),
    (["draw", "nchw", "2x3x4x5"], "InvalidArguments"),
    (["show", "nchw"], "UsageError"),
    (["show", "nchw", "2x3x4x5", "--ofsets"], "UsageError"),
    (["explore", "nchw", "2x3x4x5", "--out", "page.svg"], "InvalidArguments"),
    (["offset", "nchw", "2x3x4x5", "9,9,9,9"], "InvalidArguments"),
    (["info", "nowhere.safetensors"], "FileError"),
    (["diff", "nchw", "nhwc", "2x3"], "InvalidArguments"),
    (["names", "zz*"], "InvalidArguments"),
    (["infer", "image.npy", "2x3"], "InvalidArguments"),
    (["verify", "ab", "3x4", "table.npy", "--table", "physical"], "InvalidArguments"),
    (["convert", "nowhere.npy", "-o", "x.npy"], "FileError"),
    (["emit", "nchw", "2x3x4x5", "--form", "object"], "InvalidArguments"),
    (["plan", "nowhere.onnx"], "FileError"),
    (["run", "net.onnx"], "InvalidArguments"),
    (["bench", "nchw"], "InvalidArguments"),
    (["completion", "csh"], "InvalidArguments"),
]


@pytest.mark.parametrize(("arguments", "kind"), WRONG, ids=lambda value: value if isinstance(value, str) else value[0])
def test_an_error_is_a_document_and_a_message(arguments: list[str], kind: str, capsys: Capture) -> None:
    assert cli.main([*arguments, "--json"]) == 2
    out, err = capsys.readouterr()
    error = require_document(out, "error")["error"]
    assert error["type"] == kind
    assert err == f"error: {error['message']}\n"
    assert cli.main(arguments) == 2
    assert capsys.readouterr().out == ""


def test_an_error_says_which_characters_of_a_format_are_wrong(capsys: Capture) -> None:
    assert cli.main(["show", "n (c c8] -> n c c8", "2x3", "--json"]) == 2
    out, _ = capsys.readouterr()
    place = require_document(out, "error")["error"]["place"]
    assert (place["text"], place["text"][place["start"] : place["end"]]) == ("n (c c8] -> n c c8", "]")
    document = error_document(FormatTagError("unknown alias", "nchz", 0, 4), "unknown alias")
    assert document["error"]["status"] == "invalid_arguments"


def test_numbers_that_json_does_not_have_are_null(capsys: Capture) -> None:
    image = IMAGE.copy()
    image[0, 0, 0, 0] = np.nan
    np.save("image.npy", image)
    options = ["--input", "image.npy", "--costs", "analytic", "--engine", "reference"]
    out, _ = outputs(capsys, "run", "net.onnx", *options, "--json")
    (found,) = require_document(out, "run")["outputs"]
    assert (found["nonfinite"], found["dims"]) == (12, [2, 12])
    scores = [entry["score"] for row in found["scores"] for entry in row]
    assert scores.count(None) == 5


def test_the_picture_in_a_document_does_not_depend_on_the_terminal(
    capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("COLUMNS", "200")
    out, _ = outputs(capsys, "show", "nChw8c", "2x17x5x4", "--json")
    picture = require_document(out, "show")["picture"]
    assert "\x1b" not in picture
    assert picture == str(show(MemoryDesc((2, 17, 5, 4), "f32", "nChw8c"), color=False, width=80))


def test_a_document_for_a_layout_has_its_digits(capsys: Capture) -> None:
    out, _ = outputs(capsys, "info", "nChw8c", "2x17x5x4", "--json")
    found = require_document(out, "info_layout")
    assert found["digits"][1] == [{"extent": 3, "stride": 160}, {"extent": 8, "stride": 1}]
    assert (found["nbytes"], found["padding_elements"], found["tag"]) == (3840, 280, "aBcd8b")
    out, _ = outputs(capsys, "info", "Swizzle<3,4,3> o (8,128):(128,1)", "8x128", "--json")
    found = require_document(out, "info_layout")
    assert (found["swizzle"], found["digits"]) == (
        "Swizzle<3,4,3>",
        [[{"extent": 8, "stride": 128}], [{"extent": 128, "stride": 1}]],
    )


def test_doctor_reports_a_fault_in_its_document(
    capsys: Capture, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("INLAY_CACHE_MB", "many")
    shutil.rmtree(tmp_path / "cache", ignore_errors=True)
    assert cli.main(["doctor", "--json"]) == 1
    found = require_document(capsys.readouterr().out, "doctor")
    assert not found["is_sound"]
    assert found["cache_directory"]["fault"].startswith("INLAY_CACHE_MB is 'many'")
