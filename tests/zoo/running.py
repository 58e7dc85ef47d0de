"""A case of the zoo: one architecture, one exporter, fixed or open dims; how it runs in Inlay and in ONNX Runtime."""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import NamedTuple

import numpy as np
import onnx

import inlay
from inlay.graph.op_graph import Array
from inlay.graph.plan import Plan
from inlay.graph.program import NumpyShare
from tests.support.network_runs import run_by_onnxruntime
from tests.zoo.architectures import ZOO, draw_inputs
from tests.zoo.exporting import Exporter, export

OTHER_SIZES: Mapping[str, int] = MappingProxyType({"batch": 3, "length": 20, "written": 9})
"""Sizes at which files with open axes run; none of them is that of the example."""


class ZooCase(NamedTuple):
    """An export of an architecture."""

    name: str
    """Name of the architecture in `ZOO`."""
    exporter: Exporter
    """The exporter of PyTorch."""
    dynamic: bool
    """True if the axes that may be open are open."""

    def __str__(self) -> str:
        return f"{self.name}-{self.exporter}" + "-open" * self.dynamic


CASES = tuple(
    ZooCase(name, exporter, dynamic)
    for name, architecture in ZOO.items()
    for exporter in ("script", "dynamo")
    for dynamic in ((False, True) if architecture.open_axes else (False,))
)
"""Each case of the zoo."""


@dataclass(frozen=True, slots=True)
class ZooRun:
    """A run of a case."""

    plan: Plan
    """The plan, with probed costs."""
    numpy: NumpyShare
    """Steps, and those that NumPy computes."""
    error: float
    """The greatest difference from ONNX Runtime, as a part of the greatest element of its output."""


def case_sizes(case: ZooCase) -> dict[str, int]:
    """Return the sizes of the open axes of a case, for a run."""
    return {axis: OTHER_SIZES[axis] for axis in ZOO[case.name].open_axes} if case.dynamic else {}


def run_case(case: ZooCase, suppression: bool = True) -> ZooRun:
    """Export, load, plan and run a case, and compare the results with ONNX Runtime's.

    Without `suppression` detectors return all boxes and scores.

    Raises:
        InlayError: Inlay refuses the network.
    """
    data, sizes = export(*case, suppression), case_sizes(case)
    inputs = draw_inputs(ZOO[case.name], sizes)
    expected = run_by_onnxruntime(onnx.load_from_string(data), inputs)
    plan = inlay.plan(inlay.load(data, dims=sizes), costs="probed")
    session = plan.compile().prepare()
    return ZooRun(plan, session.numpy, greatest_error(session.run(inputs), expected))


def greatest_error(results: Mapping[str, Array], expected: Mapping[str, Array]) -> float:
    """Return the greatest difference, as a part of the greatest element of the output that has it.

    It is infinite where names, dims or types differ, or a number is not finite.
    """
    if results.keys() != expected.keys():
        return np.inf
    return max(_error(np.asarray(results[name]), expected[name]) for name in expected)


def _error(result: Array, expected: Array) -> float:
    if (result.shape, result.dtype) != (expected.shape, expected.dtype) or not np.isfinite(result).all():
        return np.inf
    exact = expected.astype(np.float64)
    return float(np.abs(result - exact).max(initial=0) / max(np.abs(exact).max(initial=0), 1e-30))
