"""The function of each primitive in each direction.

>>> sorted({kind for kind, _ in TABLE})[:3]
['binary', 'convolution', 'eltwise']
"""

from collections.abc import Mapping
from types import MappingProxyType

from inlay.engine.reference import binary, convolution, eltwise, pooling, recurrent_formulas
from inlay.engine.reference.arrays import Formula
from inlay.primitives.signatures import Direction

RECURRENT = ("vanilla_rnn", "lstm", "gru", "lbr_gru", "augru", "lbr_augru")
"""The kinds of recurrent networks."""

TABLE: Mapping[tuple[str, Direction], Formula] = MappingProxyType(
    {
        ("convolution", "forward"): convolution.forward,
        ("convolution", "backward_data"): convolution.backward_data,
        ("convolution", "backward_weights"): convolution.backward_weights,
        ("pooling", "forward"): pooling.forward,
        ("pooling", "backward"): pooling.backward,
        ("eltwise", "forward"): eltwise.forward,
        ("eltwise", "backward"): eltwise.backward,
        ("binary", "forward"): binary.forward,
        **{(kind, "forward"): recurrent_formulas.computed for kind in RECURRENT},
        **{(kind, "backward"): recurrent_formulas.gradients for kind in RECURRENT},
    }
)
"""Kind and direction to formula."""
