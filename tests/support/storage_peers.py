"""Packages of stores that may be absent: tests that need them are skipped then."""

from typing import Any

import pytest


def zarr_or_skip() -> Any:
    """zarr-python, with Inlay's codec registered."""
    pytest.importorskip("zarr", minversion="3.1", reason="zarr is not installed")
    from inlay.storage.zarr_package import require_zarr

    return require_zarr()


def dask_array_or_skip() -> Any:
    """`dask.array`."""
    pytest.importorskip("dask", reason="Dask is not installed")
    from inlay.storage.zarr_package import require_dask_array

    return require_dask_array()
