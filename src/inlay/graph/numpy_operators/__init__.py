"""Operators of ONNX in NumPy, for nodes that no primitive computes and that `onnx.reference` computes wrongly or not.

    call            one node with its arrays: attributes with defaults, inputs that may be left out, refusals
    moving          Slice, Pad, Gather, Scatter, Cast, Pow, quantization: elements moved and converted
    normalization   BatchNormalization, LayerNormalization, LRN, Softmax, Hardmax, LpNormalization; Reduce*
    pooling         MaxPool with indices, AveragePool, LpPool and their global forms; ConvTranspose
    sampling        Resize, Upsample, GridSample, RoiAlign
    recurrent       LSTM, GRU, RNN: lengths, clipping, all activations
    evaluation      a node computed by one of these functions, or by `onnx.reference` where that was compared

Source: ONNX, "Operators". Each function is compared with ONNX Runtime or PyTorch in
`tests/graph/test_numpy_operators.py`.
"""
