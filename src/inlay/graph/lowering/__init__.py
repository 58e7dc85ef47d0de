"""From a `Network` to an `OpGraph`: a rule for each of ONNX's operators, in modules by family.

    draft            what one node becomes: operands, primitives and views that a rule puts
    elementwise      functions of one element, arithmetic of several tensors
    spatial          convolutions, pooling, resizes
    normalizations   normalizations, softmax, reductions
    products         products of matrices, recurrent layers
    moving           what takes elements as they are: views, concatenation, parts, shuffles
    translation      the table of all rules, and `lowered`, which goes through the nodes

A rule computes exactly what ONNX says, in each opset from 7 on, or declines: then the node is a reference.
"""
