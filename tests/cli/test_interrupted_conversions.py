"""`inlay convert` by several workers, and after it was interrupted or killed."""

import os
import signal
import subprocess
import sys
import textwrap
import time
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save_file

from inlay.storage import conversion_run
from inlay.storage.journal import journal_path
from tests.support.command_line import Capture, complaint, outputs, run_process, succeed

CONVERT = ["convert", "w.safetensors", "-o", "p.safetensors", "--to", "*=BA16a16b"]
NOTE = "boxes that are written are kept: the same command goes on after them, and --clean removes them\n"
unix = pytest.mark.skipif(os.name != "posix", reason="signals are Unix's")

ENDING = """
    import os, signal, sys
    from inlay import cli, storage
    from inlay.storage import conversion_run
    name, kept, convert = sys.argv.pop(1), int(sys.argv.pop(1)), storage.convert
    conversion_run.KEPT_NBYTES = kept
    heard = []
    def end(nbytes):
        heard.append(nbytes)
        if len(heard) == 3:
            os.kill(os.getpid(), getattr(signal, name))
    signal.signal(signal.SIGINT, signal.default_int_handler)  # nohup and a shell's background ignore signals
    signal.signal(signal.SIGHUP, signal.SIG_DFL)
    storage.convert = lambda plan, _, **options: convert(plan, end, **options)
    sys.exit(cli.main())
"""


@pytest.fixture(autouse=True)
def weights(directory: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Five tensors, each a box."""
    monkeypatch.setattr(conversion_run, "KEPT_NBYTES", 0)
    rng = np.random.default_rng(0)
    save_file({name: rng.standard_normal((48, 64)).astype(np.float32) for name in "abcde"}, "w.safetensors")
    return directory


def ended_by(name: str, kept: int = 0) -> tuple[int, str | None, str]:
    return run_process([sys.executable, "-c", textwrap.dedent(ENDING), name, str(kept), *CONVERT])


def whole(capsys: Capture) -> bytes:
    """The bytes of the same conversion in one go."""
    succeed(capsys, *CONVERT[:3], "e.safetensors", *CONVERT[4:])
    return Path("e.safetensors").read_bytes()


@unix
@pytest.mark.parametrize("name", ["SIGINT", "SIGTERM", "SIGHUP"])
def test_an_interrupted_command_says_that_it_goes_on(directory: Path, capsys: Capture, name: str) -> None:
    assert ended_by(name) == (128 + getattr(signal, name), "", NOTE)
    assert not Path("p.safetensors").exists()
    _, err = outputs(capsys, *CONVERT)
    assert err == "going on with an interrupted run: 3 of 5 boxes are written\n"
    assert Path("p.safetensors").read_bytes() == whole(capsys)
    assert sorted(path.name for path in directory.iterdir()) == ["e.safetensors", "p.safetensors", "w.safetensors"]


@unix
@pytest.mark.parametrize("options", [[], ["--restart"], ["--clean"], ["--workers", "2"]])
def test_a_killed_command_goes_on_or_starts_anew(directory: Path, capsys: Capture, options: list[str]) -> None:
    assert ended_by("SIGKILL", 1 << 40) == (-signal.SIGKILL, "", "")
    assert [path.suffix for path in directory.glob(".*")].count(".partial") == 1
    _, err = outputs(capsys, *CONVERT, *options)
    removed = "removed what an interrupted run left beside p.safetensors\n" if "--clean" in options else ""
    goes_on = (
        ""
        if {"--clean", "--restart"} & set(options)
        else "going on with an interrupted run: 3 of 5 boxes are written\n"
    )
    assert err == removed + goes_on
    assert Path("p.safetensors").read_bytes() == whole(capsys)
    assert not list(directory.glob(".*"))


@unix
@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="finds the workers in /proc")
def test_ctrl_c_at_a_terminal_ends_all_workers_without_a_word(directory: Path) -> None:
    """It reaches every process of the terminal, while workers still load their modules."""
    code = (
        "import signal, sys; from inlay import cli\n"
        "signal.signal(signal.SIGINT, signal.default_int_handler)\n"
        "sys.exit(cli.main())"
    )
    program = [sys.executable, "-c", code, *CONVERT, "--workers", "2"]
    process = subprocess.Popen(program, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, start_new_session=True)
    while len(children_of(process.pid)) < 3 and process.poll() is None:  # Python's resource tracker is one of them
        time.sleep(0.001)
    os.killpg(process.pid, signal.SIGINT)
    output, _ = process.communicate(timeout=120)
    assert (process.returncode, output) == (130, b"")
    assert [path.name for path in directory.iterdir()] == ["w.safetensors"]


def children_of(pid: int) -> list[str]:
    """The processes that threads of a process started."""
    children = []
    for path in Path(f"/proc/{pid}/task").glob("*/children"):
        with suppress(OSError):
            children += path.read_text().split()
    return children


@unix
def test_a_changed_source_is_refused_without_a_note(capsys: Capture) -> None:
    ended_by("SIGKILL")
    os.utime("w.safetensors", ns=(1, 1))
    assert complaint(capsys, *CONVERT) == (
        "cannot go on with p.safetensors: w.safetensors changed since the conversion was interrupted; start anew "
        "(--restart, in Python restart=True)"
    )
    succeed(capsys, *CONVERT, "--restart")


@unix
def test_a_running_conversion_refuses_a_second_one(directory: Path, capsys: Capture) -> None:
    pytest.importorskip("fcntl")
    from inlay.storage.journal import Journal

    text = "cannot write p.safetensors: another process is writing it; wait for its end, or choose another name"
    with Journal("p.safetensors"):
        for options in ([], ["--restart"], ["--clean"], ["--workers", "2"]):
            assert complaint(capsys, *CONVERT, *options) == text
    succeed(capsys, *CONVERT)
    assert not journal_path("p.safetensors").exists()


def test_workers_write_the_same_bytes(capsys: Capture) -> None:
    out = succeed(capsys, *CONVERT, "--workers", "2")
    assert out.startswith("wrote p.safetensors: 5 of 5 tensors converted, 61.4 kB in ")
    assert Path("p.safetensors").read_bytes() == whole(capsys)


@pytest.mark.parametrize(
    ("options", "text"),
    [
        (["--workers", "0"], "the number of workers is 0: give a whole number from 1 on"),
        (
            ["--workers", "2", "--dask", "tcp://10.0.0.1:8786"],
            "the cluster at tcp://10.0.0.1:8786 has workers of its own: leave out their number",
        ),
    ],
)
def test_wrong_options_are_refused(directory: Path, capsys: Capture, options: list[str], text: str) -> None:
    assert complaint(capsys, *CONVERT, *options) == text
    assert [path.name for path in directory.iterdir()] == ["w.safetensors"]
