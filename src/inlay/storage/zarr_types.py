"""Types of ml_dtypes as Zarr 3 data types: `bfloat16`, `float8_e4m3fn` and `float8_e5m2`.

The names are those of the registry of Zarr extensions, which TensorStore uses too. zarr-python finds the types by entry
points of the group `zarr.data_type`. zarr is imported when a class is first used.

Source: zarr-developers, "zarr-extensions", data types.
"""

import sys
from typing import Any

import ml_dtypes
import numpy as np

TYPES: dict[str, tuple[str, type]] = {
    "BFloat16": ("bfloat16", ml_dtypes.bfloat16),
    "Float8E4M3FN": ("float8_e4m3fn", ml_dtypes.float8_e4m3fn),
    "Float8E5M2": ("float8_e5m2", ml_dtypes.float8_e5m2),
}
"""For each class of this module: the name in metadata, and the type of ml_dtypes."""


def register_types() -> None:
    """Register the types with zarr-python, where the entry points of Inlay are not installed."""
    from zarr.dtype import data_type_registry

    for name, (zarr_name, _) in TYPES.items():
        if zarr_name not in data_type_registry.contents:
            data_type_registry.register(zarr_name, getattr(sys.modules[__name__], name))


def _make_class(name: str) -> Any:
    """Return the class of a type: zarr's `Float16` with another type of NumPy's arrays."""
    from zarr.dtype import Float16

    zarr_name, scalar = TYPES[name]
    dtype = np.dtype(scalar)

    def item_size(self: Any) -> int:
        """Return the size of an element, in bytes."""
        return dtype.itemsize

    members = {
        "__slots__": (),
        "__module__": __name__,
        "__doc__": f"The Zarr data type `{zarr_name}`, whose elements are `ml_dtypes.{scalar.__name__}`.",
        "_zarr_v3_name": zarr_name,
        "_zarr_v2_names": (),
        "dtype_cls": type(dtype),
        "to_native_dtype": lambda self: dtype,
        "cast_scalar": lambda self, data: scalar(data),
        "default_scalar": lambda self: scalar(0),
        "from_json_scalar": lambda self, data, *, zarr_format: scalar(_read_number(data, dtype)),
        "item_size": property(item_size),
    }
    return type(name, (Float16,), members)


def _read_number(data: object, dtype: "np.dtype[Any]") -> Any:
    """Return a fill value from JSON: a number, the name of a special number, or the bits in hexadecimal.

    Raises:
        ValueError: it is none of them.
    """
    if isinstance(data, str) and data.startswith("0x"):
        return np.frombuffer(int(data, 16).to_bytes(dtype.itemsize, sys.byteorder), dtype)[0]
    return float(data)  # type: ignore[arg-type]


def __getattr__(name: str) -> Any:
    """Return a class of `TYPES`, which is made at first use because it derives from a class of zarr."""
    if name not in TYPES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    made = _make_class(name)
    setattr(sys.modules[__name__], name, made)
    return made
