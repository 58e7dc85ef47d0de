"""By which algorithms an operation may be computed: what a network asks for, and what gives the same with less work.

    convolutions="auto"       a convolution of 3x3 by sums of products, or by Winograd's minimal filtering
    convolutions="direct"     by sums of products alone

Winograd's convolution of 4x4 results at once takes 36 products where 144 are summed otherwise, in other rounding.

Source: Winograd 1980, "Arithmetic complexity of computations"; Lavin and Gray 2016, "Fast algorithms for convolutional
neural networks".
"""

from dataclasses import replace
from typing import Literal, TypeAlias

from inlay.data_type import DATA_TYPES
from inlay.primitives.attributes import Eltwise
from inlay.primitives.operation import Operation

Convolutions: TypeAlias = Literal["auto", "direct"]
"""Which algorithms convolutions may be computed by, in oneDNN's words: whichever takes less, or direct ones alone."""

CONVOLUTIONS: tuple[Convolutions, ...] = ("auto", "direct")
"""Every choice."""

RELU = Eltwise("relu", 0.0, 0.0)
"""What a convolution by Winograd's algorithm may end with."""


def is_winograd(operation: Operation) -> bool:
    """Whether it is a convolution that Winograd's algorithm shall compute."""
    return operation.kind == "convolution" and operation.parameters.get("algorithm") == "winograd"


def algorithms(operation: Operation, convolutions: Convolutions) -> tuple[Operation, ...]:
    """The operation as it is, then by each other algorithm that may compute it; an engine may have none of these.

    The others are given their scratchpad, which all steps of a session share: it is large.
    """
    if convolutions == "direct" or not _may_be_winograd(operation):
        return (operation,)
    told = {**operation.parameters, "algorithm": "winograd"}
    attributes = replace(operation.attributes, scratchpad_mode="user")
    return operation, replace(operation, parameters=told, attributes=attributes)


def direct(operation: Operation) -> Operation:
    """A convolution by sums of products."""
    return replace(operation, parameters={**operation.parameters, "algorithm": "direct"})


def _may_be_winograd(operation: Operation) -> bool:
    if operation.kind != "convolution" or operation.parameters["algorithm"] != "direct":
        return False
    told, descs = operation.parameters, operation.descs
    weights = descs["weights"]
    return (
        weights.kind == "any"
        and weights.ndims == descs["src"].ndims == 4  # one group, two spatial axes
        and weights.dims[2:] == (3, 3)
        and told["strides"] == (1, 1)
        and told["dilations"] == (0, 0)
        and all(desc.data_type == DATA_TYPES["f32"] for desc in descs.values())
    )
