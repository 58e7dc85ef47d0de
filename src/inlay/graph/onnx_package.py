"""The package onnx, or the error that names the command that installs it.

What reads models imports these modules from here, so that a missing package is one error with one text.
"""

from inlay.errors import MissingExtra

try:
    import onnx as onnx
    from google.protobuf.message import DecodeError as DecodeError
    from onnx import checker as checker
    from onnx import defs as defs
    from onnx import helper as helper
    from onnx import numpy_helper as numpy_helper
    from onnx import shape_inference as shape_inference
    from onnx import version_converter as version_converter
except ImportError:
    raise MissingExtra("onnx is not installed: pip install 'inlay[onnx]'") from None
