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

Rooms in the order that data flows: `signatures`, the table of arguments; `attributes` and `algorithms`, what else can
be said; `operation`, what an engine is asked and answers; `engines`, which one; `rules`, `windows` and `values`, what
is refused and derived; `created` and `calls`, how an engine is asked and a call is checked; `primitive`, what all
classes share; `weighted`, `mapped`, `normalizing`, what some share; then the classes by kind.

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
