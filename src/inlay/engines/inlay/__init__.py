"""Inlay as an engine: reorders, and convolutions by Winograd's algorithm, in machine code of our own.

    get_engine("inlay").create(reorder)                     layouts by compiled code, sparse memory by conversion
    get_engine("inlay").beside(onednn).create(winograd)     on the threads of another engine

The modules in the order in which data flows:

    winograd_tables         the matrices of F(4x4, 3x3), and the words that the machine code is told
    winograd_code           the machine code, and the format of its weights
    winograd_convolution    a convolution: sizes, division of the work, calls
    engine                  reorders, and `InlayEngine`
"""

from inlay.engines.inlay.engine import InlayEngine
from inlay.engines.inlay.winograd_code import is_transformed, transforming
from inlay.engines.inlay.winograd_convolution import WinogradConvolution, winograd

__all__ = ["InlayEngine", "WinogradConvolution", "is_transformed", "make_engine", "transforming", "winograd"]


def make_engine() -> InlayEngine:
    """The engine without threads of another one, as `primitives.engine` asks for it."""
    return InlayEngine()
