"""What a session says of its steps in a line."""

from collections.abc import Sequence

from inlay.graph.compiling import PreparedStep

_MOST_NAMED = 8


def describe_declined(prepared: Sequence[PreparedStep]) -> str:
    """How many steps the engine does not compute as it prefers, and which; empty if there are none."""
    declined = [one.step.name for one in prepared if one.is_declined]
    replaced = [f"{one.step.name} ({one.impl} for {one.replaced})" for one in prepared if one.replaced]
    clauses = [
        _counted_steps(declined, "computed by the reference engine"),
        _counted_steps(replaced, "computed by another implementation, because code generation failed"),
    ]
    return "; ".join(filter(None, clauses))


def _counted_steps(names: list[str], fate: str) -> str:
    """How many steps share a fate, and which; empty if there are none."""
    if not names:
        return ""
    more = f" and {len(names) - _MOST_NAMED} more" if len(names) > _MOST_NAMED else ""
    steps = "1 step is" if len(names) == 1 else f"{len(names)} steps are"
    return f"{steps} {fate}: {', '.join(names[:_MOST_NAMED])}{more}"
