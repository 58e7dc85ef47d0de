"""Compound formats whose values are signed integers times one scale for each block along the last axis.

ggml's Q4_0 and Q8_0 are two of them. Products read these integers as they are, without the values in f32.

>>> from inlay.descriptor.compound_table import compound
>>> describe_integers(CompoundDesc(compound("ggml:Q4_0"), (8, 64)))
IntegerBlocks(data_type='s4', size=32)
>>> describe_integers(CompoundDesc(compound("ggml:Q4_1"), (8, 64))) is None
True
"""

from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np
import numpy.typing as npt

from inlay.descriptor.compound_desc import CompoundDesc
from inlay.descriptor.compound_format import Stream
from inlay.memory.compound.memory import CompoundMemory


@dataclass(frozen=True, slots=True)
class IntegerBlocks:
    """The integers of a compound format with one scale for each block."""

    data_type: str
    """Type of the integers, `s4` or `s8`, after the zero point is subtracted."""
    size: int
    """Elements of a block, along the last axis."""


def describe_integers(desc: CompoundDesc) -> IntegerBlocks | None:
    """Return the integers of a format with two axes; None if its values are no signed integers times one scale."""
    streams = {stream.name: stream for stream in desc.format.streams}
    if set(streams) != {"quants", "scale"} or len(desc.dims) != 2 or not _is_signed_by_zero(streams["quants"]):
        return None
    rows, inner = desc.dims
    scales = desc.stream_dims("scale")
    if len(scales) != 2 or scales[0] != rows or inner % scales[1]:
        return None
    return IntegerBlocks(f"s{streams['quants'].bits}", inner // scales[1])


def read_integers(memory: CompoundMemory) -> tuple[npt.NDArray[Any], npt.NDArray[np.float32]]:
    """Return the signed integers, of the dims of the tensor, and the scales of their blocks in f32.

    The format is one that `describe_integers` describes.
    """
    quants = memory.desc.format.stream("quants")
    numbers = memory.stream("quants").astype(np.int16) - quants.zero
    dtype = ml_dtypes.int4 if quants.bits == 4 else np.int8
    return numbers.reshape(memory.desc.dims).astype(dtype), np.asarray(memory.stream_values("scale"), np.float32)


def _is_signed_by_zero(stream: Stream) -> bool:
    """Return whether numbers of a stream are integers of 4 or 8 bits that the zero point makes signed ones."""
    if stream.codebook or stream.limits is None or stream.bits not in (4, 8):
        return False
    half = 1 << (stream.bits - 1)
    return stream.zero == (0 if stream.data_type[0] == "s" else half)
