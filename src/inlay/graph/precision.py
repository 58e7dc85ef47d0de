"""Precision of a plan: the data types in which its f32 tensors may be stored.

    "model"          types that the file of the model declares, where the processor computes in them; else f32
    "f32"            f32 for every tensor
    "bf16", "f16"    this type wherever the processor computes in it
    "auto"           bf16 where the error against f32 stays within the tolerance

Arithmetic stays that of f32: a tensor in another type has rounded elements, and its kernels accumulate in f32.
`OpGraph.storage_types` has the types that `assign_storage_types` allows; the planner chooses among them by cost.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from math import isfinite
from typing import Literal, TypeAlias, get_args

from inlay.errors import InvalidArguments, Unimplemented, shown
from inlay.graph.op_graph import OpGraph

PrecisionName: TypeAlias = Literal["f32", "bf16", "f16", "auto", "model"]
"""The precision that a caller requests."""
NARROW_TYPES = frozenset(("bf16", "f16"))
"""Data types in which a tensor of f32 may be stored."""


@dataclass(frozen=True, slots=True)
class PrecisionRequest:
    """The precision of a plan, as its caller requests it.

    >>> PrecisionRequest("bf16").require_valid()
    >>> PrecisionRequest("half").require_valid()
    Traceback (most recent call last):
        ...
    inlay.errors.InvalidArguments: precision is 'half': give one of f32, bf16, f16, auto, model
    """

    name: PrecisionName = "model"
    """Types in which tensors may be stored: see the module."""
    tolerance: float | None = None
    """Limit of the error of each output, as part of its largest element; None for no limit, and 0.01 with `auto`."""
    keep_f32: frozenset[str] = frozenset()
    """Names of operations that read and write f32 only."""

    def require_valid(self) -> None:
        """Check the request.

        Raises:
            InvalidArguments: there is no such precision, or the tolerance is no positive number or is for a precision
                without a choice of types.
        """
        name: object = self.name
        if not isinstance(name, str) or name not in get_args(PrecisionName):
            names = ", ".join(get_args(PrecisionName))
            raise InvalidArguments(f"precision is {shown(name)}: give one of {names}")
        limit: object = self.tolerance
        if limit is None:
            return
        if isinstance(limit, bool) or not isinstance(limit, (int, float)) or not (isfinite(limit) and limit > 0):
            raise InvalidArguments(f"tolerance is {shown(limit)}: give a positive number, such as 0.01")
        if self.name in ("f32", "model"):
            raise InvalidArguments(
                f"tolerance is {limit}, and precision {self.name} chooses no types by their error: leave it out, or "
                "give precision='auto'"
            )


def assign_storage_types(graph: OpGraph, declared: Mapping[str, str], request: PrecisionRequest, isa: str) -> OpGraph:
    """Return the graph with the types in which the request allows its f32 tensors to be stored.

    Args:
        graph: the graph, in which all arithmetic is that of f32.
        declared: types of the model by tensor, as in `Network.declared_types`.
        request: the precision, which is valid.
        isa: instruction set that the plan is for.

    Raises:
        Unimplemented: the precision is none of f32 and model.
    """
    if request.name not in ("f32", "model"):
        raise Unimplemented(f"precision is {request.name}: plans store tensors in f32: give f32 or model")
    return graph
