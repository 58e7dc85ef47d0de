"""Operators of ONNX in NumPy, for nodes that no primitive computes and that `onnx.reference` computes wrongly or not.

    call            one node with its arrays: attributes with defaults, inputs that may be left out, refusals
    indexing        Gather, GatherElements, GatherND, ScatterElements, ScatterND: indices are checked
    padding         Pad with negative padding
    shaping         Slice, Unsqueeze
    types           element types of ONNX, and the range of each
    quantization    QuantizeLinear, DequantizeLinear of every opset
    casting         Cast, CastLike
    reductions      Reduce*, of integers too
    powers          Pow
    normalization   BatchNormalization, LayerNormalization, LRN, Softmax, Hardmax, LpNormalization
    windows         positions of a sliding window, from ONNX's attributes
    pooling         MaxPool with indices, AveragePool, LpPool and their global forms
    convolution     ConvTranspose in groups
    sampling        GridSample, RoiAlign
    resizing        Resize, Upsample
    recurrent       LSTM, GRU, RNN: lengths, clipping, all activations
    table           operator to function

Source: ONNX, "Operators". Each function is compared with ONNX Runtime or PyTorch in `tests/test_numpy_operators.py`.
"""
