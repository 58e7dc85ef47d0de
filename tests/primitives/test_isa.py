"""Formats for `any` depend on the instruction set: three of them choose different formats, and compute the same.

The library reads `ONEDNN_MAX_CPU_ISA` when it starts, so each instruction set has its own process.
"""

import json
import os
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.oracles import onednn as oracle

ISAS = {"SSE41": "sse4_1", "AVX2": "avx2", "AVX512_CORE": "avx512bw"}
"""oneDNN's names of instruction sets, with the flag of the processor that each needs."""

PROGRAM = """
import json, sys
import numpy as np
from tests.support.primitive_runs import distinct
from inlay import primitives as p
from inlay.descriptor import MemoryDesc
from inlay.memory import pack

def any_of(*dims):
    return MemoryDesc(dims, "f32", "any")

def describe(primitive, **shapes):
    arrays = {name: distinct(np.random.default_rng([*name.encode()]), primitive.desc(name)) for name in shapes}
    dst = primitive(**{name: pack(array, primitive.desc(name)) for name, array in arrays.items()})
    formats = [primitive.desc(name).tag for name in (*shapes, "dst")]
    return {"formats": formats, "impl": primitive.impl, "dst": dst.unpack().ravel().astype(float).tolist()}

train = {"prop_kind": "forward_training", "padding_l": 1, "engine": "onednn"}
print(json.dumps({
    "training": describe(p.Convolution(any_of(2, 32, 9, 9), any_of(48, 32, 3, 3), **train), src=1, weights=1),
    "inference": describe(p.Convolution(any_of(2, 32, 9, 9), any_of(48, 32, 3, 3), padding_l=1, engine="onednn"),
                        src=1, weights=1),
    "odd": describe(p.Convolution(any_of(2, 17, 9, 9), any_of(19, 17, 3, 3), **train), src=1, weights=1),
    "grouped": describe(p.Convolution(any_of(1, 32, 7, 7), any_of(4, 8, 8, 3, 3), **train), src=1, weights=1),
    "dense": describe(p.InnerProduct(any_of(4, 64), any_of(48, 64), engine="onednn"), src=1, weights=1),
    "odd rows": describe(p.InnerProduct(MemoryDesc((2, 32, 1, 1), "f32", "nChw8c"), any_of(10, 32, 1, 1),
                                      MemoryDesc((10,), "f32", "a"), MemoryDesc((2, 10), "f32", "ab")),
                       src=1, weights=1, bias=1),
}))
"""


def lacks_flag(flag: str) -> bool:
    info = Path("/proc/cpuinfo")
    return not info.exists() or flag not in info.read_text().split()


@cache
def results_of(isa: str) -> dict[str, Any]:
    environment = {**os.environ, "ONEDNN_MAX_CPU_ISA": isa}
    output = subprocess.check_output([sys.executable, "-c", PROGRAM], text=True, env=environment)
    found: dict[str, Any] = json.loads(output.splitlines()[-1])
    return found


pytestmark = [
    pytest.mark.skipif(oracle.why_unavailable() is not None, reason=str(oracle.why_unavailable())),
    pytest.mark.skipif(
        any(map(lacks_flag, ISAS.values())), reason="the processor has not all of SSE4.1, AVX2 and AVX-512"
    ),
]


@pytest.mark.parametrize("problem", ["training", "inference", "odd", "grouped", "dense", "odd rows"])
def test_all_instruction_sets_compute_the_same(problem: str) -> None:
    results = [np.array(results_of(isa)[problem]["dst"]) for isa in ISAS]
    for found in results[1:]:
        assert np.abs(found - results[0]).max() <= 1e-5 * np.abs(results[0]).max()


def test_each_instruction_set_chooses_its_own_formats() -> None:
    problems = ("training", "odd", "grouped", "dense")
    chosen = {str([results_of(isa)[problem]["formats"] for problem in problems]) for isa in ISAS}
    assert len(chosen) == len(ISAS)
    assert "sse41" in results_of("SSE41")["training"]["impl"]
    assert "avx512" in results_of("AVX512_CORE")["training"]["impl"]


def test_blocks_have_the_width_of_vector_registers() -> None:
    if oracle.version() != (3, 2):
        pytest.skip("what 3.2 chooses")
    sources = {isa: results_of(isa)["training"]["formats"][0] for isa in ISAS}
    assert sources == {"SSE41": "aBcd8b", "AVX2": "aBcd8b", "AVX512_CORE": "aBcd16b"}
