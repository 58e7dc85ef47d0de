"""Signals, closed streams, hostile names and unusual targets: the command line ends cleanly and with a message."""

import ast
import json
import os
import signal
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

import inlay
from inlay import cli, storage
from inlay.errors import FileError, printable, printable_lines
from inlay.files import atomic_write, find_abandoned
from inlay.layout import Axis, Digit, Layout
from inlay.storage import open_memories
from tests.support.command_line import Capture, complaint, outputs, run_process, succeed, write_activations
from tests.support.refusals import raises_exactly

HOSTILE = "n\x1b]0;title\x07\r\nwrote x\x00\ufffe\u202e\x9b31m\ud800"
IMAGE = np.arange(2 * 17 * 5 * 4, dtype=np.float32).reshape(2, 17, 5, 4)
CONVERT = ["convert", "a.npy", "-o", "p.safetensors", "--to", "nChw16c"]
unix = pytest.mark.skipif(os.name != "posix", reason="signals and descriptors are Unix's")


@pytest.fixture(autouse=True)
def directory(directory: Path) -> Path:
    """The current directory, which has an image."""
    np.save("a.npy", IMAGE)
    return directory


def run_program(code: str, *args: str) -> tuple[int, str | None, str]:
    """Return exit code, output and errors of Python code with these arguments."""
    return run_process([sys.executable, "-c", textwrap.dedent(code), *args])


# Signals

WHILE_CONVERTING = """
    import os, signal, sys
    action, number = (getattr(signal, sys.argv.pop(1)) for _ in range(2))
    signal.signal(number, action)
    from inlay import cli, storage
    convert = storage.convert
    storage.convert = lambda plan, _, **options: convert(plan, lambda n: os.kill(os.getpid(), number), **options)
    sys.exit(cli.main())
"""


@unix
@pytest.mark.parametrize(
    ("name", "action"), [("SIGTERM", "SIG_DFL"), ("SIGHUP", "SIG_DFL"), ("SIGINT", "default_int_handler")]
)
def test_a_request_to_end_leaves_nothing_half_written(directory: Path, name: str, action: str) -> None:
    assert run_program(WHILE_CONVERTING, action, name, *CONVERT) == (128 + getattr(signal, name), "", "")
    assert [path.name for path in directory.iterdir()] == ["a.npy"]


@unix
def test_a_terminal_that_closes_is_ignored_where_it_was_before() -> None:
    """`nohup` ignores it."""
    code, _, err = run_program(WHILE_CONVERTING, "SIG_IGN", "SIGHUP", *CONVERT)
    assert (code, err) == (0, "")
    assert list(open_memories("p.safetensors")) == ["a"]


LOADING = """
    import os, signal, sys
    class Finder:
        def find_spec(self, name, path=None, target=None):
            if name == wanted:
                os.kill(os.getpid(), signal.SIGINT)
    wanted = sys.argv.pop(1)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    sys.meta_path.insert(0, Finder())
    sys.argv[0] = "/usr/bin/inlay"
    from inlay.cli import main
    sys.exit(main())
"""


@unix
@pytest.mark.parametrize(
    "module", ["numpy", "numpy._core.umath", "ml_dtypes", "inlay.cli", "typer", "inlay.storage", "llvmlite"]
)
def test_ctrl_c_while_modules_are_loaded_ends_without_a_word(directory: Path, module: str) -> None:
    assert run_program(LOADING, module, *CONVERT) == (130, "", "")
    assert [path.name for path in directory.iterdir()] == ["a.npy"]


@unix
def test_a_library_leaves_signals_alone() -> None:
    code = """
        import signal
        signal.signal(signal.SIGINT, signal.default_int_handler)
        import inlay
        assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    """
    assert run_program(code) == (0, "", "")


