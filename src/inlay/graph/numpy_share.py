"""How much of a network NumPy computes, for want of a kernel: how many steps, and their share of the time."""

from collections.abc import Iterable
from dataclasses import dataclass

from inlay.graph.program import Step

_NUMPY = ("numpy", "reference")  # names of implementations


@dataclass(frozen=True, slots=True)
class NumpyShare:
    """Steps that NumPy computes, among all.

    >>> print(NumpyShare(2, 61, 0.07, "predicted"))
    NumPy computes 2 of 61 steps, 7 % of the predicted time
    """

    count: int
    """Steps that NumPy computes."""
    steps: int
    """All steps."""
    share: float
    """Of the time of all steps, from 0 to 1."""
    how: str
    """How the time is known: predicted or measured."""

    def __str__(self) -> str:
        """In a clause."""
        percent = f"{self.share:.0%}".replace("%", " %")
        steps = f"{self.steps} step{'s' * (self.steps != 1)}"
        return f"NumPy computes {self.count} of {steps}, {percent} of the {self.how} time"


def numpy_share(steps: Iterable[tuple[Step, str, float]], how: str) -> NumpyShare:
    """The share of NumPy in these steps, each with its implementation and its milliseconds."""
    known = [(step.kind == "reference" or impl in _NUMPY, ms) for step, impl, ms in steps]
    total = sum(ms for _, ms in known)
    spent = sum(ms for is_numpy, ms in known if is_numpy)
    return NumpyShare(sum(is_numpy for is_numpy, _ in known), len(known), spent / total if total else 0.0, how)
