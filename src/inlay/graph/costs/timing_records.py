"""Measured times of kernels and reorders: one table of the timing database for each engine and processor.

The key of a kernel is the digest of its operation as text. Equal operations have equal text in every process. The text
leaves out what changes neither formats nor time: who allocates the scratchpad, the numbers of `linear` and `clip` among
the post-operations, the scale of a sum other than 0 and 1, and post-operations that an algorithm of convolutions
applies at no cost.

>>> relu = Operation("eltwise", "forward_inference", {}, {"beta": 0.0, "algorithm": "relu"})
>>> operation_text(relu)
"eltwise forward_inference {} {'algorithm': 'relu', 'beta': 0.0} PrimitiveAttributes(scales={}, zero_points={}, \
post_ops=(), scratchpad_mode='library', fpmath_mode='strict', recurrent=None)"

The key of a reorder is that of its formats and the range of its size, so that reorders of similar size share a time.
A reorder that was measured again has a second key of its exact descriptors, which takes precedence.

Times are stored as multiples of the yardstick, a small kernel that is timed beside each: a change of the processor's
clock changes both alike. The table also holds the best time of the yardstick, in seconds.

    {"yardstick": 6.1e-05, "kernel 5be0...": ["brgconv:avx512_core", 9.25, 0, {"weights": "{...}"}],
     "reorder 77a1...": 0.31, ...}

An entry that is not valid is treated as absent.
"""

from collections.abc import Hashable, Mapping
from dataclasses import dataclass, fields, is_dataclass, replace
from functools import lru_cache
from hashlib import sha256
from typing import Any

from inlay.descriptor import MemoryDesc
from inlay.graph.algorithms import algorithm_of
from inlay.measure.timing_database import TimingTable, is_time
from inlay.primitives.attributes import PLAIN, EltwisePostOp, PostOp, SumPostOp
from inlay.primitives.engine import Operation


def operation_text(operation: Operation) -> str:
    """Return all that describes an operation to an engine, as text that is equal for equal operations."""
    attributes = operation.attributes
    if attributes is not PLAIN and attributes.scratchpad_mode != "library":
        attributes = replace(attributes, scratchpad_mode="library")
    if (algorithm := algorithm_of(operation)) is not None and attributes.post_ops == algorithm.free_post_ops:
        attributes = replace(attributes, post_ops=())
    if attributes.post_ops:
        attributes = replace(attributes, post_ops=tuple(map(_without_numbers, attributes.post_ops)))
    words = [operation.kind, operation.prop_kind, *map(_text_of, (operation.descs, operation.parameters))]
    words.append(_PLAIN if attributes is PLAIN else _text_of(attributes))
    if operation.hint is not None:
        words.append(f"hint {operation_text(operation.hint.operation)}")
    return " ".join(words)


_PARAMETRIC = frozenset({"linear", "clip"})
"""Functions whose code is the same for all parameters; that of `relu` is shorter where alpha is 0."""


def _without_numbers(post_op: PostOp) -> PostOp:
    """Return a post-operation with parameters that are equal for all on which its time does not depend."""
    if isinstance(post_op, EltwisePostOp) and post_op.algorithm in _PARAMETRIC:
        return EltwisePostOp(post_op.algorithm)
    if isinstance(post_op, SumPostOp) and post_op.scale not in (0, 1):
        return replace(post_op, scale=2.0)
    return post_op


def operation_key(operation: Operation) -> str:
    """Return the digest of an operation's text."""
    return digest(operation_text(operation))


def digest(text: str) -> str:
    """Return 32 hexadecimal digits that identify a text."""
    return sha256(text.encode()).hexdigest()[:32]


_LATER_FIELDS = frozenset({"fpmath_integers", "rounds_source"})
"""Fields that are left out of the text where they have their default value."""


def _text_of(value: object) -> str:
    """Return a value as text, with the items of mappings and sets sorted.

    Raises:
        TypeError: the value is of a type that operations do not contain.
    """
    match value:
        case None | bool() | int() | float() | str():
            return repr(value)
        case MemoryDesc():
            return desc_text(value)
        case tuple():
            return f"({', '.join(map(_text_of, value))})" if len(value) != 1 else f"({_text_of(value[0])},)"
        case frozenset():
            return f"{{{', '.join(sorted(map(_text_of, value)))}}}"
        case Mapping():
            return (
                "{" + ", ".join(sorted(f"{_text_of(name)}: {_text_of(entry)}" for name, entry in value.items())) + "}"
            )
    if is_dataclass(value) and not isinstance(value, type):
        # Tables on disk have keys from before a field of `_LATER_FIELDS` existed.
        shown = [one.name for one in fields(value) if one.name not in _LATER_FIELDS or getattr(value, one.name)]
        inner = ", ".join(f"{name}={_text_of(getattr(value, name))}" for name in shown)
        # Tables on disk have keys of post-operations by the names without the suffix.
        return f"{type(value).__name__.removesuffix('PostOp')}({inner})"
    raise TypeError(f"{value!r} is of no type that operations contain")


