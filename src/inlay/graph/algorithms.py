"""By which algorithms a convolution may be computed: what a network asks for, and what gives the same with less work.

    convolutions="auto"       a convolution of 3x3 by sums of products, or by Winograd's minimal filtering
    convolutions="direct"     by sums of products alone

Winograd's convolution of 4x4 results at once takes 36 products where 144 are summed otherwise, in other rounding.

Source: Winograd 1980, "Arithmetic complexity of computations"; Lavin and Gray 2016, "Fast algorithms for convolutional
neural networks".
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Literal, TypeAlias

from inlay.data_type import DATA_TYPES
from inlay.primitives.attributes import EltwisePostOp, PostOp
from inlay.primitives.engine import Operation

Convolutions: TypeAlias = Literal["auto", "direct"]
"""Which algorithms convolutions may be computed by, in oneDNN's words: whichever takes less, or direct ones alone."""

CONVOLUTIONS: tuple[Convolutions, ...] = ("auto", "direct")
"""Every choice."""


@dataclass(frozen=True, slots=True)
class Algorithm:
    """An algorithm that computes tiles of a dense convolution with fewer products than their sums have.

    Its transforms spread NaN and infinities over a tile.
    """

    name: str
    """As the parameter `algorithm` of a convolution calls it."""
    kernel: int
    """Weights in each direction."""
    outputs: int
    """Results of a tile in each direction."""
    efficiency: float
    """Share of the peak that kernels reach while tiles are multiplied, transforms included."""
    free_post_ops: tuple[PostOp, ...]
    """What may end it at no cost."""

    @property
    def products(self) -> int:
        """Products of a tile for each pair of channels, and elements of a transformed tile."""
        return (self.outputs + self.kernel - 1) ** 2

    def multiplications(self, operation: Operation) -> int:
        """Products that are added up; tiles at the edge are computed whole."""
        channels = operation.descs["weights"].dims
        return self.products * self._tiles(operation) * channels[0] * channels[1]

    def intermediate_bytes(self, operation: Operation) -> int:
        """Bytes that are written and read again: transformed tiles, and their products.

        >>> from inlay import MemoryDesc
        >>> image = MemoryDesc((1, 64, 56, 56), "f32", "nhwc")
        >>> operation = Operation("convolution", "forward_inference", {"src": image, "dst": image})
        >>> ALGORITHMS["winograd"].intermediate_bytes(operation)
        7225344
        """
        channels = operation.descs["src"].dims[1] + operation.descs["dst"].dims[1]
        return 2 * 4 * self.products * self._tiles(operation) * channels

    def _tiles(self, operation: Operation) -> int:
        """Tiles of results that each channel has."""
        batch, _, height, width = operation.descs["dst"].dims
        return batch * -(-height // self.outputs) * -(-width // self.outputs)

    def may_compute(self, operation: Operation) -> bool:
        """Whether the algorithm gives the result of a direct convolution."""
        if operation.kind != "convolution" or operation.parameters["algorithm"] != "direct":
            return False
        told, descs = operation.parameters, operation.descs
        weights = descs["weights"]
        return (
            weights.kind == "any"
            and weights.ndims == descs["src"].ndims == 4  # one group, two spatial axes
            and weights.dims[2:] == (self.kernel, self.kernel)
            and told["strides"] == (1, 1)
            and told["dilations"] == (0, 0)
            and all(desc.data_type == DATA_TYPES["f32"] for desc in descs.values())
        )


_ALGORITHMS = (Algorithm("winograd", 3, 4, efficiency=0.5, free_post_ops=(EltwisePostOp("relu", 0.0, 0.0),)),)
ALGORITHMS: Mapping[str, Algorithm] = MappingProxyType({one.name: one for one in _ALGORITHMS})
"""Algorithms besides the direct one, by name."""


def algorithm_of(operation: Operation) -> Algorithm | None:
    """The algorithm that shall compute an operation; None for the usual one."""
    name = operation.parameters.get("algorithm")
    return ALGORITHMS.get(name) if operation.kind == "convolution" and isinstance(name, str) else None


def algorithms(operation: Operation, convolutions: Convolutions) -> tuple[Operation, ...]:
    """The operation as it is, then by each other algorithm that may compute it; an engine may have none of these.

    The others are given their scratchpad, which all steps of a session share: it is large.
    """
    others = [one for one in _ALGORITHMS if convolutions != "direct" and one.may_compute(operation)]
    if not others:
        return (operation,)
    attributes = replace(operation.attributes, scratchpad_mode="user")
    told = [{**operation.parameters, "algorithm": one.name} for one in others]
    return operation, *(replace(operation, parameters=words, attributes=attributes) for words in told)


def direct(operation: Operation) -> Operation | None:
    """The same by the usual algorithm; None if it is that already."""
    if algorithm_of(operation) is None:
        return None
    return replace(operation, parameters={**operation.parameters, "algorithm": "direct"})