@unix
def test_ctrl_c_that_turns_into_a_failed_import_ends_with_130(capsys: Capture, monkeypatch: pytest.MonkeyPatch) -> None:
    def loading(*_: object, **__: object) -> None:
        try:
            os.kill(os.getpid(), signal.SIGINT)
            signal.pause()
        except KeyboardInterrupt:
            raise ImportError("numpy._core.umath failed to import") from None

    monkeypatch.setattr(storage, "plan", loading)
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        assert cli.main(CONVERT) == 130
        assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    finally:
        signal.signal(signal.SIGINT, before)
    assert capsys.readouterr() == ("", "")


# What a killed run leaves

KILLED = """
    import os, signal, sys
    from pathlib import Path
    from inlay.files import atomic_write
    with atomic_write(Path(sys.argv[1])) as file:
        file.write(b"x" * 2_000_000)
        file.flush()
        if sys.argv[2] == "die":
            os.kill(os.getpid(), signal.SIGKILL)
        print("writing", flush=True)
        sys.stdin.readline()
"""


@unix
def test_what_a_killed_run_left_is_named_and_removed_on_request(directory: Path, capsys: Capture) -> None:
    pytest.importorskip("fcntl")
    for target in ("p.safetensors", "other.safetensors"):
        assert run_program(KILLED, target, "die")[0] == -signal.SIGKILL
    (directory / ".p.safetensors.0123.tmp").write_bytes(b"of another program")
    (left,) = find_abandoned(Path("p.safetensors"))
    note = f"note: {left} (2.0 MB) is left from a run that was killed: --clean removes it\n"
    assert outputs(capsys, *CONVERT)[1] == note
    assert left.exists()
    assert outputs(capsys, *CONVERT, "--clean", "--overwrite")[1] == f"removed {left}\n"
    assert not left.exists()
    assert len(find_abandoned(Path("other.safetensors"))) == 1
    assert (directory / ".p.safetensors.0123.tmp").exists()
    succeed(capsys, *CONVERT, "--overwrite")


