"""One reorder against a copy of as many bytes, and against whoever else is installed: `inlay bench`.

peers     who takes part, as calls that leave the same bytes
turns     they take turns, round after round
report    what was measured, as a table and as JSON
"""

from inlay.bench.report import Line, Report, bench

__all__ = ["Line", "Report", "bench"]
