"""Rules of operators whose scales and zero points are computed by the network.

A scale that the network computes is an argument that the operation reads, such as `src_scales`.
"""

from collections.abc import Mapping
from types import MappingProxyType

from inlay.graph.lowering.context import LoweringRule

DYNAMIC_RULES: Mapping[str, LoweringRule] = MappingProxyType({})
"""Rule of each operator, by its key in `translation.TABLE`."""
