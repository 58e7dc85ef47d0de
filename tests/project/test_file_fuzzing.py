"""Mutated files of every kind are read, or refused with an error of Inlay, in bounded time and memory."""

import json
import os
import random
import secrets
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support import fuzz_files

pytestmark = pytest.mark.skipif(os.name != "posix", reason="limits of time and memory are Unix's")


def fuzz(kind: str, seed: int, count: int, directory: Path) -> dict[str, int]:
    """Return the numbers of mutants that were read and that were refused."""
    environment = os.environ | {"INLAY_FUZZ_DIR": str(directory)}
    call = [sys.executable, str(Path(fuzz_files.__file__)), kind, str(seed), str(count)]
    done = subprocess.run(call, capture_output=True, text=True, env=environment, check=False)
    if done.returncode:
        number = (directory / "case").read_text() if (directory / "case").exists() else "none"
        pytest.fail(
            f"{' '.join(call[1:])} ended with {done.returncode} at mutant {number} of seed {seed}\n"
            f"{done.stdout}{done.stderr}"
        )
    found: dict[str, int] = json.loads(done.stdout)
    return found


@pytest.mark.heavy
@pytest.mark.parametrize("kind", fuzz_files.KINDS)
def test_two_thousand_new_mutants_are_refused_or_read(tmp_path: Path, kind: str) -> None:
    """Another seed each time; it is said where one fails, and INLAY_FUZZ_SEED repeats it."""
    found = fuzz(kind, int(os.environ.get("INLAY_FUZZ_SEED", secrets.randbelow(10**9))), 2000, tmp_path)
    assert found["read"] > 20
    assert found["refused"] > 20 or kind == "cache"  # where a damaged file is as good as none


@pytest.mark.parametrize("kind", fuzz_files.KINDS)
def test_mutants_differ_and_are_the_same_for_the_same_seed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("INLAY_CACHE_DIR", str(tmp_path / "cache"))
    make, damage, _ = fuzz_files.KINDS[kind]
    good = make()
    mutants = [damage(random.Random(seed), good) for seed in range(100)]
    assert mutants == [damage(random.Random(seed), good) for seed in range(100)]
    assert len(set(mutants)) > 90
    assert len(set(mutants) - set(good)) > 90


@pytest.mark.heavy
@pytest.mark.parametrize(
    ("fault", "words"),
    [
        ("raise KeyError('raw')", "KeyError: 'raw'"),
        ("bytearray(3 << 30)", "MemoryError"),
        ("while True: pass", "TooSlow"),
        ("os.kill(os.getpid(), 9)", "ended with -9 at mutant 0 of seed 3"),
    ],
)
def test_a_fault_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fault: str, words: str) -> None:
    """The fuzzer itself: a raw exception, too much memory, too long, a crash."""
    program = tmp_path / "spoiled.py"
    source = Path(fuzz_files.__file__).read_text()
    spoiled = source.replace("            read(data, draw)\n", f"            {fault}\n").replace(
        "SECONDS = 20", "SECONDS = 1"
    )
    assert spoiled.count(fault) == 1
    program.write_text(spoiled)
    monkeypatch.setattr(fuzz_files, "__file__", str(program))
    with pytest.raises(pytest.fail.Exception) as caught:
        fuzz("json", 3, 5, tmp_path)
    assert words in str(caught.value)
