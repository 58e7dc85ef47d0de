"""Checks of an installed wheel: a program that a new environment runs outside the checkout, with nothing but Inlay.

python release_checks.py VERSION
"""

import json
import subprocess
import sys
from contextlib import suppress
from importlib import metadata
from importlib.resources import files
from pathlib import Path


def printed(*call: str) -> str:
    """The output of a command that succeeds."""
    done = subprocess.run(call, capture_output=True, text=True, check=False)
    assert done.returncode == 0, (call, done.stdout, done.stderr)
    return done.stdout


def check_version(version: str) -> None:
    """The version is the same everywhere."""
    import inlay

    assert inlay.__version__ == metadata.version("inlay") == version, (inlay.__version__, metadata.version("inlay"))
    command = str(Path(sys.executable).with_name("inlay"))
    for call in ([command], [sys.executable, "-m", "inlay"]):
        assert printed(*call, "--version") == f"inlay {version}\n"


def check_imports() -> None:
    """The package is the installed one, and imports NumPy and ml_dtypes only; every public name can be imported."""
    import inlay

    assert Path(sys.prefix) in Path(inlay.__file__).parents, inlay.__file__
    loaded = (
        "import sys, inlay; print(*sorted({m.partition('.')[0] for m in sys.modules} - {*sys.stdlib_module_names}))"
    )
    names = {name for name in printed(sys.executable, "-c", loaded).split() if not name.startswith(("_", "cython"))}
    assert names <= {"inlay", "numpy", "ml_dtypes"}, names
    for name in inlay.__all__:
        with suppress(inlay.MissingExtra):
            getattr(inlay, name)


def check_data_files() -> None:
    """The files of data are readable as resources, and the marker of types is there."""
    data = files("inlay").joinpath("data")
    assert json.loads(data.joinpath("format_tags.json").read_text())
    assert json.loads(data.joinpath("documents.schema.json").read_text())["$defs"]
    for shell in ("bash", "zsh", "fish"):
        assert "@TABLES@" in data.joinpath("completion", f"inlay.{shell}").read_text()
    assert files("inlay").joinpath("py.typed").is_file()


def check_commands() -> None:
    """Commands work: a picture, a file of code, machine code, the state of the installation."""
    command = str(Path(sys.executable).with_name("inlay"))
    assert printed(command, "show", "nChw8c", "2", "17", "5", "4").startswith(
        "nChw8c (aBcd8b), 2 x 17 x 5 x 4 of f32\n"
    )
    printed(command, "emit", "nChw8c", "2x17x5x4", "-o", "act.c")
    assert Path("act.c").stat().st_size > 0
    assert "complete -F _inlay inlay" in printed(command, "completion", "bash")
    found = json.loads(printed(command, "doctor", "--json"))
    assert found["is_sound"], found
    assert found["machine_code"]["is_right"]
    assert all(package["is_usable"] for package in found["inlay"]["packages"]), found["inlay"]


def check_missing_extras() -> None:
    """What needs an extra says so, with the command that installs it."""
    command = str(Path(sys.executable).with_name("inlay"))
    Path("net.onnx").write_bytes(b"")
    done = subprocess.run([command, "plan", "net.onnx"], capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "pip install 'inlay[onnx]'" in done.stderr, done.stderr


if __name__ == "__main__":
    check_version(sys.argv[1])
    check_imports()
    check_data_files()
    check_commands()
    check_missing_extras()
