"""Inference: from tables of indices, packers and packed buffers to memory layouts, and verification of packers.

`infer` returns the layout that a source shows, or a `Diagnosis`; `verify` compares a source with a descriptor:

>>> import numpy as np
>>> from inlay.descriptor import MemoryDesc
>>> def pack(x):
...     return np.pad(x, [(0, 0), (0, 3)]).reshape(4, 2, 4).swapaxes(0, 1).copy()
>>> print(infer(pack, (4, 5), "f32"))
Ba4b: dims 4x5 of f32, padded to 4x8
    places without an element that complete axis b are read as padding, not as gaps
    also rknn:matmul_C
>>> print(verify(MemoryDesc((4, 5), "f32", "aB4b"), pack))
element 4 at (0, 4) is in place 16, expected 4; the first wrong byte is 18
    Ba4b instead of aB4b makes it right

Data flows through the modules in this order:

    results              what is returned: `InferredLayout`, `Diagnosis`
    observation          `Observation`: the place of each element in a packed buffer
    tables               observations from tables and from pairs of buffers
    packers              observations from functions in Python and C, called with indices
    digits               offsets to digits; padding
    swizzles             the same where bits of the offset are XORed
    spelling             digits to a descriptor and its format tag
    diagnosis            an observation to its layout, or to the reason why there is none
    stream_bits          places of the bits of streams that a packer takes
    compound_inference   the same to a compound format: a row of the table or a new one
    layout_inference     `infer`
    compound_verification
                         packers and buffers of compound formats
    verification         `verify`
    index_files          tables and buffers in .npy, .json, .csv and raw files

Terms:

    place       the position of an element in the packed buffer, in elements from its start; its offset
    element     a logical element, named by its row-major index and its coordinate
    packer      a function that copies a logical array into a memory layout (oneDNN: reorder from a plain format)
    header      the elements before the first element: `offset0` of the descriptor (oneDNN: submemory offset)
    pitch       outer strides that are larger than the elements inside need (CUDA: `cudaMallocPitch`)
    swizzle     an XOR of bits of the offset into other bits (CUTLASS, `cute::Swizzle`)
    label       the number that stands for an element in a call of a packer
    stream      an array of quants, scales or minima, of which a compound format holds several in one buffer
"""

from inlay.inference.compound_inference import InferredCompound
from inlay.inference.compound_verification import CompoundVerification
from inlay.inference.layout_inference import infer
from inlay.inference.results import Diagnosis, InferredLayout
from inlay.inference.verification import Verification, verify

__all__ = [
    "CompoundVerification",
    "Diagnosis",
    "InferredCompound",
    "InferredLayout",
    "Verification",
    "infer",
    "verify",
]
