"""Rules of matrix products whose constant weights have a scale for each group of elements.

They become `matmul` with integer weights and the attribute `fpmath_integers`, as in oneDNN.
"""

from collections.abc import Mapping
from types import MappingProxyType

from inlay.graph.lowering.context import LoweringRule

BLOCK_RULES: Mapping[str, LoweringRule] = MappingProxyType({})
"""Rule of each operator, by its key in `translation.TABLE`."""