def desc_text(desc: MemoryDesc) -> str:
    """Return the descriptor as JSON."""
    return _json_of(desc, desc.exact_key)


@lru_cache(maxsize=8192)
def _json_of(desc: MemoryDesc, _: Hashable) -> str:
    return desc.to_json(spelling=False)


_PLAIN = _text_of(PLAIN)


def reorder_key(src: MemoryDesc, dst: MemoryDesc, moved: int) -> str:
    """Return the key of a reorder that moves `moved` bytes.

    Reorders between the same formats share a key if their sizes are in the same range of a factor of four.
    """
    sides = [_side_text(desc, desc.exact_key) for desc in (src, dst)]
    return digest(f"{sides} {(moved.bit_length() + 1) // 2}")


def exact_reorder_key(src: MemoryDesc, dst: MemoryDesc) -> str:
    """Return the key of a reorder between exactly these descriptors."""
    return digest(f"exact {desc_text(src)} {desc_text(dst)}")


@lru_cache(maxsize=8192)
def _side_text(desc: MemoryDesc, _: Hashable) -> str:
    """Return the tag and type of a descriptor; all of it where it has no tag."""
    tag = desc.tag
    return f"{tag} {desc.data_type}" if tag else desc_text(desc)


KIND = "costs"
"""The suffix of the files."""
_VERSION = "6"
_YARDSTICK = "yardstick"


@dataclass(frozen=True, slots=True)
class RelativeTime:
    """A measured time that no other load disturbed."""

    ratio: float
    """The time as a multiple of the yardstick's time; for a reorder, that multiple for each byte moved."""


@dataclass(frozen=True, slots=True)
class KernelTiming:
    """The measured time of a kernel, and the formats that its engine chose."""

    impl: str
    """The engine's name of the implementation."""
    time: RelativeTime
    """The run time."""
    scratch: int
    """Size of the scratchpad in bytes."""
    descs: tuple[tuple[str, str], ...]
    """Each argument that was `any`, with the descriptor that the engine chose, as JSON."""


class TimingRecords(TimingTable):
    """The stored times of one engine on one processor, by the keys of operations and reorders."""

    def __init__(self, *facts: str) -> None:
        """Open the table that these facts identify; the file is read at the first access."""
        super().__init__(KIND, _VERSION, *facts)

    @property
    def yardstick(self) -> float | None:
        """Best time of the yardstick that is stored, in seconds; None if there is none."""
        return self.least(_YARDSTICK)

    def kernel(self, key: str) -> KernelTiming | None:
        """Return the stored timing of a kernel; None if there is none."""
        return _parse_timing(self.get(f"kernel {key}"))

    def reorder(self, key: str) -> RelativeTime | None:
        """Return the stored time of a reorder for each byte that it moves; None if there is none."""
        return _parse_time(self.get(f"reorder {key}"))

    def write_kernel(self, key: str, timing: KernelTiming) -> None:
        """Store the timing of a kernel."""
        self.put(f"kernel {key}", [timing.impl, timing.time.ratio, timing.scratch, dict(timing.descs)])

    def write_reorder(self, key: str, time: RelativeTime) -> None:
        """Store the time of a reorder for each byte that it moves."""
        self.put(f"reorder {key}", time.ratio)

    def write_yardstick(self, seconds: float) -> None:
        """Store a time of the yardstick if it is the best so far."""
        self.put_least(_YARDSTICK, seconds)


def _parse_timing(value: Any) -> KernelTiming | None:
    """Return the timing that a stored value describes; None for a value that is not valid."""
    if not isinstance(value, list) or len(value) != 4:
        return None
    impl, time, scratch, descs = value[0], _parse_time(value[1]), *value[2:]
    is_sound = isinstance(impl, str) and isinstance(scratch, int) and isinstance(descs, dict)
    if time is None or not is_sound or not all(isinstance(text, str) for text in descs.values()):
        return None
    return KernelTiming(impl, time, scratch, tuple(descs.items()))


def _parse_time(value: Any) -> RelativeTime | None:
    return RelativeTime(value) if is_time(value) else None
