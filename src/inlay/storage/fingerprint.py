"""The fingerprint of a plan: a digest of everything that determines the bytes of its target.

Two plans with equal fingerprints have the same tasks, and each task writes the same bytes at the same place. So a
conversion that was interrupted may go on with either plan. Paths count by their last component only, and neither the
number of workers nor the version of the source counts.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields, is_dataclass
from functools import lru_cache
from hashlib import sha256
from pathlib import PurePath
from typing import Any

import numpy as np
import numpy.typing as npt

from inlay import __version__
from inlay.data_type import DataType
from inlay.descriptor import MemoryDesc
from inlay.storage.conversion_plan import ConversionPlan


def fingerprint(plan: ConversionPlan) -> str:
    """Return the fingerprint of `plan`: a SHA-256 digest, as 64 hexadecimal characters."""
    digest = sha256(__version__.encode())
    digest.update(describe(plan.target).encode(errors="surrogatepass"))
    for each in plan.tensors:
        digest.update(describe(each).encode(errors="surrogatepass"))
    return digest.hexdigest()


def describe(value: object) -> str:
    """Return a text that is equal in every process for equal values, and different for different ones.

    >>> describe((PurePath("w/a.npy"), None, {"x": 1.5}))
    "('a.npy',None,{'x':1.5},)"
    """
    found = _DESCRIPTIONS.get(type(value))
    return _describe_object(value) if found is None else found(value)


def _describe_sequence(value: Sequence[object]) -> str:
    return f"({''.join([f'{describe(item)},' for item in value])})"


def _describe_mapping(value: Mapping[object, object]) -> str:
    return f"{{{','.join([f'{describe(key)}:{describe(item)}' for key, item in value.items()])}}}"


def _describe_array(value: npt.NDArray[Any]) -> str:
    return f"{value.dtype.str}{value.shape}{sha256(np.ascontiguousarray(value).tobytes()).hexdigest()}"


def _describe_object(value: object) -> str:
    """Return the name of the class and its values."""
    kind: type[Any] = type(value)
    if isinstance(value, PurePath):
        return repr(value.name)
    if isinstance(value, Mapping):
        return _describe_mapping(value)
    if is_dataclass(kind):
        return f"{kind.__qualname__}{_describe_sequence([getattr(value, name) for name in _field_names(kind)])}"
    if any("__repr__" in vars(base) for base in kind.__mro__[:-1]):  # not that of `object`, which is an address
        return f"{kind.__qualname__}({value!r})"
    return f"{kind.__qualname__}{describe(getattr(value, '__dict__', {}))}"


@lru_cache(1024)
def _field_names(kind: type) -> tuple[str, ...]:
    return tuple(field.name for field in fields(kind))


def _describe_descriptor(desc: MemoryDesc) -> str:
    # Descriptors that are equal as in oneDNN may differ in strides, so the fields are the key of the cache.
    return _describe_fields(desc.dims, desc.data_type, desc.layout, desc.offset0, desc.extras)


@lru_cache(4096)
def _describe_fields(*values: object) -> str:
    return _describe_sequence(values)


_DESCRIPTIONS: Mapping[type, Callable[[Any], str]] = {
    **dict.fromkeys((str, int, float, bool, type(None)), repr),
    tuple: _describe_sequence,
    list: _describe_sequence,
    dict: _describe_mapping,
    bytes: lambda value: sha256(value).hexdigest(),
    np.ndarray: _describe_array,
    DataType: lambda value: value.name,
    MemoryDesc: _describe_descriptor,
}
"""Descriptions of values whose class is exactly one of these."""
