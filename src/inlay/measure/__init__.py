"""Measuring time and processors: what is timed is passed in, so nothing here knows layouts or kernels.

`calibration`   bandwidths of copies of growing footprints, a slice at a time
`processors`    how many threads of this process really run at once
`cgroups`       quotas and memory limits of Linux's control groups
`memory`        how many bytes this process can have
"""
