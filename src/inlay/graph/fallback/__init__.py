"""Fallback engine: ONNX Runtime computes nodes that no primitive computes, adjacent nodes together in one session.

Data flow, from the operations of a network to a call:

    library       import of the optional package onnxruntime, and its exceptions
    support       nodes that are left to NumPy: types, random numbers, operators that ONNX Runtime computes otherwise
    grouping      groups of adjacent nodes that one session may compute
    serialized_models  operators of the nodes in a serialized model, read without the package onnx
    models        a model of ONNX for the nodes of a group
    sessions      `FallbackSession`: a session bound to buffers of Inlay, without copies
    assignment    `assign_fallback`: the pass that chooses ONNX Runtime or NumPy for each node

Glossary:

    session       a model that is loaded and optimized (`onnxruntime.InferenceSession`)
    I/O binding   addresses of a session's inputs and outputs, given before a run (`onnxruntime.IOBinding`)
    spinning      waiting of an idle thread in a loop, which takes a processor (`session.intra_op.allow_spinning`)

Source: ONNX Runtime, "Python API", "Thread management".
"""
