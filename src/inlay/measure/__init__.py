"""Measuring time and processors: what is timed is passed in, so nothing here knows layouts or kernels.

`interleaved`       the clock; calls that take turns, round after round
`statistics`        medians, the range of the middle half, ratios of neighbors in time
`disturbance`       threads that still spin, time waiting for a processor, what other processes take
`timing_database`   what was measured, kept between processes in tables of keys and values
`calibration`       bandwidths of copies of growing footprints, a slice at a time
`processors`        how many threads of this process really run at once
`cgroups`           quotas and memory limits of Linux's control groups
`memory`            how many bytes this process can have
"""
