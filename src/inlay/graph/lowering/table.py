"""The table of operators: each of ONNX's that a primitive or a view computes, and its rule.

>>> TABLE["Conv"].__name__
'convolution'

What is missing here is a reference: NumPy computes it, as `graph.nodes` says.
"""

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import TypeAlias

from inlay.graph.lowering.arithmetic import ARITHMETIC
from inlay.graph.lowering.convolutions import CONVOLUTIONS
from inlay.graph.lowering.draft import Draft, Operand
from inlay.graph.lowering.elementwise import FUNCTIONS
from inlay.graph.lowering.moving import MOVING
from inlay.graph.lowering.normalizations import NORMALIZATIONS
from inlay.graph.lowering.pooling import POOLING
from inlay.graph.lowering.products import PRODUCTS
from inlay.graph.lowering.recurrent import RECURRENT
from inlay.graph.lowering.reductions import REDUCTIONS
from inlay.graph.lowering.resizing import RESIZING

Rule: TypeAlias = Callable[[Draft], Operand | tuple[Operand | None, ...]]

TABLE: Mapping[str, Rule] = MappingProxyType(
    {
        **CONVOLUTIONS,
        **PRODUCTS,
        **POOLING,
        **NORMALIZATIONS,
        **FUNCTIONS,
        **ARITHMETIC,
        **REDUCTIONS,
        **RESIZING,
        **RECURRENT,
        **MOVING,
    }
)
"""Operator of ONNX to rule."""
