"""Profiles: the measured time of each step of a program beside its prediction, as a table, a trace file and figures.

Modules, in the order in which data flows through them:

    timings        `StepTiming`: the measured and predicted time of one step, and its formats in familiar tags
    table          the table of a profile: equal steps in one row, the largest share first
    trace_events   the same as a file in the Trace Event Format of Chrome, which Perfetto opens too
    profile        `Profile`: the sequence of timings, the time of the whole run, and methods that call the others

Terms:

    spread        median and quartiles of repeated measurements (`inlay.measure.statistics`)
    whole run     a run as sessions execute it: successive steps of the engine in one batch, nothing waited for between
    one by one    a run in which each step is waited for, so that its own time can be measured
"""

from typing import TYPE_CHECKING

from inlay.lazy_names import lazy_names

if TYPE_CHECKING:
    from inlay.graph.profiling.profile import Profile
    from inlay.graph.profiling.timings import StepTiming

__all__ = ["Profile", "StepTiming"]

__getattr__, __dir__ = lazy_names(
    __name__,
    {
        "Profile": "inlay.graph.profiling.profile",
        "StepTiming": "inlay.graph.profiling.timings",
    },
)
