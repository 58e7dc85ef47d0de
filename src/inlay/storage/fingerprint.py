"""The fingerprint of a plan: a digest of everything that determines the bytes of its target.

Two plans with equal fingerprints have the same tasks, and each task writes the same bytes at the same place. So a
conversion that was interrupted may go on with either plan. Paths count by their last component only, and neither the
number of workers nor the version of the source counts.
"""

from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from functools import lru_cache
from hashlib import sha256
from pathlib import PurePath

import numpy as np

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

    >>> describe((PurePath("w/a.npy"), MemoryDesc((2, 3), "f32", "ab"), {"x": 1.5}))[:9]
    "('a.npy',"
    """
    if isinstance(value, MemoryDesc):
        return _describe_descriptor(value)
    if isinstance(value, DataType):
        return value.name
    if isinstance(value, PurePath):
        return repr(value.name)
    if isinstance(value, bytes):
        return sha256(value).hexdigest()
    if isinstance(value, np.ndarray):
        return f"{value.dtype.str}{value.shape}{sha256(np.ascontiguousarray(value).tobytes()).hexdigest()}"
    if isinstance(value, tuple | list):
        return f"({''.join(f'{describe(item)},' for item in value)})"
    if isinstance(value, Mapping):
        return f"{{{','.join(f'{describe(key)}:{describe(item)}' for key, item in value.items())}}}"
    if value is None or isinstance(value, str | int | float | bool):
        return repr(value)
    return _describe_object(value)


def _describe_object(value: object) -> str:
    """Return the name of the class and its values."""
    kind = type(value)
    if is_dataclass(value):
        return f"{kind.__qualname__}{describe([getattr(value, name) for name in _field_names(kind)])}"
    if kind.__repr__ is not object.__repr__:
        return f"{kind.__qualname__}({value!r})"
    return f"{kind.__qualname__}{describe(getattr(value, '__dict__', {}))}"


@lru_cache(1024)
def _field_names(kind: type) -> tuple[str, ...]:
    return tuple(field.name for field in fields(kind))


@lru_cache(4096)
def _describe_descriptor(desc: MemoryDesc) -> str:
    return desc.to_json()
