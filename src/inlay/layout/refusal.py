"""A view that cannot be, said so that its reader can go on: which axes, which rule, and the cheapest way to have it.

A view moves nothing, so it either is there or is not; but most refusals have a repair. Other dims close by may be a
view, free digits may say what a format cannot, and after one reorder everything is a view again:

    axis 1 (c) cannot be split into 2 x 9: its 18 elements are padded to 24 in blocks of 8
        nChw8c (2, 18, 5, 4) -> (2, 1, 18, 5, 4) works; to split c, reorder to nchw first (5.8 kB moved)

`Refusal` holds these as values; its text is the text of the error that the same request raises.
"""

from dataclasses import dataclass
from typing import Generic, Literal, TypeAlias, TypeVar

from inlay.layout.axis import Dims

Rule: TypeAlias = Literal["volume", "zero", "padding", "blocks", "stride", "region", "runtime", "kind"]
"""What stands in the way.

`volume`: the number of elements differs. `zero`: a dim of 0 would have to be joined or split. `padding`: padding would
come to lie between elements, or be lost. `blocks`: an element run would end inside a block. `stride`: axes to be joined
do not follow one another in memory. `region`: a box does not lie within the dims. `runtime`: a dim or stride is not
known. `kind`: there is no layout, or more than elements, to view.
"""

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Refusal(Generic[T]):
    """Why there is no such view of a layout or descriptor `T`, and what to do instead."""

    rule: Rule
    """What stands in the way."""
    axes: tuple[int, ...]
    """The axes, of what was to be viewed, that it concerns; empty where it concerns all."""
    problem: str
    """The rule with its numbers."""
    remedy: str = ""
    """The repairs below, in words; empty where there are none."""
    nearest: Dims | None = None
    """Dims close to those asked for that are a view."""
    free: T | None = None
    """The view itself in free digits, where only the format cannot say it: what `digits=True` returns."""
    target: T | None = None
    """What to reorder to: of this, the view is one. Of all candidates the one that moves least."""
    moved: int | None = None
    """What that reorder moves, read and written: bytes for a descriptor, elements for a layout."""

    def __str__(self) -> str:
        """The text of the error: the problem, and below it the remedy."""
        return f"{self.problem}\n    {self.remedy}" if self.remedy else self.problem


def remedy_of(nearest: str, free: bool, reorder: str) -> str:
    """The repairs that there are, in words and in the order of their price.

    >>> remedy_of("(2, 18) -> (1, 2, 18) works", True, "")
    '(2, 18) -> (1, 2, 18) works; digits=True gives the view in free digits'
    """
    free_digits = "digits=True gives the view in free digits" if free else ""
    return "; ".join(part for part in (nearest, free_digits, reorder) if part)