@unix
def test_what_a_living_process_writes_is_left_alone(directory: Path, capsys: Capture) -> None:
    pytest.importorskip("fcntl")
    call = [sys.executable, "-c", textwrap.dedent(KILLED), "p.safetensors", "live"]
    with subprocess.Popen(call, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as writer:
        assert writer.stdin is not None
        assert writer.stdout is not None
        assert writer.stdout.readline() == "writing\n"
        assert find_abandoned(Path("p.safetensors")) == []
        succeed(capsys, *CONVERT, "--clean")
        writer.stdin.write("\n")
        writer.stdin.flush()
        assert writer.wait(60) == 0
    assert Path("p.safetensors").read_bytes() == b"x" * 2_000_000


@pytest.mark.parametrize("name", ["x" * 250, "漢" * 83, "a[b]*?.npy"])
def test_names_as_long_as_they_may_be_are_written(directory: Path, name: str) -> None:
    alike = name[:-1] + "z"
    with atomic_write(Path(name)) as file, atomic_write(Path(alike)):
        file.write(b"content")
        assert find_abandoned(Path(name)) == []
    assert Path(name).read_bytes() == b"content"
    assert sorted(path.name for path in directory.iterdir()) == sorted(["a.npy", name, alike])


# Targets


def _make_two_links_to_each_other(path: Path) -> None:
    path.symlink_to("b.safetensors")
    Path("b.safetensors").symlink_to(path)


@unix
@pytest.mark.parametrize(
    ("make", "message"),
    [
        (_make_two_links_to_each_other, "its links form a cycle; remove one of them"),
        (lambda path: path.symlink_to(path.resolve()), "its links form a cycle; remove one of them"),
        (
            lambda path: path.symlink_to("/nowhere/else/p.safetensors"),
            "it is a link to /nowhere/else/p.safetensors, and the directory /nowhere/else does not exist; create it "
            "first",
        ),
    ],
)
def test_a_target_that_cannot_be_written_is_told_apart(capsys: Capture, make: Any, message: str) -> None:
    make(Path("p.safetensors"))
    assert complaint(capsys, *CONVERT) == f"cannot write p.safetensors: {message}"


@unix
def test_a_target_without_permission_to_write_is_not_replaced(capsys: Capture, monkeypatch: pytest.MonkeyPatch) -> None:
    Path("p.safetensors").write_text("kept")
    Path("p.safetensors").chmod(0o400)
    access = os.access
    # Root may write everywhere.
    monkeypatch.setattr(os, "access", lambda path, mode: mode != os.W_OK and access(path, mode))
    error = "cannot write p.safetensors: permission denied; check who may use it"
    assert complaint(capsys, *CONVERT, "--overwrite") == error
    assert Path("p.safetensors").read_text() == "kept"


# Names


def is_safe(text: str) -> bool:
    return all(c.isprintable() or c == "\n" for c in text)


def test_a_name_is_one_line_without_control_codes() -> None:
    assert printable("conv1.weight ü 漢 \\ '") == "conv1.weight ü 漢 \\ '"
    expected = r"n\x1b]0;title\x07\r\nwrote x\x00\ufffe\u202e\x9b31m\ud800"
    assert printable(HOSTILE) == expected
    assert printable_lines(f"one\n{HOSTILE}") == "one\n" + expected.replace(r"\n", "\n")
    for code in range(0x110000):
        c = chr(code)
        shown = printable(c)
        assert shown == c if c.isprintable() else shown.isascii()


@pytest.mark.parametrize(
    "command",
    [
        "convert w.safetensors -o q.safetensors --to plain --dry-run",
        "convert w.safetensors -o q.safetensors --to plain --dtype s8 --allow-loss",
        "convert w.safetensors -o q.safetensors --to plain --dtype s8",
        "convert w.safetensors -o q.safetensors --to nChw16c",
        "convert w.safetensors -o q.safetensors --to none=nChw16c",
        "convert w.safetensors -o q.npy --to ba",
        "plan net.onnx --costs analytic",
        "plan net.onnx --costs analytic --json",
        "run net.onnx --input a.npy --engine reference",
        "run net.onnx --input wrong.npy --engine reference",
        "run net.onnx --input other=a.npy --engine reference",
        "run net.onnx --input a.npy --engine reference -o out.npz",
        "plan broken.onnx --costs analytic",
    ],
)
def test_names_in_files_print_as_one_line_without_control_codes(capsys: Capture, command: str) -> None:
    name = HOSTILE.removesuffix("\ud800").replace("\0", "")
    save_file({name: np.full((4, 4), 0.01, np.float32)}, "w.safetensors")
    np.save("wrong.npy", np.zeros(3, np.float32))
    write_activations(IMAGE.shape, name, f"y{name}")
    model = Path("net.onnx").read_bytes()
    Path("broken.onnx").write_bytes(model.replace(b"Relu", b"Re\x1bu"))
    cli.main(command.split())
    out, err = capsys.readouterr()
    assert is_safe(out + err)
    assert out + err
    assert not any(line.startswith("wrote x") for line in (out + err).splitlines())
    if "json" in command:
        assert json.loads(out)["network"] == name


@pytest.mark.parametrize("args", [("offset", HOSTILE, "2x3", "0,0"), ("convert", HOSTILE, "-o", "b.npy"), (HOSTILE,)])
def test_arguments_in_errors_print_without_control_codes(capsys: Capture, args: tuple[str, ...]) -> None:
    assert is_safe(complaint(capsys, *args))


def test_commands_print_by_one_function() -> None:
    package = Path(cli.__file__).parent
    for path in sorted(package.glob("*.py")):
        calls = [ast.unparse(node.func) for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Call)]
        printing = {"print", "typer.echo", "typer.secho", "sys.stdout.write", "sys.stderr.write"}.intersection(calls)
        assert printing == ({"typer.echo"} if path.name == "output.py" else set()), path.name


# Streams


