"""The benchmark: what a reorder costs beside a copy of the same bytes, and beside its peers.

`python -m benchmarks` runs it; `docs/benchmarks.md` says how it measures and how to read it. The modules, in the order
of the data flow; each imports only from those above it:

    machine     processors, caches, versions
    buffers     memory that is the same for everybody
    fitting     dims that make a reorder as large as a level of memory asks
    cases       what is moved: two formats, two types, dims for one of three sizes
    pairs       the pairs whose speed is promised, and the aims
    quantization  pairs of that test with scales, zero points and sums, and of 4-bit types
    families    the other pairs of oneDNN's own test of its reorder, and every table by its name
    drawn       pairs that once were weak, at sizes drawn at random
    passes      a reorder as strided copies, for the peers that know only those
    values      the values of scales and zero points, the same for everybody
    onednn_attributes  what oneDNN is told of them
    onednn      the C library as a peer
    eager       scaling and shifting by one operator of PyTorch per step
    peers       everybody who is measured, and the reason why somebody is not
    copies      the yardstick
    timing      rounds in which all take turns; medians, quartiles
    measure     one case: everybody's bytes compared, then everybody timed
    runs        one row per case, from one run or from several
    aims        what is aimed at, and whether a figure meets it
    misses      the reasons why cases miss an aim, from `misses.toml`
    startup     what is paid before and beside the move: import, compile, call
    record      the JSON file, written case by case
    report      tables
    chart       the picture
    output      where a record goes
    merge       tables and picture of earlier runs: a command of its own, `python -m benchmarks.merge`
    costs       import, compile and call alone: a command of its own, `python -m benchmarks.costs`
    descriptors what descriptors cost: a command of its own, `python -m benchmarks.descriptors`
    networks    networks with random weights
    network_piece    one network beside other runtimes, in a process of its own
    network_results  what was measured of networks, what is aimed at, and the reasons, from `network_misses.toml`
    network_table    networks beside other runtimes: a command of its own, `python -m benchmarks.network_table`

This file imports nothing, so that `startup_probe` can time `import inlay` alone.
"""
