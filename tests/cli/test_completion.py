"""Completion by the tab key: in an interactive bash and zsh, in fish, and the scripts themselves."""

import json
import re
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import typer

from inlay.cli import app, main
from inlay.cli.completion import SHELLS, completion_script, describe_commands, list_values
from inlay.data_type import DATA_TYPES
from inlay.notation.dictionary import list_vendors
from inlay.notation.format_tag import ALIASES, ENUMERATED
from tests.support.command_line import Capture, complaint, succeed, write_classifier
from tests.support.narrow_graphs import types_chosen
from tests.support.shells import InteractiveShell, bash, complete_in_fish, zsh

GROUP: Any = typer.main.get_command(app)
NAMES = {"bash": "inlay.bash", "zsh": "_inlay", "fish": "inlay.fish"}

LINES = {
    "inlay sho": "show",
    "inlay show nChw16": "nChw16c",
    "inlay show tensorrt": "tensorrt:",
    "inlay show tensorrt:CHW3": "tensorrt:CHW32",
    "inlay show nQQ": None,
    "inlay show nchw 1x2x3x4 --dty": "--dtype",
    "inlay show nchw 1 2 3 4 --dtype bf": "bf16",
    "inlay show --dtype=bf": "--dtype=bf16",
    "inlay diff nchw nChw16": "nChw16c",
    "inlay bench nchw nChw16": "nChw16c",
    "inlay convert weigh": "weights.safetensors",
    "inlay convert weights.safetensors --to conv1=nChw16": "conv1=nChw16c",
    "inlay convert weights.safetensors --to 'conv*=nChw16": "conv*=nChw16c",
    "inlay convert weights.safetensors --to pla": "plain",
    "inlay convert weights.safetensors -o out --quantize absmax:group=6": "absmax:group=64",
    "inlay emit nchw 2x3x4x5 --to=tensorrt:CHW3": "--to=tensorrt:CHW32",
    "inlay emit nchw 2x3x4x5 --form obj": "object",
    "inlay plan n": "net.onnx",
    "inlay plan net.onnx --costs me": "measured",
    "inlay plan net.onnx --engine ref": "reference",
    "inlay run s": "saved.inlay",
    "inlay run net.onnx --input x=pho": "x=photo.npy",
    "inlay verify nChw16c 2 17 5 4 pho": "photo.npy",
    "inlay completion fi": "fish",
}
"""Lines, and the word that the tab key makes of the last; None if it stays as it is."""


@pytest.fixture
def folder(directory: Path) -> Path:
    """A folder with files and the scripts of all shells."""
    for name in ("net.onnx", "photo.npy", "weights.safetensors", "saved.inlay", "notes.txt"):
        Path(name).touch()
    for shell, name in NAMES.items():
        Path(name).write_text(completion_script(shell, GROUP))
    return directory


def words_of(line: str) -> list[str]:
    """The words of a line before the last."""
    return line.split()[1:-1]


@pytest.fixture(params=["bash", "zsh"])
def shell(request: pytest.FixtureRequest, folder: Path) -> Iterator[InteractiveShell]:
    """An interactive shell that completes."""
    name: str = request.param
    if shutil.which(name) is None:
        pytest.skip(f"{name} is not installed")
    with {"bash": bash, "zsh": zsh}[name](folder / NAMES[name], folder) as running:
        yield running


def test_the_tab_key_completes_values(shell: InteractiveShell) -> None:
    found = {line: shell.complete(line) for line in LINES}
    assert found == {line: [*words_of(line), word or line.split()[-1]] for line, word in LINES.items()}


@pytest.mark.skipif(shutil.which("fish") is None, reason="fish is not installed")
def test_fish_proposes_values(folder: Path) -> None:
    found = {line: complete_in_fish(folder / NAMES["fish"], line, folder) for line in LINES}
    assert found == {line: [word] if word else [] for line, word in LINES.items()}


@pytest.mark.skipif(shutil.which("fish") is None, reason="fish is not installed")
def test_fish_proposes_all_options_and_commands(folder: Path) -> None:
    commands = {each.name: each for each in describe_commands(GROUP)}
    assert set(complete_in_fish(folder / NAMES["fish"], "inlay ", folder)) == set(commands)
    for name, command in commands.items():
        found = complete_in_fish(folder / NAMES["fish"], f"inlay {name} -", folder)
        assert set(found) == {option for each in command.options for option in each.names}


@pytest.mark.skipif(shutil.which("bash") is None, reason="bash is not installed")
def test_networks_are_completed_and_other_files_are_not(folder: Path) -> None:
    with bash(folder / NAMES["bash"], folder) as shell:  # zsh takes any file where no file has the ending
        assert shell.complete("inlay plan note") == ["plan", "note"]
        assert shell.complete("inlay info note") == ["info", "notes.txt"]


