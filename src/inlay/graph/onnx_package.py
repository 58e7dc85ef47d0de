"""Import point of the optional package onnx: one error, with one text, if it is not installed.

Modules that read models import onnx's submodules from here. If the package is missing, this module raises
`MissingExtra`, which names the command that installs it.
"""

from inlay.errors import MissingExtra

try:
    import onnx as onnx
    from google.protobuf.message import DecodeError as DecodeError
    from onnx import checker as checker
    from onnx import defs as defs
    from onnx import helper as helper
    from onnx import inliner as inliner
    from onnx import numpy_helper as numpy_helper
    from onnx import shape_inference as shape_inference
    from onnx import version_converter as version_converter
except ImportError:
    raise MissingExtra("onnx is not installed: pip install 'inlay[onnx]'") from None
