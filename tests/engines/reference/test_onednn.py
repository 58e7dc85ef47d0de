"""The reference engine beside the real oneDNN: the same numbers within what the type's rounding allows.

The bound is norm-wise: an error is measured in units of the rounding of the type, at the greatest number of the result,
or at 1, where the data is. Sums of many products in f32 and approximated functions take some of these.
"""

from math import prod
from typing import Any

import numpy as np
import pytest

from inlay.data_type import DATA_TYPES
from inlay.descriptor import MemoryDesc
from inlay.engines import reference
from inlay.engines.onednn import OnednnEngine, make_engine
from inlay.errors import InvalidArguments, Unimplemented
from inlay.primitives.engine import Engine
from tests.oracles import onednn as oracle
from tests.support.onednn_cases import computes
from tests.support.reference_cases import KINDS, Problem, Random, backward, directions, problem_of, run

pytestmark = pytest.mark.skipif(oracle.why_unavailable() is not None, reason=str(oracle.why_unavailable()))


@pytest.fixture(scope="module")
def onednn() -> OnednnEngine:
    return make_engine()


def channels_last(name: str, dims: Any, data_type: str) -> MemoryDesc:
    """Axes after the second before it."""
    ndims = len(dims)
    tag = "a" + "bcdefghijkl"[1 : ndims - 1] + "b" if ndims > 2 else "abc"[:ndims]
    return MemoryDesc(dims, data_type, tag)


def results(engine: Engine, problem: Problem, data: dict[str, Any], data_type: str) -> dict[str, Any]:
    """Run a problem forward and backward, and return all results."""
    forward = engine.create(problem.forward(channels_last, data_type))
    memories = run(forward, data, {})
    written = {name: memories[name] for name in forward.operation.signature.writes if name in memories}
    for direction in directions(problem.kind):
        implementation = engine.create(backward(forward, direction))
        kept = {name: memory for name, memory in memories.items() if implementation.descs.get(name) == memory.desc}
        there = run(implementation, data, kept)
        written |= {name: there[name] for name in implementation.operation.signature.writes if name in there}
    return {name: memory.unpack().astype(np.float64) for name, memory in written.items() if name != "workspace"}


def inputs(problem: Problem, random: Random, data_type: str) -> dict[str, Any]:
    """Numbers that the type has, for everything that is read."""
    names = ["diff_dst", *problem.dims]
    if "use_global_stats" not in str(problem.parameters.get("flags")):
        names = [name for name in names if name not in ("mean", "variance")]
    numpy_type = DATA_TYPES[data_type].dtype
    return {name: problem.array(name, random).astype(numpy_type) for name in names if name != "dst"}


# Sums in oneDNN are of f32 whatever the type.
TYPES = {"f32": 2.0**-24, "bf16": 2.0**-8}
UNITS = {"f32": 128.0, "bf16": 4.0}
FEW, MANY = range(8), range(8, 80)


@pytest.mark.parametrize("data_type", TYPES)
@pytest.mark.parametrize("kind", KINDS)
def test_results_are_those_of_onednn(onednn: OnednnEngine, kind: str, data_type: str) -> None:
    compare(onednn, kind, data_type, FEW)


@pytest.mark.heavy
@pytest.mark.parametrize("data_type", TYPES)
@pytest.mark.parametrize("kind", KINDS)
def test_results_of_many_shapes_are_those_of_onednn(onednn: OnednnEngine, kind: str, data_type: str) -> None:
    compare(onednn, kind, data_type, MANY)


def is_defect(problem: Problem, data_type: str, name: str) -> bool:
    """Return whether oneDNN 3.2 is known to be wrong: gradients of LRN in bf16 if channels are no multiple of 16.

    In f32 it agrees with the reference on the same problems.
    """
    return problem.kind == "lrn" and data_type == "bf16" and name == "diff_src" and problem.dims["src"][1] % 16 != 0


def is_untouched(data_type: str, name: str, wanted: Any) -> Any:
    """Return a mask of elements that oneDNN does not write: in bf16, taps that are in the padding of every window."""
    return (wanted == 0) & (data_type == "bf16" and name == "diff_weights")


def compare(onednn: OnednnEngine, kind: str, data_type: str, seeds: range) -> None:
    """Hold both engines against one another; at least half of the problems must be ones that oneDNN takes.

    Where a tensor has no elements, oneDNN writes nothing.
    """
    if kind == "group_normalization" and (kind, "forward", "") not in onednn.capabilities.creators:
        pytest.skip("this oneDNN has no group normalization")
    if not computes(onednn, data_type):
        pytest.skip(f"this oneDNN computes nothing in {data_type} on this processor")
    compared = 0
    for seed in seeds:
        random = np.random.default_rng([seed, KINDS.index(kind)])
        problem = problem_of(kind, random)
        data = inputs(problem, random, data_type)
        try:
            found = results(onednn, problem, data, data_type)
        except (InvalidArguments, Unimplemented):
            continue
        wanted = results(reference.make_engine(), problem, data, data_type)
        assert set(found) == set(wanted)
        for name, array in wanted.items():
            if min(map(prod, problem.dims.values())) and not is_defect(problem, data_type, name):
                found[name] = np.where(is_untouched(data_type, name, array), 0, found[name])
                bound = UNITS[data_type] * TYPES[data_type] * np.abs(array).max(initial=1.0)
                np.testing.assert_allclose(found[name], array, rtol=0, atol=bound, err_msg=f"seed {seed}: {name}")
        compared += 1
    assert compared >= len(seeds) // 2
