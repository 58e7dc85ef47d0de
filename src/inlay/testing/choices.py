"""Sources of random choices: the protocol `Choices`, with an implementation by Hypothesis and a seeded one.

All values of this package are drawn by functions that take a `Choices`. `strategy` turns such a function into a
Hypothesis strategy, which shrinks and stores failing cases. `Seeded` uses Python's random generator and is at least ten
times as fast, for comparisons with another implementation on a hundred thousand cases. Both draw from the same set of
values.

    >>> def pair(choose: Choices) -> tuple[int, str]:
    ...     return choose.integer(1, 3), choose.pick("ab")
    >>> pair(Seeded(1))
    (1, 'a')
    >>> from hypothesis import find
    >>> find(strategy(pair)(), lambda drawn: drawn[0] > 1)
    (2, 'a')

The decorator `check_arguments` checks the arguments of a drawing function by their names, with the checks in `RULES`:

    >>> @check_arguments()
    ... def draw_mask(choose: Choices, ndims: int = 4) -> int:
    ...     return choose.integer(0, 2**ndims - 1)
    >>> draw_mask(Seeded(1), ndims=-1)
    Traceback (most recent call last):
        ...
    inlay.errors.InvalidArguments: ndims is -1: give 0 or more
"""

import inspect
from collections.abc import Callable, Mapping, Sequence
from functools import wraps
from math import prod
from random import Random
from types import MappingProxyType
from typing import Concatenate, ParamSpec, Protocol, TypeAlias, TypeVar, cast

from inlay.arguments import as_flag, as_integer
from inlay.data_type import as_data_type
from inlay.descriptor import MemoryDesc
from inlay.descriptor.validation import MAX_NDIMS, as_integers, require_dims
from inlay.errors import InvalidArguments, MissingExtra, shown

try:
    from hypothesis import strategies as st
except ModuleNotFoundError as error:
    raise MissingExtra("inlay.testing needs Hypothesis, which is not installed: pip install hypothesis") from error

T = TypeVar("T")
P = ParamSpec("P")


class Choices(Protocol):
    """A source of choices; the first option, or the least number, is the simplest."""

    def integer(self, low: int, high: int) -> int:
        """Return an integer from `low` to `high`, both included."""
        ...

    def pick(self, options: Sequence[T]) -> T:
        """Return one of the options; an option that is listed twice is twice as likely."""
        ...

    def several(self, options: Sequence[T], least: int, most: int) -> list[T]:
        """Return `least` to `most` picks with replacement."""
        ...

    def shuffled(self, values: Sequence[T]) -> list[T]:
        """Return all values in random order."""
        ...


class Seeded:
    """Choices by Python's random generator, reproducible by the seed."""

    def __init__(self, seed: int) -> None:
        """Initialize the generator.

        Raises:
            InvalidArguments: `seed` is no integer.
        """
        self._random = Random(as_integer("seed", seed))

    def integer(self, low: int, high: int) -> int:
        """Return an integer from `low` to `high`, uniformly distributed."""
        return self._random.randint(low, high)

    def pick(self, options: Sequence[T]) -> T:
        """Return one of the options."""
        return self._random.choice(options)

    def several(self, options: Sequence[T], least: int, most: int) -> list[T]:
        """Return `least` to `most` picks with replacement; their number is uniformly distributed."""
        return self._random.choices(options, k=self._random.randint(least, most))

    def shuffled(self, values: Sequence[T]) -> list[T]:
        """Return all values in random order, uniformly distributed."""
        return self._random.sample(values, len(values))


class Drawn:
    """Choices by Hypothesis, which makes simpler ones when it shrinks a failing case."""

    def __init__(self, draw: st.DrawFn) -> None:
        self._draw = draw

    def integer(self, low: int, high: int) -> int:
        """Return an integer from `low` to `high`."""
        return self._draw(st.integers(low, high))

    def pick(self, options: Sequence[T]) -> T:
        """Return one of the options."""
        return self._draw(st.sampled_from(options))

    def several(self, options: Sequence[T], least: int, most: int) -> list[T]:
        """Return `least` to `most` picks with replacement."""
        return self._draw(st.lists(st.sampled_from(options), min_size=least, max_size=most))

    def shuffled(self, values: Sequence[T]) -> list[T]:
        """Return all values in random order."""
        return self._draw(st.permutations(values))


