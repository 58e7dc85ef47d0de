"""Compound formats: several streams of numbers in one buffer, such as the quants and scales of a quantized tensor.

>>> import numpy as np
>>> from inlay.memory.compound.memory import pack_compound
>>> memory = pack_compound(np.arange(64, dtype=np.float32).reshape(2, 32), "ggml:Q8_0")
>>> memory.desc.size, memory.stream("scale").shape, memory.unpack()[1, 31].item()
(68, (2, 1), 63.00390625)

Formats and their dims are values of `inlay.descriptor`: `compound_format` has `BitField`, `Stream`, `Section` and
`CompoundFormat`, `compound_table` the table of formats, `compound_desc` the class `CompoundDesc`. The modules here, in
the order in which data flows:

    bits      numbers from and to the bytes of blocks, with NumPy
    quantize  numbers from floats, by ggml's rules
    fused     values of blocks by compiled code
    memory    `CompoundMemory`: pack, assemble, unpack
    integer_blocks  signed integers and scales of the formats that have no more

Terms:

    block            consecutive bytes that hold a fixed number of elements with their scales (ggml: `block_q4_0`)
    stream           one array of numbers that is spread over the blocks
    quant            the integer or code that is stored for an element
    scale, minimum   numbers that a group of elements shares: value = scale * quant - minimum (ggml)
    codebook         the values of codes that are no integers: FP4 E2M1, E8M0, IQ4_NL
    footer           bytes behind each row of blocks (KleidiAI: row sums and bias)
"""

from inlay.memory.compound.memory import CompoundMemory, assemble, pack_compound

__all__ = ["CompoundMemory", "assemble", "pack_compound"]
