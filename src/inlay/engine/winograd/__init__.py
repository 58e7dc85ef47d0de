"""Convolution by Winograd's algorithm, in machine code of our own that runs in the engine's threads."""

from inlay.engine.winograd.convolution import Team, WinogradConvolution, winograd
from inlay.engine.winograd.weights import is_transformed, transforming

__all__ = ["Team", "WinogradConvolution", "is_transformed", "transforming", "winograd"]
