"""From ONNX's operators to operations: a table of operators, each with a rule, in files by family.

    draft              what one node becomes: operands, primitives and views that a rule puts
    convolutions ...   the rules of a family
    table              all of them by operator
    translation        `lowered`, which goes through the nodes

A rule computes exactly what ONNX says, in each opset from 7 on, or declines: then the node is a reference.
"""
