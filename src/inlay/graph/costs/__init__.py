"""Run-time estimates of kernels, reorders and NumPy operators: the cost model of the planner.

Three tiers implement the protocol `Costs`:

    analytic    a model of the machine and a table of optimized formats; needs no library and works for any processor
    probed      asks the engine which implementation it has for these formats, and models its run time
    measured    times the engine's kernels once on each machine and stores the times on disk

Modules, in the order in which data flows through them:

    estimates         `Costs`, `KernelEstimate`, `CostSources`: the interface to the planner
    instruction_sets  names and order of instruction sets; those that this processor has
    machine           arithmetic and bytes of an operation; peak and bandwidths of a processor
    kernel_models     formats by the position of channels; the table of optimized formats and their efficiency
    timing_records    operations as text, and measured times by that text, on disk
    models            the tiers `analytic` and `probed`
    timing            times kernels on memory in the state in which a network finds it
    measuring         the tier `measured`: decides what is timed, and reads and writes the timing records

Terms:

    roofline      the least run time that arithmetic and memory traffic allow (Williams, Waterman and Patterson 2009,
                  "Roofline: an insightful visual performance model")
    cliff         a kernel that takes over ten times its roofline, mostly scalar code
    yardstick     a small convolution that is timed beside each kernel; measured times are multiples of its time
    scratchpad    temporary memory of a primitive (oneDNN, `dnnl::scratchpad_mode`)
    any           the format by which a caller lets the engine choose (oneDNN, `format_tag::any`)
"""

from typing import TYPE_CHECKING

from inlay.lazy_names import lazy_names

if TYPE_CHECKING:
    from inlay.graph.costs.estimates import Costs, CostSources, KernelEstimate
    from inlay.graph.costs.machine import Machine
    from inlay.graph.costs.measuring import MeasuredCosts, measured, reorder_source
    from inlay.graph.costs.models import AnalyticCosts, ProbedCosts, analytic, probed

__all__ = [
    "AnalyticCosts",
    "CostSources",
    "Costs",
    "KernelEstimate",
    "Machine",
    "MeasuredCosts",
    "ProbedCosts",
    "analytic",
    "measured",
    "probed",
    "reorder_source",
]

__getattr__, __dir__ = lazy_names(
    __name__,
    {
        "AnalyticCosts": "inlay.graph.costs.models",
        "CostSources": "inlay.graph.costs.estimates",
        "Costs": "inlay.graph.costs.estimates",
        "KernelEstimate": "inlay.graph.costs.estimates",
        "Machine": "inlay.graph.costs.machine",
        "MeasuredCosts": "inlay.graph.costs.measuring",
        "ProbedCosts": "inlay.graph.costs.models",
        "analytic": "inlay.graph.costs.models",
        "measured": "inlay.graph.costs.measuring",
        "probed": "inlay.graph.costs.models",
        "reorder_source": "inlay.graph.costs.measuring",
    },
)
