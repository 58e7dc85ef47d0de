"""Invalid environment variables: the error names the variable and the remedy, and the process does not end."""

import os
from pathlib import Path

import pytest

from inlay.engines.onednn import load_library
from inlay.engines.onednn.execution import MOST_PER_PROCESSOR, limit_openmp_threads
from inlay.errors import MissingExtra, PerformanceWarning
from tests.oracles import onednn as oracle
from tests.support.processes import run_python

needs_onednn = pytest.mark.skipif(oracle.why_unavailable() is not None, reason=str(oracle.why_unavailable()))


@pytest.mark.parametrize(
    ("named", "why"),
    [
        ("/nonexistent", ", which does not exist"),
        ("/", ", which has no libdnnl.so.3"),
        ("x" * 5000, ", which cannot be read (File name too long)"),
        ("/dev/null", ": /dev/null cannot be loaded (/dev/null: file too short)"),
        ("LIBM", ": LIBM is not oneDNN, it has no dnnl_version"),
    ],
)
def test_a_wrong_value_of_the_environment_is_named_with_what_to_do(
    named: str, why: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if "LIBM" in why:
        with Path("/proc/self/maps").open() as maps:
            file = next(line.split()[-1] for line in maps if "/libm.so" in line)
        named, why = file, why.replace("LIBM", file)
    monkeypatch.setenv("INLAY_ONEDNN", named)
    remedy = "give a libdnnl.so of version 3, or unset INLAY_ONEDNN"
    with pytest.raises(MissingExtra) as caught:
        load_library.__wrapped__()
    assert str(caught.value) == f"INLAY_ONEDNN is {named!r}{why}: {remedy}"


USE = """
from inlay import primitives as p
from inlay.descriptor import MemoryDesc
from inlay.memory import Memory
descs = [MemoryDesc(dims, "f32", "any") for dims in ((1, 16, 32, 32), (16, 16, 3, 3))]
conv = p.Convolution(*descs, padding_l=1, engine="onednn")
conv(**{name: Memory(conv.desc(name)) for name in conv.arguments})
print(conv.engine.num_threads)
"""


@needs_onednn
@pytest.mark.parametrize("asked", ["40000", "100000", "99999999999"])
def test_too_many_openmp_threads_are_limited_with_a_warning(asked: str) -> None:
    if load_library().runtime != "omp":
        pytest.skip("the threads of this library are not OpenMP's")
    done = run_python("-c", USE, OMP_NUM_THREADS=asked)
    most = MOST_PER_PROCESSOR * (os.cpu_count() or 1)
    assert done.stdout == f"{most}\n"
    assert "PerformanceWarning: OpenMP is set to " in done.stderr
    assert f"oneDNN uses {most}; set OMP_NUM_THREADS to the number of processors, or unset it" in done.stderr


def test_the_warning_about_too_many_threads() -> None:
    assert limit_openmp_threads(16 * 4, 4) == 64
    with pytest.warns(PerformanceWarning) as caught:
        assert limit_openmp_threads(65, 4) == 64
    assert [str(one.message) for one in caught] == [
        "OpenMP is set to 65 threads, and this machine has 4 processors: oneDNN uses 64; set OMP_NUM_THREADS to the "
        "number of processors, or unset it"
    ]
