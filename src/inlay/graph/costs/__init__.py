"""What things cost: kernels of an engine in given formats, reorders, operators that only NumPy computes.

    analytic    arithmetic and bytes, a table of what is fast in which format: no library needed, for any processor
    probed      the engine says what it has for these formats; the model says how long that takes
    measured    the engine's kernels are timed, once for each machine, and remembered

In the order that data flows:

    kernel        what a planner is told, and how many prices were measured and how many estimated
    machine       what an operation has to do, and how fast a processor does it
    paces         formats as kernels see them, and what is fast in which
    book          operations as text, and what was measured of them, on disk
    models        costs without a clock
    timing        how kernels are timed
    measuring     when they are
"""

from inlay.graph.costs.kernel import Costs, CostSources, Kernel
from inlay.graph.costs.machine import Machine
from inlay.graph.costs.measuring import MeasuredCosts, measured, reorder_source
from inlay.graph.costs.models import AnalyticCosts, ProbedCosts, analytic, probed

__all__ = [
    "AnalyticCosts",
    "CostSources",
    "Costs",
    "Kernel",
    "Machine",
    "MeasuredCosts",
    "ProbedCosts",
    "analytic",
    "measured",
    "probed",
    "reorder_source",
]
