"""From a file of ONNX to a `Network`: every dim a number, constants folded.

initializers    tensors of a model as arrays, also those in files beside it
parsing         bytes to a model that was screened and checked, in an opset that is read
constraints     what ONNX says of the inputs of nodes and its shape inference leaves unchecked
walking         nodes one after the other: dims inferred, constants folded, branches of If taken
reading         `load`: open dims bound, the model walked, patterns put together
"""
