"""Import of ONNX models: from a file to a `Network` in which every dim is a number and constants are folded.

Data flow, from file to network:

    parsing           bytes to a `ParsedModel`: size limits, opset conversion, ONNX's own checker
    functions         calls of the model's own functions become the nodes of these functions
    initializers      stored tensors as NumPy arrays, also those in files beside the model
    constraints       rules of ONNX on inputs of nodes that its shape inference does not check
    node_inference    dims and types of one node's results, by ONNX's shape inference and those rules
    compound_weights   constants in compound formats, such as ggml's, in place of those of the model
    cache_updates     nodes TensorScatter that update caches, and the inputs with their positions
    contrib_inference  dims and types of results of ONNX Runtime's own operators
    constant_folding  results of nodes whose inputs are all constant, within bounds of bytes and operations
    importer          `GraphImporter`: nodes in order, with shape inference, constant folding and If
    symbolic_inference  dims of all tensors of a model with open dims, by their names
    regions           nodes that only the fallback engine computes: their types, and the regions that they form
    reading           `load`: binds open dims, runs the importer, then the passes of `graph.passes`

Glossary:

    opset             version of ONNX's operators, a number (ONNX, "Operators")
    initializer       tensor that the model stores, such as weights (onnx.proto, GraphProto.initializer)
    external data     initializer whose bytes are in another file (ONNX, "External Data")
    open dim          extent that the model leaves to the caller, named or not (onnx.proto, TensorShapeProto.Dimension)
    shape inference   computing the dims of results from those of inputs (`onnx.shape_inference.infer_node_outputs`)
    constant folding  computing a node at import because all of its inputs are constant
"""
