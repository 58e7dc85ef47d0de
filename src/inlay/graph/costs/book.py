"""What was measured of kernels and reorders: a table of the timing database for each engine and processor.

Its keys are digests of the text of an operation, which is equal for operations that an engine computes alike, in every
process and on every day. Where the scratchpad comes from is left out, since it changes neither formats nor time, and
what an algorithm of convolutions does at its end at no cost.

>>> relu = Operation("eltwise", "forward_inference", {}, {"beta": 0.0, "algorithm": "relu"})
>>> content(relu)
"eltwise forward_inference {} {'algorithm': 'relu', 'beta': 0.0} PrimitiveAttributes(scales={}, zero_points={}, \
post_ops=(), scratchpad_mode='library', fpmath_mode='strict', recurrent=None)"

Times stand in it as multiples of a yardstick, a small kernel that was timed beside each: a processor whose clock goes
up and down changes both. The table holds the best time of the yardstick, in seconds.

    {"yardstick": 6.1e-05, "kernel 5be0...": ["brgconv:avx512_core", 9.25, 0, {"weights": "{...}"}],
     "reorder 77a1...": 0.31, ...}

An entry that makes no sense is as good as none.
"""

from collections.abc import Hashable, Mapping
from dataclasses import dataclass, fields, is_dataclass, replace
from functools import lru_cache
from hashlib import sha256
from typing import Any

from inlay.descriptor import MemoryDesc
from inlay.graph.algorithms import algorithm_of
from inlay.measure.timing_database import TimingTable, is_time
from inlay.primitives.attributes import PLAIN
from inlay.primitives.engine import Operation


def content(operation: Operation) -> str:
    """All that an engine is told, in an order that does not depend on how it was put together."""
    attributes = operation.attributes
    if attributes is not PLAIN and attributes.scratchpad_mode != "library":
        attributes = replace(attributes, scratchpad_mode="library")
    if (algorithm := algorithm_of(operation)) is not None and attributes.post_ops == algorithm.free_post_ops:
        attributes = replace(attributes, post_ops=())
    words = [operation.kind, operation.prop_kind, *map(_spelled, (operation.descs, operation.parameters))]
    words.append(_PLAIN if attributes is PLAIN else _spelled(attributes))
    if operation.hint is not None:
        words.append(f"hint {content(operation.hint.operation)}")
    return " ".join(words)


def key(operation: Operation) -> str:
    """A digest of the content."""
    return digest(content(operation))


def digest(text: str) -> str:
    """32 hexadecimal digits that stand for a text."""
    return sha256(text.encode()).hexdigest()[:32]


def _spelled(value: object) -> str:
    """A value as text; mappings and sets in the order of their texts.

    Raises:
        TypeError: nobody knows how it is spelled.
    """
    match value:
        case None | bool() | int() | float() | str():
            return repr(value)
        case MemoryDesc():
            return desc_text(value)
        case tuple():
            return f"({', '.join(map(_spelled, value))})" if len(value) != 1 else f"({_spelled(value[0])},)"
        case frozenset():
            return f"{{{', '.join(sorted(map(_spelled, value)))}}}"
        case Mapping():
            return (
                "{" + ", ".join(sorted(f"{_spelled(name)}: {_spelled(entry)}" for name, entry in value.items())) + "}"
            )
    if is_dataclass(value) and not isinstance(value, type):
        inner = ", ".join(f"{field.name}={_spelled(getattr(value, field.name))}" for field in fields(value))
        # Tables on disk have keys of post-operations by the names without the suffix.
        return f"{type(value).__name__.removesuffix('PostOp')}({inner})"
    raise TypeError(f"{value!r} is no part of an operation")


def desc_text(desc: MemoryDesc) -> str:
    """The descriptor as JSON."""
    return _json_of(desc, desc.exact_key)


@lru_cache(maxsize=8192)
def _json_of(desc: MemoryDesc, _: Hashable) -> str:
    return desc.to_json(spelling=False)


_PLAIN = _spelled(PLAIN)


def reorder_key(src: MemoryDesc, dst: MemoryDesc, moved: int) -> str:
    """Equal for reorders between the same formats of tensors that differ in size by less than four times."""
    sides = [f"{desc.tag} {desc.data_type}" if desc.tag else desc_text(desc) for desc in (src, dst)]
    return digest(f"{sides} {(moved.bit_length() + 1) // 2}")


KIND = "costs"
"""The suffix of the files."""
_VERSION = "5"
_YARDSTICK = "yardstick"


@dataclass(frozen=True, slots=True)
class Price:
    """A time that nothing disturbed."""

    ratio: float
    """The time, as a multiple of the yardstick's."""


@dataclass(frozen=True, slots=True)
class Entry:
    """What is known of a kernel."""

    impl: str
    """The engine's name for it."""
    price: Price
    """Its time."""
    scratch: int
    """Bytes of scratchpad."""
    descs: tuple[tuple[str, str], ...]
    """Arguments that were `any`, each with what was chosen, as JSON."""


class Book(TimingTable):
    """Entries by the keys of operations and reorders."""

    def __init__(self, *facts: str) -> None:
        """Open the book of what these facts name; nothing is read yet."""
        super().__init__(KIND, _VERSION, *facts)

    @property
    def yardstick(self) -> float | None:
        """Seconds of the yardstick at its best, as far as was written before; None if it never was."""
        return self.least(_YARDSTICK)

    def kernel(self, key: str) -> Entry | None:
        """What is known of the kernel of an operation; None if nothing is."""
        return _entry(self.get(f"kernel {key}"))

    def reorder(self, key: str) -> Price | None:
        """The time of a reorder, for each byte that it moves; None if it is not known."""
        return _price(self.get(f"reorder {key}"))

    def write_kernel(self, key: str, entry: Entry) -> None:
        """Remember a kernel."""
        self.put(f"kernel {key}", [entry.impl, entry.price.ratio, entry.scratch, dict(entry.descs)])

    def write_reorder(self, key: str, price: Price) -> None:
        """Remember a reorder."""
        self.put(f"reorder {key}", price.ratio)

    def write_yardstick(self, seconds: float) -> None:
        """Remember the yardstick, if it was never faster."""
        self.put_least(_YARDSTICK, seconds)


def _entry(value: Any) -> Entry | None:
    if not isinstance(value, list) or len(value) != 4:
        return None
    impl, price, scratch, descs = value[0], _price(value[1]), *value[2:]
    is_sound = isinstance(impl, str) and isinstance(scratch, int) and isinstance(descs, dict)
    if price is None or not is_sound or not all(isinstance(text, str) for text in descs.values()):
        return None
    return Entry(impl, price, scratch, tuple(descs.items()))


def _price(value: Any) -> Price | None:
    return Price(value) if is_time(value) else None
