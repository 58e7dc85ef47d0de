"""Operators of ONNX in NumPy, for nodes that no primitive computes and `onnx.reference` computes wrongly or not at all.

Data flow, from node to results:

    evaluation      `compute_node`: calls a function of this package, or `onnx.reference` where that was compared
    call            `OperatorCall`: a node with its arrays; attributes with defaults, optional inputs, errors
    data_movement   Slice, Pad, Gather, Scatter, Cast, Pow, quantization
    normalization   normalizations by batch, layer, instance, group, RMS; LRN, Softmax, Hardmax; reductions
    pooling         MaxPool with indices, AveragePool, LpPool and their global forms; ConvTranspose
    products        MatMul, Gemm, Einsum, Det
    convolution     Conv, DeformConv, CausalConvWithState; Col2Im, MaxUnpool
    quantized       products and convolutions of 8-bit integers, DynamicQuantizeLinear
    attention       Attention, RotaryEmbedding, LinearAttention
    signals         DFT, STFT, windows, MelWeightMatrix
    losses          NegativeLogLikelihoodLoss, SoftmaxCrossEntropyLoss
    sampling        Resize, Upsample, GridSample, AffineGrid, RoiAlign
    recurrent       LSTM, GRU, RNN with sequence lengths, clipping and all activations

Each function is compared with ONNX Runtime or PyTorch in `tests/graph/test_numpy_operators.py` and
`tests/graph/test_numpy_operator_peers.py`.

Glossary:

    node, attribute   call of an operator in a network, and its constant parameters (ONNX IR specification)
    opset             version of ONNX's operators, a number
    onnx.reference    ONNX's evaluator in Python, which documents the operators (`onnx.reference.ReferenceEvaluator`)
    tap               element of a window, or one of the elements that an interpolation combines

Source: ONNX, "Operators".
"""