@unix
@pytest.mark.parametrize("closed", [(1,), (2,), (0, 1, 2)])
@pytest.mark.parametrize("command", [CONVERT, ["show", "nChw8c", "2x17x5x4"], ["names"]])
def test_closed_streams_are_no_matter(directory: Path, closed: tuple[int, ...], command: list[str]) -> None:
    words = " ".join(f"{number}{'<' if number == 0 else '>'}&-" for number in closed)
    call = ["sh", "-c", f'exec "$@" {words}', "sh", sys.executable, "-m", "inlay", *command]
    code, out, err = run_process(call)
    assert (code, bool(out), err) == (0, 1 not in closed, "")
    if command is CONVERT:
        assert np.array_equal(open_memories("p.safetensors")["a"].unpack(), IMAGE)


@unix
def test_nothing_that_is_printed_lands_in_a_file_that_took_the_number_of_a_closed_stream() -> None:
    code = """
        import os, sys
        from inlay import cli, storage
        make_plan = storage.plan
        def printing(*args, **options):
            plan = make_plan(*args, **options)
            convert = storage.convert
            def told(n):
                for number in (1, 2):
                    os.write(number, b"from a library")
            storage.convert = lambda plan, _, **options: convert(plan, told, **options)
            return plan
        storage.plan = printing
        sys.exit(cli.main())
    """
    call = ["sh", "-c", 'exec "$@" >&- 2>&-', "sh", sys.executable, "-c", textwrap.dedent(code), *CONVERT]
    assert run_process(call)[0] == 0
    assert np.array_equal(open_memories("p.safetensors")["a"].unpack(), IMAGE)
    assert b"from a library" not in Path("p.safetensors").read_bytes()


def test_a_picture_is_drawn_in_a_process_without_an_output(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdout", None)
    assert str(inlay.show(inlay.MemoryDesc((2, 3), "f32", "ab"))).startswith("ab, 2 x 3 of f32")


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (
            OSError("Could not find/load shared object file 'libllvmlite.so'"),
            "the operating system refuses: Could not find/load shared object file 'libllvmlite.so'; check memory, disk "
            "and permissions",
        ),
        (
            MemoryError(),
            "the memory of this machine does not suffice: the boxes of a task have to fit: allow less memory for them "
            "(--memory 256MB), or free memory",
        ),
    ],
)
def test_what_the_system_refuses_is_not_told_as_a_failed_write(
    capsys: Capture, monkeypatch: pytest.MonkeyPatch, error: Exception, message: str
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise error

    monkeypatch.setattr(storage, "plan", refuse)
    assert complaint(capsys, *CONVERT) == message


def test_each_command_has_a_remedy_of_its_own_for_too_little_memory(
    capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    import inlay.graph.onnx.reading as reading

    def refuse(*_: object, **__: object) -> None:
        raise MemoryError

    monkeypatch.setattr(reading, "load_for", refuse)
    Path("net.onnx").touch()
    assert complaint(capsys, "run", "net.onnx", "--input", "a.npy") == (
        "the memory of this machine does not suffice: give arrays of a smaller batch, or free memory"
    )


# Digits without end


def test_any_number_of_digits_is_read_or_refused_in_words() -> None:
    assert Layout((2,), (Axis(1, (Digit(1, 1),) * 50_000),)).span == (0, 2)
    for count, is_read in ((1000, True), (500_000, False)):
        described = {"dims": [2], "data_type": "u8", "padded_dims": [2], "offset0": 0}
        described["digits"] = [[[2, 1]] + [[1, 1]] * count]
        text = json.dumps({"version": 1, "tensors": {"w": described}})
        save_file({"w": np.zeros(2, np.uint8)}, "w.safetensors", {"inlay": text})
        if is_read:
            assert open_memories("w.safetensors")["w"].desc.dims == (2,)
            assert cli.main(["convert", "w.safetensors", "-o", "v.safetensors", "--to", "plain"]) == 0
            assert load_file("v.safetensors")["w"].tolist() == [0, 0]
            continue
        length = len(json.dumps(described))
        text = (
            "cannot read w.safetensors: its layout text is damaged, tensor w: its descriptor has "
            f"{length} characters of JSON: at most 1048576 are read; convert the original again"
        )
        with raises_exactly(FileError, text):
            open_memories("w.safetensors")
