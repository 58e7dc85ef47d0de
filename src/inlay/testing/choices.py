"""Where drawn values come from: `Choices`, which Hypothesis and a seeded generator both offer.

Everything in this room is drawn by functions of a `Choices`. `strategy` makes a Hypothesis strategy of such a function:
a failing case is shrunk and kept. `Seeded` answers from Python's generator, ten times faster and more: for the hundred
thousand cases that a comparison with another implementation wants. Both draw from the same cases, by the same rules.

    >>> def pair(choose: Choices) -> tuple[int, str]:
    ...     return choose.integer(1, 3), choose.pick("ab")
    >>> pair(Seeded(1))
    (1, 'a')
    >>> from hypothesis import find
    >>> find(strategy(pair)(), lambda drawn: drawn[0] > 1)
    (2, 'a')
"""

from collections.abc import Callable, Sequence
from random import Random
from typing import Concatenate, ParamSpec, Protocol, TypeVar

from inlay.arguments import as_integer
from inlay.errors import MissingExtra

try:
    from hypothesis import strategies as st
except ModuleNotFoundError as error:
    raise MissingExtra("inlay.testing needs Hypothesis, which is not installed: pip install hypothesis") from error

T = TypeVar("T")
P = ParamSpec("P")


class Choices(Protocol):
    """A source of choices; the first option, or the least number, is the simplest."""

    def integer(self, low: int, high: int) -> int:
        """An integer from `low` to `high`, both included."""
        ...

    def pick(self, options: Sequence[T]) -> T:
        """One of the options; one that is listed twice is twice as likely."""
        ...

    def several(self, options: Sequence[T], least: int, most: int) -> list[T]:
        """From `least` to `most` picks; an option may be picked again."""
        ...

    def shuffled(self, values: Sequence[T]) -> list[T]:
        """All values in some order."""
        ...


class Seeded:
    """Choices from Python's random generator: the same ones for the same seed."""

    def __init__(self, seed: int) -> None:
        """Begin with the choices of `seed`.

        Raises:
            InvalidArguments: it is no integer.
        """
        self._random = Random(as_integer("seed", seed))

    def integer(self, low: int, high: int) -> int:
        """An integer from `low` to `high`, all equally likely."""
        return self._random.randint(low, high)

    def pick(self, options: Sequence[T]) -> T:
        """One of the options."""
        return self._random.choice(options)

    def several(self, options: Sequence[T], least: int, most: int) -> list[T]:
        """A number of picks; all numbers are equally likely."""
        return self._random.choices(options, k=self._random.randint(least, most))

    def shuffled(self, values: Sequence[T]) -> list[T]:
        """All values, each order equally likely."""
        return self._random.sample(values, len(values))


class Drawn:
    """Choices that Hypothesis makes, and remakes when it shrinks."""

    def __init__(self, draw: st.DrawFn) -> None:
        self._draw = draw

    def integer(self, low: int, high: int) -> int:
        """An integer from `low` to `high`."""
        return self._draw(st.integers(low, high))

    def pick(self, options: Sequence[T]) -> T:
        """One of the options."""
        return self._draw(st.sampled_from(options))

    def several(self, options: Sequence[T], least: int, most: int) -> list[T]:
        """A number of picks."""
        return self._draw(st.lists(st.sampled_from(options), min_size=least, max_size=most))

    def shuffled(self, values: Sequence[T]) -> list[T]:
        """All values in some order."""
        return self._draw(st.permutations(values))


def strategy(function: Callable[Concatenate[Choices, P], T]) -> Callable[P, st.SearchStrategy[T]]:
    """The Hypothesis strategy that draws what `function` makes of choices."""

    @st.composite
    def drawn(draw: st.DrawFn, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return function(Drawn(draw), *args, **kwargs)

    return drawn
