"""Measuring time and processors: what is timed is passed in, so nothing here knows layouts or kernels."""
