"""Inlay as an engine: reorders, and convolutions by Winograd's algorithm, in machine code of our own.

    get_engine("inlay").create(reorder)                     layouts by compiled code, sparse memory by conversion
    get_engine("inlay").beside(onednn).create(winograd)     on the threads of another engine

In the order that data flows: `reorders`; Winograd convolution, whose weights have a format of their own (`weights`) and
whose machine code is put together from functions (`emit`), is `convolution`; `engine`.
"""

from inlay.engines.inlay.engine import InlayEngine
from inlay.engines.inlay.winograd_code import is_transformed, transforming
from inlay.engines.inlay.winograd_convolution import WinogradConvolution, winograd

__all__ = ["InlayEngine", "WinogradConvolution", "is_transformed", "make_engine", "transforming", "winograd"]


def make_engine() -> InlayEngine:
    """The engine without threads of another one, as `primitives.engines` asks for it."""
    return InlayEngine()
