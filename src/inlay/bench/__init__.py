"""`inlay bench`: one reorder against a copy of as many bytes, a network against other runtimes.

tables          what was measured, as text
report          a reorder beside oneDNN, NumPy and PyTorch; the machine model beside what the system reports
runtimes        who takes part in a network: ONNX Runtime, OpenVINO and PyTorch, and a file as they like it best
torch_graphs    a network in functions of PyTorch
networks        a network beside these: numbers are compared, then runs are timed
"""

from inlay.bench.report import ROUNDS, Line, Report, bench

__all__ = ["ROUNDS", "Line", "Report", "bench"]
