"""The text of an operation: equal for operations that an engine computes alike, in every process and on every day.

Where the scratchpad comes from is left out, since it changes neither formats nor time, and what an algorithm of
convolutions does at its end at no cost.

>>> relu = Operation("eltwise", "forward_inference", {}, {"beta": 0.0, "algorithm": "relu"})
>>> content(relu)
"eltwise forward_inference {} {'algorithm': 'relu', 'beta': 0.0} PrimitiveAttributes(scales={}, zero_points={}, \
post_ops=(), scratchpad_mode='library', fpmath_mode='strict', recurrent=None)"
"""

from collections.abc import Hashable, Mapping
from dataclasses import fields, is_dataclass, replace
from functools import lru_cache
from hashlib import sha256

from inlay.descriptor import MemoryDesc
from inlay.graph.algorithms import algorithm_of
from inlay.primitives.attributes import PLAIN
from inlay.primitives.operation import Operation


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
        return f"{type(value).__name__}({inner})"
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
