"""Weights of products in compound formats with one scale for each block, such as ggml's Q4_0 and Q8_0.

    weights (N, K) of blocks along K    ->    weights (K, N) of s4 or s8, weights_scales (K / 32, N)

A kernel for such integers reads 4 or 8 bits for each weight. Where no engine has one, the weights become numbers of the
type of the source when they are packed.
"""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from inlay.descriptor import MemoryDesc
from inlay.descriptor.compound_desc import CompoundDesc
from inlay.errors import InvalidArguments, Unimplemented, shown
from inlay.memory import Memory, pack
from inlay.memory.compound.integer_blocks import IntegerBlocks, describe_integers, read_integers
from inlay.memory.compound.memory import CompoundMemory
from inlay.primitives.attributes import PLAIN, WEIGHTS_SCALES, PrimitiveAttributes
from inlay.reordering.attributes import Scales


@dataclass(frozen=True, slots=True)
class BlockWeights:
    """The weights of a product in a compound format: an element of each output and input."""

    desc: CompoundDesc
    """Format and dims: (N, K), with blocks along K."""
    integers: IntegerBlocks
    """Type and number of the integers of a block."""

    def describe_integers(self) -> MemoryDesc:
        """Return the descriptor (K, N) of the integers, with any format."""
        return MemoryDesc(self.desc.dims[::-1], self.integers.data_type, "any")

    def add_scales(self, primitive_name: str, attributes: PrimitiveAttributes | None) -> PrimitiveAttributes:
        """Return attributes with the scales of the blocks.

        Raises:
            InvalidArguments: they have scales or zero points of the weights already.
        """
        given = PLAIN if attributes is None else attributes
        if "weights" in given.scales or "weights" in given.zero_points:
            raise InvalidArguments(
                f"{primitive_name}: attributes have scales or zero points of weights, and {self.desc.format.name} has "
                "its own: leave them out"
            )
        scales = Scales(mask=3, groups=(self.integers.size, 1))
        return replace(given, scales={**given.scales, "weights": scales}, fpmath_integers=True)

    def pack(self, primitive_name: str, memory: object, descs: dict[str, MemoryDesc]) -> dict[str, Memory]:
        """Return the memory of each argument in `descs`: weights, and their scales unless weights are real numbers.

        Raises:
            InvalidArguments: `memory` is no CompoundMemory of this format and dims, or has a scale that is not finite.
        """
        if not isinstance(memory, CompoundMemory) or memory.desc != self.desc:
            found = memory.desc if isinstance(memory, CompoundMemory) else shown(memory)
            raise InvalidArguments(
                f"{primitive_name}: weights are {found}: give a CompoundMemory of {self.desc}, as inlay.pack_compound "
                "returns"
            )
        integers, scales = read_integers(memory)
        if not np.isfinite(scales).all():
            raise InvalidArguments(f"{primitive_name}: weights have a scale that is not finite: quantize them again")
        arrays: dict[str, npt.NDArray[Any]] = {"weights": integers.T, WEIGHTS_SCALES: scales.T}
        if WEIGHTS_SCALES not in descs:
            arrays = {"weights": memory.unpack().T}
        return {
            name: pack(np.ascontiguousarray(array).reshape(descs[name].dims), descs[name])
            for name, array in arrays.items()
        }


def describe_block_weights(primitive_name: str, desc: CompoundDesc) -> BlockWeights:
    """Return the weights of a product in a compound format.

    Raises:
        InvalidArguments: they have other than two axes.
        Unimplemented: a product cannot read the format.
    """
    if len(desc.dims) != 2:
        raise InvalidArguments(
            f"{primitive_name}: weights {desc} have {len(desc.dims)} axes: describe one matrix with two, (N, K)"
        )
    integers = describe_integers(desc)
    if integers is None:
        raise Unimplemented(
            f"{primitive_name}: weights are {desc.format.name}, and blocks of integers with one scale are supported, "
            "such as ggml:Q4_0 and ggml:Q8_0: give an f32 matrix, pack(memory.unpack().T, product.weights_desc)"
        )
    return BlockWeights(desc, integers)
