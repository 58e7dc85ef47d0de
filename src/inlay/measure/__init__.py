"""Measuring time and processors: what is timed is passed in, so nothing here knows layouts or kernels.

Calls are timed in turns, their times become figures, and figures are kept for other processes:

    disturbance        threads that still spin, time waiting for a processor, what other processes take
    interleaved        the clock; calls that take turns, round after round
    statistics         medians, the range of the middle half, ratios of neighbors in time
    calibration        bandwidths of copies of growing footprints, a slice at a time
    timing_database    what was measured, kept between processes in tables of keys and values
    processors         how many threads of this process really run at once; quotas and limits of control groups
    memory             how many bytes this process can have
"""
