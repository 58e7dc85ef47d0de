"""Timing: a reorder beside a copy of as many bytes, a network beside other runtimes, the machine model.

`inlay bench`, `examples/demo.py` and `python -m benchmarks` share these modules. Data flows through them in this order:

    measurement     the record of a comparison: times, figures, tables
    contenders      the same reorder as a call of Inlay, oneDNN, NumPy and PyTorch
    reorders        `bench`: one reorder
    machine_report  the machine model beside what the operating system reports
    precision       what each runtime is asked for in a precision, and the run in f64 as the measure of errors
    runtimes        ONNX Runtime, OpenVINO and PyTorch, each in its configurations
    crashes         runtimes that crash, found in processes of their own
    networks        `bench_network`: one network

Terms:

    contender   a library that takes part in a comparison; one that leaves other bytes or numbers than Inlay does not
    round       one turn of each contender (`inlay.measure.interleaved`); ratios are formed within rounds
    best copy   the fastest copy of as many bytes, measured in the same rounds: the yardstick, 100 %, as `STREAM` is
                for memory bandwidth (McCalpin, 1995)
"""

from inlay.bench.reorders import ROUNDS, Report, bench

__all__ = ["ROUNDS", "Report", "bench"]