def test_kinds_have_all_names() -> None:
    values = list_values(GROUP)
    assert set(values["tag"]) >= {*ENUMERATED, *ALIASES}
    assert {name.removesuffix(":") for name in values["tag"] if name.endswith(":")} >= {*list_vendors()}
    assert values["type"] == [*DATA_TYPES]
    assert values["command"] == [*GROUP.commands]


VALID: dict[str, Callable[[str], list[str]]] = {
    "tier": lambda value: ["plan", "net.onnx", "--costs", value],
    "mode": lambda value: ["plan", "net.onnx", "--convolutions", value],
    "fallback": lambda value: ["plan", "net.onnx", "--fallback", value],
    "precision": lambda value: ["plan", "net.onnx", "--engine", "reference", "--precision", value],
    "isa": lambda value: ["plan", "net.onnx", "--isa", value],
    "form": lambda value: ["emit", "nchw", "1x1x2x2", "--form", value, "-o", f"{value}.c"],
    "target": lambda value: ["emit", "nchw", "1x1x2x2", "--form", "object", "--target", value, "-o", f"{value}.o"],
    "table": lambda value: ["verify", "a", "2", "table.npy", "--table", value],
}
"""A command for each kind, which says whether a value is one."""


@pytest.mark.parametrize("kind", VALID)
def test_every_value_of_a_table_is_accepted(kind: str, capsys: Capture) -> None:
    np.save("table.npy", np.arange(2))
    write_classifier(batch=1)
    for value in list_values(GROUP)[kind]:
        extra = ["--costs", "analytic"] if kind in ("mode", "fallback", "precision") else []
        with types_chosen():
            succeed_or_note(capsys, *VALID[kind](value), *extra)
        wrong = complaint(capsys, *VALID[kind](f"{value}x"), *extra)
        assert f"{value}x" in wrong.lower()


def succeed_or_note(capsys: Capture, *arguments: str) -> None:
    """Run a command that succeeds; notes on the error stream are allowed."""
    assert main(arguments) == 0, capsys.readouterr().err
    capsys.readouterr()


@pytest.mark.parametrize("shell", SHELLS)
def test_a_script_has_names_that_no_shell_interprets(shell: str) -> None:
    script = completion_script(shell, GROUP)
    assert "@" not in re.sub(r'"\$@"|\[@\]|\$\{#?\w+\[@\]\}', "", script)
    assert "xla:{" not in script
    if shutil.which(shell) is not None:
        call = {"bash": ["bash", "-n"], "zsh": ["zsh", "-n"], "fish": ["fish", "--no-execute"]}[shell]
        done = subprocess.run(call, input=script, capture_output=True, text=True, check=False)
        assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("shell", SHELLS)
def test_a_script_is_installed_where_the_shell_looks(
    shell: str, capsys: Capture, directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(directory))
    monkeypatch.setenv("SHELL", f"/bin/{shell}")
    for name in ("XDG_DATA_HOME", "XDG_CONFIG_HOME", "BASH_COMPLETION_USER_DIR"):
        monkeypatch.delenv(name, raising=False)
    path = {
        "bash": directory / ".local/share/bash-completion/completions/inlay",
        "zsh": directory / ".local/share/zsh/site-functions/_inlay",
        "fish": directory / ".config/fish/completions/inlay.fish",
    }[shell]
    out = succeed(capsys, "completion", "--install")
    assert out.startswith(f"wrote {path}\nnew shells read it")
    assert path.read_text() == completion_script(shell, GROUP)
    assert succeed(capsys, "completion", shell) == path.read_text()
    monkeypatch.setenv("SHELL", "")
    found = json.loads(succeed(capsys, "completion", shell, "--install", "--json"))
    assert found == {"shell": shell, "script": None, "file": str(path)}


def test_a_shell_without_a_script_is_refused(capsys: Capture, monkeypatch: pytest.MonkeyPatch) -> None:
    assert complaint(capsys, "completion", "powershell") == (
        "there is no completion script for 'powershell': name bash, zsh, fish"
    )
    monkeypatch.setenv("SHELL", "/bin/dash")
    assert complaint(capsys, "completion") == (
        "SHELL is dash, and scripts are for bash, zsh, fish: name one, as in `inlay completion bash`"
    )
    monkeypatch.delenv("SHELL")
    assert complaint(capsys, "completion", "--install") == (
        "SHELL is not set, and scripts are for bash, zsh, fish: name one, as in `inlay completion bash`"
    )
