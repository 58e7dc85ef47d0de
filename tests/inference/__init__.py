"""Tests of inference: layouts from tables and packers."""
