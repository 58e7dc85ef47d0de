"""What a descriptor can say about the place of its elements: the closed union `Placement`.

Most descriptors hold a `Layout`. The other kinds are values that say why there is none: the zero descriptor has no
elements, `any` leaves the choice to a primitive, an opaque format is known to its engine only, and a host scalar is
one value passed by the host. Each is a frozen value, so a function that must understand all of them is a `match` that
mypy checks for completeness.

>>> from inlay.descriptor import kinds
>>> kinds.Opaque("wino", 4096).name
'wino'
"""

from dataclasses import dataclass
from typing import Literal, TypeAlias

from inlay.layout import Layout

KindName = Literal["undef", "any", "blocked", "digits", "opaque", "host_scalar"]
"""oneDNN's format kinds, and `digits` for a layout whose inner digits are in no order that oneDNN can say."""


@dataclass(frozen=True, slots=True)
class Undefined:
    """The zero descriptor's: there is nothing to place."""


@dataclass(frozen=True, slots=True)
class Any:
    """The primitive that takes the descriptor chooses the layout."""


@dataclass(frozen=True, slots=True)
class Opaque:
    """Known to one engine only: it can be passed on, but not read."""

    name: str
    """The engine's name of the format, such as `wino`."""
    nbytes: int
    """How many bytes the engine asks for."""


@dataclass(frozen=True, slots=True)
class HostScalar:
    """One value that the host passes with each execution."""


Placement: TypeAlias = Undefined | Any | Layout | Opaque | HostScalar
