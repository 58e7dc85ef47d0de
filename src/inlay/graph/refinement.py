"""`Refinement`: the steps of a plan that took another time in the network than predicted, and the plan by new times.

    refined = plan.refine({"data": image})
    print(refined.refinement)

A time is off if it differs from its prediction by over 30 %, and by over 0.02 ms, which a call and a wait may take.
`inlay.graph.replanning` has the rest of the rule, and the measurements.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from inlay.graph.text_layout import count_text, format_table, ms_text, wrap_text

OFF_SHARE = 0.3
"""Part of the prediction by which a time has to differ from it to be off."""
OFF_MS = 0.02
"""Milliseconds by which it has to differ as well: a call from Python and a wait for the engine's threads."""
NOTABLE_SLOWDOWN = 1.05
"""Slowdown of the processor from which on it is reported."""
_MOST_NAMED = 10  # steps in a list


def is_off(ms: float, predicted: float) -> bool:
    """Return whether a time differs from its prediction by more than both limits.

    >>> is_off(1.31, 1.0), is_off(0.69, 1.0), is_off(1.29, 1.0), is_off(0.025, 0.01)
    (True, True, False, False)
    """
    return abs(ms - predicted) > max(OFF_SHARE * predicted, OFF_MS)


@dataclass(frozen=True, slots=True)
class RefinedStep:
    """A step whose time in the network was not the predicted one."""

    label: str
    """Name of its first operation, and what the others do."""
    measured: float
    """Milliseconds in the network, at the best speed of the processor."""
    predicted: float
    """Predicted milliseconds in the plan that was refined."""
    again: float | None
    """Milliseconds by the new costs, of the same kernel in the same formats; None for what is not measured alone."""
    is_kept: bool = True
    """True if the new plan has the step, with the same kernel and formats."""

    @property
    def is_still_off(self) -> bool:
        """Return whether the time in the network is off the new costs too."""
        return self.again is not None and is_off(self.measured, self.again)


@dataclass(frozen=True, slots=True)
class Refinement:
    """The steps of a plan that were off, and what measuring them again changed."""

    network: str
    """Name of the network."""
    reason: str = ""
    """Reason why nothing was measured again, as that the machine is busy; empty if it was, or if nothing was off."""
    count: int = 0
    """Number of steps of the plan that was refined."""
    steps: tuple[RefinedStep, ...] = ()
    """The steps that were off, those that differ by most milliseconds first."""
    candidates: int = 0
    """Number of kernels and reorders that were to be measured again."""
    remeasured: int = 0
    """Number of those that were; the others were disturbed, or no time was left."""
    slowdown: float = 1.0
    """Time of the yardstick while the network ran, as a multiple of its best time."""
    run_ms: float | None = None
    """Median time of a whole run of the plan that was refined, at the best speed; None if nothing was run."""
    before_ms: float = 0.0
    """Predicted milliseconds of the plan that was refined, by the costs that it was made with."""
    repriced_ms: float = 0.0
    """Milliseconds of the same plan by the new costs."""
    after_ms: float = 0.0
    """Predicted milliseconds of the new plan."""
    changes: tuple[str, ...] = ()
    """Each step of the new plan that the refined one does not have: name, formats and kernel."""

    def __str__(self) -> str:
        """Return the refinement as text of at most 80 columns."""
        texts = (*self._summary(), *self._describe_measuring(), *self._describe_change())
        lines = [line for text in texts for line in wrap_text(text)]
        return "\n\n".join(filter(None, ("\n".join(lines), self._table())))

    def _summary(self) -> Iterator[str]:
        """Yield the lines on the run of the network."""
        if self.run_ms is None:
            yield f"{self.network}: {self.reason}"
            return
        off = f"{len(self.steps) or 'none'} of {count_text(self.count, 'step')}"
        yield f"{self.network}: over {100 * OFF_SHARE:.0f} % more or less than predicted: {off}"
        yield f"a run takes {ms_text(self.run_ms)}"
        if self.slowdown >= NOTABLE_SLOWDOWN:
            yield f"the processor takes {self.slowdown:.2f} times its best time now; measured times are divided by that"

    def _describe_measuring(self) -> Iterator[str]:
        """Yield a line on what was measured again."""
        if self.run_ms is None:
            return
        if not self.remeasured:
            yield self.reason or "nothing is to be measured again, and the plan is as before"
            return
        rest = "" if self.remeasured == self.candidates else "; the others were disturbed, or no time was left"
        yield f"{self.remeasured} of {count_text(self.candidates, 'candidate')} measured again{rest}"

    def _describe_change(self) -> Iterator[str]:
        """Yield the lines on the new plan."""
        if not self.remeasured:
            return
        yield (
            f"predicted {ms_text(self.before_ms)} before; by the new times {ms_text(self.repriced_ms)} for the same "
            f"plan, and {ms_text(self.after_ms)} for the new one"
        )
        more = f"; and {len(self.changes) - _MOST_NAMED} more" if len(self.changes) > _MOST_NAMED else ""
        named = "; ".join(self.changes[:_MOST_NAMED])
        yield f"new steps: {named}{more}" if self.changes else "the new plan has the same steps"
        stays = sum(one.is_still_off for one in self.steps)
        if stays:
            yield (
                f"still over {100 * OFF_SHARE:.0f} % off: {count_text(stays, 'step')}, since caches and threads are in "
                "another state in the network, for all candidates alike"
            )

    def _table(self) -> str:
        """Return the table of steps; empty if there are none."""
        if not self.steps:
            return ""
        rows = [("in the run, ms", "predicted", "again", "step", "new plan")]
        for one in self.steps[:_MOST_NAMED]:
            again = "-" if one.again is None else f"{one.again:.3f}"
            times = f"{one.measured:.3f}", f"{one.predicted:.3f}", again
            rows.append((*times, one.label, "same" if one.is_kept else "other"))
        more = len(self.steps) - _MOST_NAMED
        return format_table(rows, right=(0, 1, 2), shrink={3: 16}) + (f"\nand {more} more" if more > 0 else "")
