"""Folders of the checkout, and the environment of programs that tests start."""

from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
"""The checkout: `src`, `tests`, `docs`, `benchmarks` and `examples` are in it."""
DATA = ROOT / "tests" / "data"
"""Tables that tests read."""
GOLDEN = ROOT / "tests" / "golden"
"""Results that were reviewed, and that tests compare with."""
SUPPORT = ROOT / "tests" / "support"
"""Helpers of tests, and the programs that they start."""
