"""Tests of static quantization in 8 bits."""
