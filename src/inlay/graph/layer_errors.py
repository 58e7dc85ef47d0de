"""Errors of a plan in narrow types against f32, layer by layer, and the report of them.

>>> layer = LayerError("conv1", "bf16", error=0.0021, ms_saved=0.41, kept=True)
>>> print(PrecisionReport((layer,), {"y": 0.0034}, tolerance=0.01))
layer  type  error    ms saved  used
conv1  bf16  2.1e-03     0.410  yes
error of y: 3.4e-03, tolerance 1.0e-02
"""

from collections.abc import Mapping
from dataclasses import dataclass

_HEAD = ("layer", "type", "error", "ms saved", "used")


@dataclass(frozen=True, slots=True)
class LayerError:
    """The error that one operation has in a narrow type."""

    op: str
    """Name of the operation."""
    data_type: str
    """Narrow type of its tensors, `bf16` or `f16`."""
    error: float
    """Largest absolute difference from the result in f32, as part of the largest element of that result.

    Both results are of the same f32 sources, so that errors of earlier layers do not count.
    """
    ms_saved: float
    """Predicted time in f32 less that in the narrow type, in milliseconds."""
    kept: bool
    """True if the plan computes the operation in the narrow type."""


@dataclass(frozen=True, slots=True)
class PrecisionReport:
    """The errors of a plan against f32."""

    layers: tuple[LayerError, ...]
    """Errors of the operations that have a kernel in a narrow type, in the order in which they run."""
    outputs: Mapping[str, float]
    """Error of each output of the network, in the measure of `LayerError.error`, by name."""
    tolerance: float | None = None
    """Limit of the errors of outputs; None without a limit."""

    def __str__(self) -> str:
        """Return a table of the layers, and a line for each output."""
        rows = [
            (one.op, one.data_type, f"{one.error:.1e}", f"{one.ms_saved:.3f}", "yes" if one.kept else "no")
            for one in self.layers
        ]
        widths = [max(map(len, column)) for column in zip(_HEAD, *rows, strict=True)]
        table = [_format_row(row, widths) for row in (_HEAD, *rows)]
        limit = "" if self.tolerance is None else f", tolerance {self.tolerance:.1e}"
        return "\n".join([*table, *(f"error of {name}: {error:.1e}{limit}" for name, error in self.outputs.items())])


def _format_row(row: tuple[str, ...], widths: list[int]) -> str:
    """Return a row of the table, with the milliseconds aligned to the right."""
    cells = [
        text.rjust(width) if title == "ms saved" else text.ljust(width)
        for title, text, width in zip(_HEAD, row, widths, strict=True)
    ]
    return "  ".join(cells).rstrip()
