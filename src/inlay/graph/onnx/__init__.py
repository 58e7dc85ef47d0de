"""From a file of ONNX to a `Network`: parsing, initializers, shape inference, and constants folded."""
