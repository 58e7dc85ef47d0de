"""The primitives of the oneAPI specification: created for descriptors, `any` answered by an engine, called on memory.

    conv = Convolution(src, weights, bias, strides=2, padding_l=1)    any where the engine may choose
    conv.src_desc, conv.weights_desc, conv.dst_desc                   what it chose
    dst = conv(src=..., weights=..., bias=...)                        computed

Which formats may be any, the specification's table:

    compute-intensive: convolution, deconvolution, inner product, matmul, recurrent networks
        forward and backward    any everywhere
    bandwidth-limited: pooling, normalizations, LRN, eltwise, shuffle, softmax, PReLU, resampling, reduction
        forward                 the format that arrives for sources, any for the destination
        backward                the formats of forward for data, any for gradients
    reorder, concat, sum, binary
                                the formats that arrive for sources, any for the destination

Backward primitives take the forward one as `hint_forward`. Post-operations are in `primitives.attributes`.

The modules in the order in which data flows:

    algorithms           names of algorithms, with their formulas
    attributes           scales, zero points, post-operations and modes
    rules                `SIGNATURES`, the table of arguments, and the rules that all kinds share
    engine               `Operation`, the protocol of engines, and the choice of one
    recurrent_rules      the dims and types of the tensors of a recurrent network
    calls                the checks of attributes and of the arguments of a call
    primitive            `Primitive`, the base of all classes
    bandwidth_limited    eltwise, PReLU, softmax, shuffle, reduction
    products             inner product, matmul
    spatial              pooling, resampling, and the windows that walk over images
    convolution          convolution, deconvolution
    normalization        batch, layer and group normalization, LRN
    joining              concat, sum, binary
    recurrent, gated     recurrent networks: vanilla RNN and LSTM, those with update gates
    reorder              reorder, as a primitive

Source: oneAPI specification, "Primitives" and "Memory format propagation".
"""

from inlay.primitives.attributes import PrimitiveAttributes
from inlay.primitives.bandwidth_limited import (
    Eltwise,
    EltwiseBackward,
    PReLU,
    PReLUBackward,
    Reduction,
    Shuffle,
    ShuffleBackward,
    Softmax,
    SoftmaxBackward,
)
from inlay.primitives.convolution import (
    Convolution,
    ConvolutionBackwardData,
    ConvolutionBackwardWeights,
    Deconvolution,
    DeconvolutionBackwardData,
    DeconvolutionBackwardWeights,
)
from inlay.primitives.engine import get_engine, set_engine
from inlay.primitives.gated import (
    AUGRU,
    GRU,
    LBRAUGRU,
    LBRGRU,
    AUGRUBackward,
    GRUBackward,
    LBRAUGRUBackward,
    LBRGRUBackward,
)
from inlay.primitives.joining import Binary, Concat, Sum
from inlay.primitives.normalization import (
    LRN,
    BatchNormalization,
    BatchNormalizationBackward,
    GroupNormalization,
    GroupNormalizationBackward,
    LayerNormalization,
    LayerNormalizationBackward,
    LRNBackward,
)
from inlay.primitives.primitive import Primitive
from inlay.primitives.products import InnerProduct, InnerProductBackwardData, InnerProductBackwardWeights, MatMul
from inlay.primitives.recurrent import LSTM, LSTMBackward, VanillaRNN, VanillaRNNBackward
from inlay.primitives.reorder import Reorder
from inlay.primitives.spatial import Pooling, PoolingBackward, Resampling, ResamplingBackward

__all__ = [
    "AUGRU",
    "GRU",
    "LBRAUGRU",
    "LBRGRU",
    "LRN",
    "LSTM",
    "AUGRUBackward",
    "BatchNormalization",
    "BatchNormalizationBackward",
    "Binary",
    "Concat",
    "Convolution",
    "ConvolutionBackwardData",
    "ConvolutionBackwardWeights",
    "Deconvolution",
    "DeconvolutionBackwardData",
    "DeconvolutionBackwardWeights",
    "Eltwise",
    "EltwiseBackward",
    "GRUBackward",
    "GroupNormalization",
    "GroupNormalizationBackward",
    "InnerProduct",
    "InnerProductBackwardData",
    "InnerProductBackwardWeights",
    "LBRAUGRUBackward",
    "LBRGRUBackward",
    "LRNBackward",
    "LSTMBackward",
    "LayerNormalization",
    "LayerNormalizationBackward",
    "MatMul",
    "PReLU",
    "PReLUBackward",
    "Pooling",
    "PoolingBackward",
    "Primitive",
    "PrimitiveAttributes",
    "Reduction",
    "Reorder",
    "Resampling",
    "ResamplingBackward",
    "Shuffle",
    "ShuffleBackward",
    "Softmax",
    "SoftmaxBackward",
    "Sum",
    "VanillaRNN",
    "VanillaRNNBackward",
    "get_engine",
    "set_engine",
]
