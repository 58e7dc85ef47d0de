"""Rules of operators on integers with scales and zero points that the model states.

Operators of quantized elements become primitives with `Op.attributes`, whose values are constant arguments.
"""

from collections.abc import Mapping
from types import MappingProxyType

from inlay.graph.lowering.context import LoweringRule

QUANTIZED_RULES: Mapping[str, LoweringRule] = MappingProxyType({})
"""Rule of each operator, by its key in `translation.TABLE`."""
