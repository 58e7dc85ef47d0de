"""What the tests of files share: arrays to store and the conversion in one call."""

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from inlay.storage import convert, plan

Array = npt.NDArray[Any]


def numbered(shape: tuple[int, ...], dtype: Any = np.float32) -> Array:
    """Every bit pattern in turn, so that no two neighbours are alike."""
    dtype = np.dtype(dtype)
    count = int(np.prod(shape))
    words = np.arange(1, count + 1, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    low = words.view(np.uint8).reshape(count, 8)[:, 8 - dtype.itemsize :].copy()
    return np.asarray(low.view(dtype).reshape(shape))


def run(source: str | Path, target: str | Path, *to: str, **options: Any) -> None:
    """Convert, and replace what exists."""
    convert(plan(source, target, to, **options), overwrite=True)
