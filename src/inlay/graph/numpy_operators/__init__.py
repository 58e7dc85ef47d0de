"""Operators of ONNX in NumPy, for nodes that no primitive computes and `onnx.reference` computes wrongly or not at all.

Data flow, from node to results:

    evaluation      `compute_node`: calls a function of this package, or `onnx.reference` where that was compared
    call            `OperatorCall`: a node with its arrays; attributes with defaults, optional inputs, errors
    elementwise     arithmetic, comparisons, logic, bits, elementary functions, Where, Clip, Dropout
    activations     Relu, Gelu, Swish, Selu and others
    error_function  erf and erfc, for Erf and Gelu
    blockwise       functions of floats in blocks of elements, in a wider type
    shapes          Reshape, Transpose, Concat, Split, Expand, DepthToSpace and others that move whole tensors; BitCast
    selection       TopK, ArgMax, Unique, NonZero, OneHot, CumSum, NonMaxSuppression and others that compare or count
    random_numbers  RandomNormal, RandomUniform, Bernoulli, Multinomial
    data_movement   Slice, Pad, Gather, Scatter, Cast, Pow, quantization
    normalization   BatchNormalization, LayerNormalization, LRN, Softmax, Hardmax, LpNormalization; reductions
    pooling         MaxPool with indices, AveragePool, LpPool and their global forms; ConvTranspose
    sampling        Resize, Upsample, GridSample, RoiAlign
    recurrent       LSTM, GRU, RNN with sequence lengths, clipping and all activations

Each function is compared with ONNX Runtime or PyTorch in `tests/graph/test_numpy_operator_peers.py`, or in
`tests/graph/test_elementwise_operators.py`.
Each function is compared with ONNX Runtime or PyTorch in `tests/graph/test_numpy_operator_peers.py` and
`tests/graph/test_movement_peers.py`.

Glossary:

    node, attribute   call of an operator in a network, and its constant parameters (ONNX IR specification)
    opset             version of ONNX's operators, a number
    onnx.reference    ONNX's evaluator in Python, which documents the operators (`onnx.reference.ReferenceEvaluator`)
    tap               element of a window, or one of the elements that an interpolation combines

Source: ONNX, "Operators".
"""
