"""Measurement of run times, of the processors, and of the memory of this process.

The calls that are timed are parameters, so this package does not depend on layouts or kernels. The modules in the order
in which data flows through them:

    disturbance        spinning threads, time spent waiting for a processor, load of other processes
    interleaved        the clock; timing of several calls in alternation, round after round
    statistics         medians, interquartile ranges, ratios of measurements that are adjacent in time
    calibration        bandwidths of copies of increasing size, measured in slices
    timing_database    tables of measured values in the cache directory
    processors         the number of threads of this process that really run at once; limits of control groups
    memory             the number of bytes that this process can use

Glossary:

    round, turn      in one round every call gets one turn: a wait, untimed calls, a timed block of calls
    spinning         an idle thread that polls for work instead of sleeping (OpenMP, OMP_WAIT_POLICY=active)
    footprint        bytes of source plus destination of a copy
    streaming store  a store that bypasses the caches (x86: MOVNT, "non-temporal")
    share            the part of a processor's time that a thread of this process gets, from 0 to 1
    control group    the Linux mechanism that limits processors and memory of containers (cgroup v1 and v2)
"""
