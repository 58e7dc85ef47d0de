"""Algorithms of convolutions: the direct one, and others that compute the same result with less arithmetic.

    convolutions="auto"       a convolution of 3x3 is direct, or uses Winograd's minimal filtering, whichever is faster
    convolutions="direct"     all convolutions are direct: sums of products

Winograd's algorithm computes 4x4 results by 36 products, where the direct one needs 144. Rounding differs.

A product of few rows has two forms as well: its weights in the format that the engine chooses, or in panels of columns
(`primitives.panel_weights`).

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
from inlay.primitives.panel_weights import has_panel_weights, panel_variant, with_any_weights

Convolutions: TypeAlias = Literal["auto", "direct"]
"""The algorithms that convolutions may use: `auto`, whichever is faster, or `direct` alone."""

CONVOLUTIONS: tuple[Convolutions, ...] = ("auto", "direct")
"""All values of `Convolutions`."""


@dataclass(frozen=True, slots=True)
class Algorithm:
    """An algorithm that computes tiles of a dense convolution with fewer products than the direct one.

    Its transforms spread NaN and infinities over a tile.
    """

    name: str
    """Value of the convolution's parameter `algorithm`."""
    kernel: int
    """Extent of the weights in each direction."""
    outputs: int
    """Results of a tile in each direction."""
    efficiency: float
    """Share of the machine's peak that kernels reach while they multiply tiles, transforms included."""
    free_post_ops: tuple[PostOp, ...]
    """Post-operations that the kernels apply at no cost."""

    @property
    def products(self) -> int:
        """Products of a tile for each pair of channels; also the elements of a transformed tile."""
        return (self.outputs + self.kernel - 1) ** 2

    def multiplications(self, operation: Operation) -> int:
        """Return the number of multiply-add pairs; tiles at the edge are computed whole."""
        channels = operation.descs["weights"].dims
        return self.products * self._tiles(operation) * channels[0] * channels[1]

    def intermediate_bytes(self, operation: Operation) -> int:
        """Return the bytes of transformed tiles and of their products, which are written and read again.

        >>> from inlay import MemoryDesc
        >>> image = MemoryDesc((1, 64, 56, 56), "f32", "nhwc")
        >>> operation = Operation("convolution", "forward_inference", {"src": image, "dst": image})
        >>> ALGORITHMS["winograd"].intermediate_bytes(operation)
        7225344
        """
        channels = operation.descs["src"].dims[1] + operation.descs["dst"].dims[1]
        return 2 * 4 * self.products * self._tiles(operation) * channels

    def _tiles(self, operation: Operation) -> int:
        """Return the number of tiles of results in each channel."""
        batch, _, height, width = operation.descs["dst"].dims
        return batch * -(-height // self.outputs) * -(-width // self.outputs)

    def supports(self, operation: Operation) -> bool:
        """Return whether the algorithm can compute the result of a direct convolution."""
        if operation.kind != "convolution" or operation.parameters["algorithm"] != "direct":
            return False
        parameters, descs = operation.parameters, operation.descs
        weights = descs["weights"]
        return (
            weights.kind == "any"
            and weights.ndims == descs["src"].ndims == 4  # one group, two spatial axes
            and weights.dims[2:] == (self.kernel, self.kernel)
            and parameters["strides"] == (1, 1)
            and parameters["dilations"] == (0, 0)
            and all(desc.data_type == DATA_TYPES["f32"] for desc in descs.values())
        )


_ALGORITHMS = (Algorithm("winograd", 3, 4, efficiency=0.5, free_post_ops=(EltwisePostOp("relu", 0.0, 0.0),)),)
ALGORITHMS: Mapping[str, Algorithm] = MappingProxyType({one.name: one for one in _ALGORITHMS})
"""Algorithms other than the direct one, by name."""


def algorithm_of(operation: Operation) -> Algorithm | None:
    """Return the algorithm that an operation names; None for the direct one."""
    name = operation.parameters.get("algorithm")
    return ALGORITHMS.get(name) if operation.kind == "convolution" and isinstance(name, str) else None


def algorithm_variants(operation: Operation, convolutions: Convolutions) -> tuple[Operation, ...]:
    """Return the operation as it is, then by each other algorithm that supports it; an engine may have none of these.

    A product of few rows is also returned with its weights in panels of columns. Other algorithms of convolutions get
    their scratchpad from the caller: it is large, and all steps of a session can share one.
    """
    others = [one for one in _ALGORITHMS if convolutions != "direct" and one.supports(operation)]
    if not others:
        panels = panel_variant(operation)
        return (operation,) if panels is None else (operation, panels)
    attributes = replace(operation.attributes, scratchpad_mode="user")
    variants = [{**operation.parameters, "algorithm": one.name} for one in others]
    return operation, *(replace(operation, parameters=parameters, attributes=attributes) for parameters in variants)


def as_direct(operation: Operation) -> Operation | None:
    """Return the same operation by the direct algorithm, or with any weights in place of panels; None if it is that."""
    if has_panel_weights(operation):
        return with_any_weights(operation)
    if algorithm_of(operation) is None:
        return None
    return replace(operation, parameters={**operation.parameters, "algorithm": "direct"})
