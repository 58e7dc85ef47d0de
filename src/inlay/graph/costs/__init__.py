"""What things cost: kernels of an engine in given formats, reorders, operators that only NumPy computes.

    analytic    arithmetic and bytes, a table of what is fast in which format: no library needed, for any processor
    probed      the engine says what it has for these formats; the model says how long that takes
    measured    the engine's kernels are timed, once for each machine, and remembered

In the order that data flows: `kernel`, what a planner is told; `content`, operations as text; `work`, arithmetic and
bytes; `machine`; `forms`, formats as kernels see them; `paces`, what is fast in which; `models`, costs without a clock;
`book`, what was measured, on disk; `timing`, how; `measuring`, when; `sources`, how many prices were measured and how
many estimated.
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
