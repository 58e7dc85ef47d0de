"""Suggestions for names that do not exist; `inlay` alone; dims and coordinates in several words."""

import re
import shlex
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import typer
from safetensors.numpy import save_file

from inlay.cli import app, suggestions
from inlay.cli.overview import overview
from inlay.cli.suggestions import suggest_command, suggest_option
from inlay.memory import pack
from tests.support.command_line import Capture, complaint, succeed

GROUP: Any = typer.main.get_command(app)
COMMANDS = list(GROUP.commands)
OVERVIEW = overview(COMMANDS)


def test_inlay_alone_says_what_one_can_do(capsys: Capture) -> None:
    assert succeed(capsys) == f"{OVERVIEW}\n"
    lines = OVERVIEW.splitlines()
    assert (len(lines) <= 30, max(map(len, lines)) <= 80) == (True, True)
    shown = {line.split()[1] for line in lines if line.startswith("  inlay ")}
    assert shown | {"doctor", "completion"} >= {*COMMANDS}
    assert shown <= {*COMMANDS}


def test_the_commands_of_the_overview_on_layouts_and_files_run(capsys: Capture, directory: Path) -> None:
    image = np.arange(680, dtype=np.float32).reshape(2, 17, 5, 4)
    np.save("image.npy", image)
    np.save("packed.npy", pack(image, "nChw8c").buffer.view(np.float32))
    save_file({"w": np.ones((32, 16, 3, 3), np.float32)}, "w.safetensors")
    lines = [
        line
        for line in OVERVIEW.splitlines()
        if line.startswith("  inlay ") and not re.search(r"model\.onnx|explore", line)
    ]
    for line in lines:
        command = re.split(r"\s{2,}", line.strip())[0]
        succeed(capsys, *shlex.split(command)[1:])


@pytest.mark.parametrize(
    ("word", "command"),
    [
        ("draw", "show"),
        ("Draw", "show"),
        ("picture", "show"),
        ("shwo", "show"),
        ("address", "offset"),
        ("describe", "info"),
        ("compare", "diff"),
        ("tags", "names"),
        ("detect", "infer"),
        ("check", "verify"),
        ("pack", "convert"),
        ("conver", "convert"),
        ("codegen", "emit"),
        ("benchmark", "bench"),
        ("optimise", "plan"),
        ("predict", "run"),
        ("status", "doctor"),
        ("bash", "completion"),
        ("version", "--version"),
        ("--help", "--help"),
    ],
)
def test_a_command_is_suggested(word: str, command: str) -> None:
    assert suggest_command(word, COMMANDS) == [command]


def test_no_command_is_suggested_for_a_word_like_none() -> None:
    assert suggest_command("xyzzy", COMMANDS) == []
    assert suggest_command("explore", [*COMMANDS, "explore"]) == ["explore"]


def test_synonyms_are_no_commands_and_belong_to_one_command() -> None:
    words = [word for words in suggestions._COMMAND_SYNONYMS.values() for word in words.split()]
    assert sorted(set(words)) == sorted(words)
    assert set(words).isdisjoint(COMMANDS)


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["convert", "a.npy", "-o", "b.npy", "--force"], "--overwrite"),
        (["convert", "a.npy", "-o", "b.npy", "--layout", "nChw8c"], "--to"),
        (["plan", "net.onnx", "--batch-size", "4"], "--batch"),
        (["run", "net.onnx", "--cores", "4"], "--threads"),
        (["show", "nchw", "2x3x4x5", "--data-type", "s8"], "--dtype"),
        (["show", "nchw", "2x3x4x5", "--png", "a.png"], "--out"),
        (["show", "nchw", "2x3x4x5", "--output", "a.png"], "--out"),
        (["show", "nchw", "2x3x4x5", "--slice", "n=0"], "--at"),
        (["plan", "net.onnx", "--page", "net.html"], "--html"),
        (["bench", "nchw", "nhwc", "2x3x4x5", "--repeat", "3"], "--rounds"),
    ],
)
def test_an_option_is_suggested(arguments: list[str], text: str, capsys: Capture) -> None:
    wrong = next(word for word in arguments if word.startswith("--"))
    assert complaint(capsys, *arguments) == (
        f"`inlay {arguments[0]}` has no option {wrong}: did you mean {text}?\nsee `inlay {arguments[0]} --help`"
    )


def test_options_are_suggested_only_if_the_command_has_them() -> None:
    assert suggest_option("--force", ["--json", "--help"]) == []
    for option in {*suggestions._OPTION_SYNONYMS} - {"--version"}:
        owners = [name for name, command in GROUP.commands.items() if option in _options(command)]
        assert owners, option


def _options(command: typer.core.TyperCommand) -> list[str]:
    return [name for param in command.params for name in (*param.opts, *param.secondary_opts)]


WORDS = [
    (["show", "nChw8c", "1", "17", "3", "3"], ["show", "nChw8c", "1x17x3x3"]),
    (["show", "nChw8c", "1,", "17,", "3,", "3"], ["show", "nChw8c", "1x17x3x3"]),
    (["show", "nChw8c", "(1, 17, 3, 3)"], ["show", "nChw8c", "1x17x3x3"]),
    (["show", "nChw8c", "torch.Size([1, 17, 3, 3])"], ["show", "nChw8c", "1x17x3x3"]),
    (["show", "nChw8c", "1", "x", "17", "x", "3", "x", "3"], ["show", "nChw8c", "1x17x3x3"]),
    (["show", "nChw8c", "1X17X3X3"], ["show", "nChw8c", "1x17x3x3"]),
    (["show", "a", "(5,)"], ["show", "a", "5"]),
    (["show", "nChw8c", "1", "17", "--offsets", "3", "3"], ["show", "nChw8c", "1x17x3x3", "--offsets"]),
    (["info", "nChw8c", "1", "17", "3", "3", "--dtype", "s8"], ["info", "nChw8c", "1x17x3x3", "--dtype", "s8"]),
    (["diff", "nchw", "nhwc", "1", "2", "3", "4"], ["diff", "nchw", "nhwc", "1x2x3x4"]),
    (["offset", "nChw8c", "2", "17", "5", "4", "1", "16", "4", "3"], ["offset", "nChw8c", "2x17x5x4", "1,16,4,3"]),
    (["offset", "nChw8c", "2x17x5x4", "1", "16", "4", "3"], ["offset", "nChw8c", "2x17x5x4", "1,16,4,3"]),
    (["offset", "nChw8c", "2", "17", "5", "4", "1,16,4,3"], ["offset", "nChw8c", "2x17x5x4", "1,16,4,3"]),
    (["offset", "a", "5", "3"], ["offset", "a", "5", "3"]),
    (
        ["verify", "ba", "3", "4", "t.npy", "--table", "physical"],
        ["verify", "ba", "3x4", "t.npy", "--table", "physical"],
    ),
    (["infer", "t.npy", "3", "4", "--table", "physical"], ["infer", "t.npy", "3x4", "--table", "physical"]),
    (["emit", "nchw", "1", "2", "3", "4", "--form", "words"], ["emit", "nchw", "1x2x3x4", "--form", "words"]),
]
"""Commands with dims in several words, and the same with one word."""


@pytest.mark.parametrize(("words", "joined"), WORDS, ids=lambda words: " ".join(words))
def test_dims_and_coordinates_may_be_several_words(words: list[str], joined: list[str], capsys: Capture) -> None:
    np.save("t.npy", np.arange(12).reshape(3, 4).T)
    assert succeed(capsys, *words) == succeed(capsys, *joined)
