"""Operators of ONNX in NumPy, for nodes that no primitive computes.

Data flow, from node to results:

    evaluation      `compute_node`: calls the function of a node's operator
    call            `OperatorCall`: a node with its arrays; attributes with defaults, optional inputs, errors
    elementwise     arithmetic, comparisons, logic, bits, elementary functions, Where, Clip, Dropout
    activations     Relu, Gelu, Swish, Selu and others
    error_function  erf and erfc, for Erf and Gelu
    blockwise       functions of floats in blocks of elements, in a wider type
    shapes          Reshape, Transpose, Concat, Split, Expand, DepthToSpace and others that move whole tensors; BitCast
    selection       TopK, ArgMax, Unique, NonZero, OneHot, CumSum, NonMaxSuppression and others that compare or count
    random_numbers  RandomNormal, RandomUniform, Bernoulli, Multinomial
    data_movement   Slice, Pad, Gather, Scatter, Cast, Pow, quantization
    normalization   normalizations by batch, layer, instance, group, RMS; LRN, Softmax, Hardmax; reductions
    pooling         MaxPool with indices, AveragePool, LpPool and their global forms; ConvTranspose
    products        MatMul, Gemm, Einsum, Det
    convolution     Conv, DeformConv, CausalConvWithState; Col2Im, MaxUnpool
    quantized       products and convolutions of 8-bit integers, DynamicQuantizeLinear
    attention       Attention, RotaryEmbedding, LinearAttention
    signals         DFT, STFT, windows, MelWeightMatrix
    losses          NegativeLogLikelihoodLoss, SoftmaxCrossEntropyLoss
    sampling        Resize, Upsample, GridSample, AffineGrid, RoiAlign, MaxRoiPool
    recurrent       LSTM, GRU, RNN with sequence lengths, clipping and all activations

Each function is compared with ONNX Runtime or PyTorch in `tests/graph/test_numpy_operator_peers.py`,
`test_numpy_product_peers.py`, `test_movement_peers.py` and `test_elementwise_operators.py`.

Glossary:

    node, attribute   call of an operator in a network, and its constant parameters (ONNX IR specification)
    opset             version of ONNX's operators, a number
    tap               element of a window, or one of the elements that an interpolation combines

Source: ONNX, "Operators".
"""
