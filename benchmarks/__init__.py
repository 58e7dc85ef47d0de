"""The benchmark: the run time of reorders beside a copy of the same bytes and beside other libraries.

`python -m benchmarks` runs it; `docs/benchmarks.md` tells how it measures and how to read it. Data flows through the
modules in this order; times, tables and the picture are those of `inlay.bench`:

    cases, drawn    pairs of formats and types from `cases.toml`, or at random sizes; a size makes them cases
    buffers         memory that all contenders share, and copies of it on several threads
    peers           the contenders that are installed
    rounds          the times of one case
    record          machine, versions and times in a JSON file; a row for each case
    aims            aims, and the reasons of misses from `misses.toml` and `network_misses.toml`
    report          tables and the picture
    startup         importing, compiling and calling, in fresh processes (`startup_probe`)
    descriptors     creating, viewing and comparing descriptors
    networks        networks beside other runtimes
    precision       six networks in bf16, f16 and int8 beside other runtimes in the same types
    decoding        a decoder with a cache, token by token, beside ONNX Runtime
    busy            networks on processors that other programs share

This file imports nothing, so that `startup_probe` can time `import inlay` alone.
"""
