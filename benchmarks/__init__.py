"""The benchmark: what a reorder costs beside a copy of the same bytes, and beside its peers.

`python -m benchmarks` runs it; `docs/benchmarks.md` says how it measures and how to read it. The modules, in the order
of the data flow; each imports only from those above it:

    machine     processors, caches, versions
    buffers     memory that is the same for everybody
    fitting     dims that make a reorder as large as a level of memory asks
    cases       what is moved: two formats, two types, dims for one of three sizes
    pairs       the pairs whose speed is promised, and the aims
    families    pairs of oneDNN's own test of its reorder
    passes      a reorder as strided copies, for the peers that know only those
    onednn      the C library as a peer
    peers       everybody who is measured, and the reason why somebody is not
    copies      the yardstick
    timing      rounds in which all take turns; medians, quartiles
    measure     one case: everybody's bytes compared, then everybody timed
    runs        one row per case, from one run or from several
    aims        what is aimed at, and whether a figure meets it
    startup     what is paid before and beside the move: import, compile, call
    record      the JSON file, written case by case
    report      tables
    chart       the picture
    output      where a record goes
    merge       tables and picture of earlier runs: a command of its own, `python -m benchmarks.merge`
    descriptors what descriptors cost: a command of its own, `python -m benchmarks.descriptors`

This file imports nothing, so that `startup_probe` can time `import inlay` alone.
"""