def strategy(function: Callable[Concatenate[Choices, P], T]) -> Callable[P, st.SearchStrategy[T]]:
    """Return a function that makes the Hypothesis strategy of a drawing function, from its remaining arguments."""

    @st.composite
    def draw_value(draw: st.DrawFn, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return function(Drawn(draw), *args, **kwargs)

    return draw_value


_MOST_BLOCKS = 64
_MOST_ELEMENTS = 2**24
_METHODS = ("integer", "pick", "several", "shuffled")


def _require_choices(name: str, value: object) -> None:
    """Raise InvalidArguments unless `value` is a source of choices."""
    if isinstance(value, type) or not all(callable(getattr(value, method, None)) for method in _METHODS):
        raise InvalidArguments(f"{name} is {shown(value)}: give a source of choices, such as Seeded(3)")


def _require_small_dims(name: str, value: object) -> None:
    """Check that `value` is a tuple or list of known dims with at most `_MOST_ELEMENTS` elements."""
    # Iterators are refused, because this check would consume them.
    if not isinstance(value, (tuple, list)):
        raise InvalidArguments(f"{name} is {shown(value)}: give a tuple of integers")
    dims = as_integers(name, value)
    require_dims(dims)
    if not dims or min(dims) < 0 or prod(dims) > _MOST_ELEMENTS:
        raise InvalidArguments(f"{name} is {shown(value)}: give 1 to 12 known dims, of at most 2**24 elements together")


def _require_desc(name: str, value: object) -> None:
    """Raise InvalidArguments unless `value` is a MemoryDesc."""
    if not isinstance(value, MemoryDesc):
        raise InvalidArguments(f"{name} is {shown(value)}: give a MemoryDesc")


ArgumentRule: TypeAlias = Callable[[str, object], object]
"""A check of an argument by name and value, which raises an error for a wrong value."""


def _integer_rule(least: int, most: int) -> ArgumentRule:
    """Return the rule of an integer from `least` to `most`."""
    return lambda name, value: as_integer(name, value, least, most)


def _require_data_type(name: str, value: object) -> None:
    """Raise InvalidArguments unless `value` is a data type."""
    as_data_type(value)  # type: ignore[arg-type]


RULES: Mapping[str, ArgumentRule] = MappingProxyType(
    {
        "choose": _require_choices,
        "dims": _require_small_dims,
        "src": _require_desc,
        "dst": _require_desc,
        "ndims": _integer_rule(0, MAX_NDIMS),
        "max_size": _integer_rule(1, _MOST_ELEMENTS),
        "min_blocks": _integer_rule(0, _MOST_BLOCKS),
        "max_blocks": _integer_rule(0, _MOST_BLOCKS),
        **dict.fromkeys(("data_type", "index_type", "pointer_type"), _require_data_type),
        **dict.fromkeys(("sub_byte", "zero", "broadcast", "gpu", "convert", "large", "packed", "ordered"), as_flag),
    }
)
"""Checks of arguments of drawing functions, by argument name."""


def check_arguments(
    **kinds: type,
) -> Callable[[Callable[Concatenate[Choices, P], T]], Callable[Concatenate[Choices, P], T]]:
    """Return a decorator that checks arguments: by `RULES`, and those named in `kinds` by their classes.

    Only arguments that the caller passes are checked, so draws with default arguments take no extra time.
    """

    def decorate(function: Callable[Concatenate[Choices, P], T]) -> Callable[Concatenate[Choices, P], T]:
        parameters = inspect.signature(function).parameters
        names, optional = tuple(parameters), {name for name, p in parameters.items() if p.default is None}

        @wraps(function)
        def drawing(choose: Choices, *args: P.args, **kwargs: P.kwargs) -> T:
            if type(choose) not in (Seeded, Drawn):
                _require_choices("choose", choose)
            for name, value in (*zip(names[1:], args, strict=False), *kwargs.items()):
                if name in kinds and not isinstance(value, kinds[name]):
                    raise InvalidArguments(f"{name} is {shown(value)}: give a {kinds[name].__name__}")
                if name in RULES and not (value is None and name in optional):
                    RULES[name](name, value)
            return function(choose, *args, **kwargs)

        return cast(Callable[Concatenate[Choices, P], T], drawing)

    return decorate
