"""`ShapeRules`: the shapes of inputs for which an exported graph is valid.

The exporter gives each open dim a symbol with a range, and other dims become numbers or expressions of symbols.

Source: PyTorch, `torch.export`, "Expressing Dynamism" (`ExportedProgram.range_constraints`).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from inlay.layout import Dims


@dataclass(frozen=True, slots=True)
class ShapeRules:
    """The extents of all axes of all inputs, as numbers or as expressions of symbols."""

    names: tuple[str, ...]
    """Name of each input."""
    extents: tuple[tuple[Any, ...], ...]
    """For each input, the extents of its axes: a number, or an expression of sympy."""
    ranges: Mapping[Any, tuple[int, int]]
    """Least and greatest value of each symbol."""

    @staticmethod
    def of(program: Any, inputs: Sequence[str]) -> "ShapeRules":
        """Return the rules of an `ExportedProgram` for those of its inputs that are tensors, by name."""
        values = {node.name: node.meta["val"] for node in program.graph.nodes if node.op == "placeholder"}
        extents = tuple(tuple(map(expression_of, values[name].shape)) for name in inputs)
        ranges = {
            symbol: (_bound(found.lower, 0), _bound(found.upper, (1 << 63) - 1))
            for symbol, found in program.range_constraints.items()
        }
        return ShapeRules(tuple(inputs), extents, ranges)

    @property
    def is_open(self) -> bool:
        """Return whether an extent is no number."""
        return any(not isinstance(n, int) for extents in self.extents for n in extents)

    def find_fault(self, shapes: Sequence[Dims]) -> str:
        """Return which extent these shapes may not have, and why; empty if the graph is valid for them."""
        found: dict[Any, int] = {}
        later: list[tuple[str, int, Any, int]] = []
        for name, extents, shape in zip(self.names, self.extents, shapes, strict=True):
            if len(extents) != len(shape):
                return f"input {name} has {len(shape)} axes, and was exported with {len(extents)}"
            for axis, (extent, n) in enumerate(zip(extents, shape, strict=True)):
                if not isinstance(extent, int) and extent.is_Symbol:
                    found.setdefault(extent, n)
                later.append((name, axis, extent, n))
        for name, axis, extent, n in later:
            expected = extent if isinstance(extent, int) else extent.subs(found)
            if expected != n:
                return f"axis {axis} of input {name} is {n}, and the graph was exported for {expected}"
            low, high = self.ranges.get(extent, (0, n))
            if not low <= n <= high:
                return f"axis {axis} of input {name} is {n}, and the graph was exported for {low} to {high}"
        return ""


def expression_of(extent: Any) -> Any:
    """Return an extent as a number, or as the expression of a symbolic one."""
    if isinstance(extent, int):
        return int(extent)
    expression = extent.node.expr
    return int(expression) if expression.is_number else expression


def _bound(value: Any, infinite: int) -> int:
    """Return the bound of a range as a number; `infinite` if it has none."""
    return int(value) if getattr(value, "is_Integer", False) else infinite
