"""`inlay bench`: one reorder against a copy of as many bytes, a network against other runtimes.

tables    what was measured, as text

peers     who takes part in a reorder, as calls that leave the same bytes
report    what was measured of it, as a table and as JSON

models          a network's file as runtimes like it best
runtimes        who takes part in a network: ONNX Runtime, OpenVINO and PyTorch
torch_graphs    a network in functions of PyTorch
networks        numbers are compared, then runs are timed
network_report  what was measured, as a table and as JSON
"""

from inlay.bench.report import ROUNDS, Line, Report, bench

__all__ = ["ROUNDS", "Line", "Report", "bench"]
