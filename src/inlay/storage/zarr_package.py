"""Import of zarr and of Dask at first use: they take most of a second, and may be absent."""

from functools import cache
from typing import Any

from inlay.errors import MissingExtra

ZarrArray = Any
"""An array of zarr-python, which has no static types here."""
DaskArray = Any
"""An array of Dask, which has no static types here."""

INSTALL = "pip install 'inlay[storage]'"
"""The command that installs what stores need."""


@cache
def require_zarr() -> Any:
    """Return the module zarr, with Inlay's codec and data types registered.

    Raises:
        MissingExtra: zarr is not installed, or older than version 3.
    """
    try:
        import zarr
        import zarr.codecs
        import zarr.storage
        from zarr.registry import register_codec
    except ImportError:
        raise MissingExtra(f"zarr 3 is not installed: {INSTALL}") from None
    from inlay.storage import zarr_codec, zarr_types

    register_codec(zarr_codec.CODEC_NAME, zarr_codec.InlayCodec)
    zarr_types.register_types()
    return zarr


@cache
def require_dask_array() -> Any:
    """Return the module dask.array.

    Raises:
        MissingExtra: Dask is not installed.
    """
    try:
        import dask.array
    except ImportError:
        raise MissingExtra(f"Dask is not installed: {INSTALL}") from None
    return dask.array
