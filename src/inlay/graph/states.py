"""States of decoding: inputs of a network that a session keeps between steps, and the outputs that replace them.

A decoder reads the keys and values of all positions so far and computes those of new ones. An exported model has an
input for the former and an output for both:

    past_key_values.0.key (1, 12, past, 64)  ->  present.0.key (1, 12, past + new, 64)

As a state, the tensor is reserved once to `maximum` positions, and each step writes its new ones in place.

>>> TensorState("past_key_values.0.key", "present.0.key", axis=2, maximum=2048).maximum
2048
"""

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass

from inlay.arguments import integer_or_none
from inlay.errors import InvalidArguments, shown


@dataclass(frozen=True, slots=True)
class TensorState:
    """An input of a network that is kept between steps."""

    input: str
    """Name of the input with the positions before a step."""
    output: str | None
    """Name of the output with the positions after a step; None if the model writes the input in place."""
    axis: int
    """Axis of the positions, from 0 on."""
    maximum: int
    """Most positions that the state can hold."""


@dataclass(frozen=True, slots=True)
class CacheUpdate:
    """A TensorScatter that writes new positions into a cache, which is an input of the model and an output."""

    node: str
    """Name of the node, or of its result if it has none."""
    output: str
    """Name of the output with the positions after a step."""
    axis: int
    """Axis of the positions; from the last one on if it is below 0."""
    index: str | None
    """Name of the input with the position of the first new row; None if it is computed, empty if there is none."""


@dataclass(frozen=True, slots=True)
class CacheUpdates:
    """The updates of caches in a model, and the numbers of valid keys that its attention reads."""

    updates: Mapping[str, CacheUpdate]
    """The update of each cache, by the name of its input."""
    counts: tuple[str, ...]
    """Names of the inputs with the number of valid keys of each sequence."""
    has_prompts: bool
    """True if all attention with a number of valid keys is causal, and reads that number from an input: then positions
    that are not valid may follow several new ones."""


@dataclass(frozen=True, slots=True)
class StateOptions:
    """The choices of a caller about the states of a session.

    >>> StateOptions(maximum=512).require_valid()
    >>> StateOptions(maximum=0).require_valid()
    Traceback (most recent call last):
        ...
    inlay.errors.InvalidArguments: maximum is 0: give a whole number of positions from 1 on
    """

    maximum: int = 2048
    """Most positions of a sequence."""
    page: int | None = None
    """Number of positions by which the memory of a state grows; None if it is reserved at once."""
    names: Mapping[str, str] | None = None
    """Output by input of each state; None for the names of common exporters."""

    def require_valid(self) -> None:
        """Check all options that need no network.

        Raises:
            InvalidArguments: a number is no whole number of positions, `page` is more than `maximum`, or `names` is no
                mapping of texts.
        """
        for name, value in (("maximum", self.maximum), ("page", self.page)):
            if not (name == "page" and value is None) and (integer_or_none(value) or 0) < 1:
                raise InvalidArguments(f"{name} is {shown(value)}: give a whole number of positions from 1 on")
        if self.page is not None and self.page > self.maximum:
            raise InvalidArguments(
                f"page is {self.page}, and maximum {self.maximum}: give at most that, or leave page out"
            )
        names: object = self.names
        if names is not None and not (
            isinstance(names, Mapping) and all(isinstance(one, str) for pair in names.items() for one in pair)
        ):
            raise InvalidArguments(
                f"names are {shown(names)}: give the output of each state by its input, as in "
                "names={'past_key_values.0.key': 'present.0.key'}"
            )


_EXPORTED = (
    (re.compile(r"past_key_values\.(\d+)\.(key|value)"), "present.{0}.{1}"),
    (re.compile(r"past_key_values\.(\d+)\.decoder\.(key|value)"), "present.{0}.decoder.{1}"),
    (re.compile(r"past_(key|value)_?(\d+)"), "present_{0}_{1}"),
    (re.compile(r"past_(key|value)s?"), "present_{0}"),
)
"""Names of states in exported models, and those of the outputs that replace them."""


def match_names(inputs: Collection[str], outputs: Collection[str]) -> dict[str, str]:
    """Return the output that replaces each state, by the names of common exporters.

    >>> match_names(["ids", "past_key_values.0.key"], ["logits", "present.0.key"])
    {'past_key_values.0.key': 'present.0.key'}
    """
    found: dict[str, str] = {}
    for name in inputs:
        for pattern, text in _EXPORTED:
            match = pattern.fullmatch(name)
            present = text.format(*match.groups()) if match else ""
            if present in outputs:
                found[name] = present
    return found
