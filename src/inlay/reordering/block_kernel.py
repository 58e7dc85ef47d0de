"""The kernel that computes the values of a compound format: its inputs from the bit fields of the format.

A kernel suits formats whose blocks have rows of a multiple of 16 elements, with one scale for at least 16 elements in a
row. `inlay.reordering.emit_blocks` generates its code.
"""

from functools import lru_cache
from math import prod

import numpy as np

from inlay.descriptor.compound_format import CompoundFormat, Stream
from inlay.reordering.emit_blocks import LANES, BlockKernel, FieldBits, StreamBits

_NUMBERS = {"u8": "unsigned", "s8": "signed", "f16": "f16", "bf16": "bf16", "f32": "f32"}
_MOST_REGISTERS = 64
_FLOAT_TYPES = {"f16", "bf16", "f32"}
_MOST_BITS = 32  # from the first bit of a byte to the end of a field that begins in it


@lru_cache(maxsize=64)
def select_block_kernel(fmt: CompoundFormat, *, streams: bool) -> BlockKernel | None:
    """Return the kernel of a format with ordinary or streaming stores; None if there is none.

    >>> from inlay.descriptor.compound_table import compound
    >>> select_block_kernel(compound("ggml:Q4_0"), streams=False).columns
    32
    """
    section, values = fmt.sections[0], fmt.values
    rows, columns = prod(section.block[:-1]), section.block[-1]
    if len(fmt.sections) > 1 or len(section.block) > 2 or columns % LANES or rows * columns > LANES * _MOST_REGISTERS:
        return None
    if values.data_type in _FLOAT_TYPES or _most_bits(values) > 8:
        return None
    factors = [tuple(_stream_bits(fmt, fmt.stream(name)) for name in names) for names in (fmt.scales, fmt.minima)]
    quants = _stream_bits(fmt, values)
    scales, minima = ([one for one in group if one is not None] for group in factors)
    if quants is None or len(scales) < len(fmt.scales) or len(minima) < len(fmt.minima):
        return None
    is_one_row = rows == 1 and not section.footer_nbytes
    return BlockKernel(rows, columns, quants, tuple(scales), tuple(minima), fmt.adds_minimum, is_one_row, streams)


def _most_bits(stream: Stream) -> int:
    """Return the most bits from the first bit of a byte to the end of a field that begins in it."""
    return max(int((field.bit_offsets() % 8).max()) + field.width for field in stream.fields)


def _stream_bits(fmt: CompoundFormat, stream: Stream) -> StreamBits | None:
    """Return the bits of a stream; None if its numbers are not converted, or differ within a register."""
    block = fmt.sections[0].block
    dims = stream.dims
    if stream.in_footer or stream.data_type not in _NUMBERS or _most_bits(stream) > _MOST_BITS:
        return None
    grouped = [np.arange(size) // (size // dim) for size, dim in zip(block, dims, strict=True)]
    entries = np.ravel_multi_index(np.meshgrid(*grouped, indexing="ij"), dims).reshape(-1, LANES)
    if stream is not fmt.values and (entries != entries[:, :1]).any():
        return None
    fields = tuple(FieldBits(field.width, field.shift, tuple(field.bit_offsets().tolist())) for field in stream.fields)
    number = _NUMBERS[stream.data_type]
    first = tuple(entries[:, 0].tolist())
    return StreamBits(0, number, stream.bits, stream.zero, stream.codebook, fields, first)
