"""The table of operators that NumPy computes here, not by `onnx.reference`.

>>> FUNCTIONS["Pad"].__name__
'pad'
"""

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import TypeAlias

from inlay.graph.numpy_operators.call import OperatorCall
from inlay.graph.numpy_operators.casting import CASTING
from inlay.graph.numpy_operators.convolution import CONVOLUTION
from inlay.graph.numpy_operators.indexing import INDEXING
from inlay.graph.numpy_operators.normalization import NORMALIZATION
from inlay.graph.numpy_operators.padding import PADDING
from inlay.graph.numpy_operators.pooling import POOLING
from inlay.graph.numpy_operators.powers import POWERS
from inlay.graph.numpy_operators.quantization import QUANTIZATION
from inlay.graph.numpy_operators.recurrent import RECURRENT
from inlay.graph.numpy_operators.reductions import REDUCTIONS
from inlay.graph.numpy_operators.resizing import RESIZING
from inlay.graph.numpy_operators.sampling import SAMPLING
from inlay.graph.numpy_operators.shaping import SHAPING
from inlay.graph.op import Array

Function: TypeAlias = Callable[[OperatorCall], Array | tuple[Array, ...]]

FUNCTIONS: Mapping[str, Function] = MappingProxyType(
    {
        **CASTING,
        **CONVOLUTION,
        **INDEXING,
        **NORMALIZATION,
        **PADDING,
        **POOLING,
        **POWERS,
        **QUANTIZATION,
        **RECURRENT,
        **REDUCTIONS,
        **RESIZING,
        **SAMPLING,
        **SHAPING,
    }
)
"""Operator of ONNX to the function that computes it, of every opset that is read."""
