"""Rule of the operator that writes rows into a state of decoding; see `graph.passes.kept_states`."""

from collections.abc import Mapping
from types import MappingProxyType

from inlay.graph.lowering.context import LoweringContext, LoweringRule, Operand


def cache_write(context: LoweringContext) -> Operand:
    """Lower CacheWrite: the result is the whole state, in its own memory, after the write."""
    rows, position, _ = context.node.inputs
    output = context.output()
    return context.emit("cache_write", {"src": rows, "position": position}, output.dims, output.dtype, axis=0)


STATE_RULES: Mapping[str, LoweringRule] = MappingProxyType({"inlay:CacheWrite": cache_write})
"""Rule of each operator, by its key in `translation.TABLE`."""
