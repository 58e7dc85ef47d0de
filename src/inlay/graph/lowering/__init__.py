"""Lowering: from a `Network` of ONNX's operators to an `OpGraph`, by a rule for each operator.

Data flow, from node to operations:

    translation      `lower_network`: calls the rule of each node's operator; `TABLE` has all rules
    context          `LoweringContext`: inputs of the node that a rule reads; operations and tensors that it emits
    broadcasting     the primitive binary, in dims for which oneDNN has machine code
    elementwise      rules of functions of one element, and of arithmetic on several tensors
    data_movement    rules of operators that move elements: views, concatenation, split, shuffle
    spatial          rules of convolutions, poolings and resizes
    normalizations   rules of normalizations, softmax and reductions
    products         rules of matrix products and recurrent layers
    einsum           rule of Einsum: a matrix product between permutations of axes
    quantized        rules of operators on integers whose scales and zero points the model states
    dynamic_quantization  rules of operators whose scales and zero points the network computes
    selection        rules of Where: guards against NaN, and constant masks
    block_quantized  rules of matrix products whose weights have a scale for each group of elements
    kept_states      rule of writes into states of decoding

A rule computes exactly what ONNX specifies, in each opset from 7 on, or raises `UnsupportedNode`. Then the node becomes
a reference operation, which NumPy computes.

Glossary:

    lowering      replacing operators by operations nearer to the machine, as in MLIR and TVM
    rule          function from a `LoweringContext` to the operands that hold the node's results
    operand       argument of a primitive: a tensor by name, or a constant array
    primitive     computation that an engine implements in one or several formats (oneDNN, "Primitives")
    view          operation at no cost that describes the same elements otherwise (oneDNN: dnnl_memory_desc_reshape,
                  dnnl_memory_desc_permute_axes, dnnl_memory_desc_init_submemory)
    reference     operation that NumPy computes, because no primitive does so exactly
"""
