"""The primitives of the oneAPI specification: one class per operation, created from descriptors, called on memory.

    conv = Convolution(src, weights, bias, strides=2, padding_l=1)    descriptors; `any` where the engine may choose
    conv.src_desc, conv.weights_desc, conv.dst_desc                   the formats that the engine chose
    dst = conv(src=..., weights=..., bias=...)                        compute on memory of these formats

A primitive class checks its arguments by the rules of the specification and builds an `Operation`. An engine (see
`engine`) chooses the formats that are `any` and returns an `Implementation`, which the call runs.

Formats that may be `any`, by the specification's table of format propagation:

    compute-intensive: convolution, deconvolution, inner product, matmul, recurrent networks
        forward and backward    any everywhere
    bandwidth-limited: pooling, normalizations, LRN, eltwise, shuffle, softmax, PReLU, resampling, reduction
        forward                 a concrete format for sources, any for the destination
        backward                the formats of the forward primitive for data, any for gradients
    reorder, concat, sum, binary
                                a concrete format for sources, any for the destination

The modules in the order in which data flows:

    algorithms           names of algorithms, with their formulas
    attributes           scales, zero points, post-operations and modes
    rules                `SIGNATURES`, the table of arguments, and the argument checks that all kinds share
    engine               `Operation`, the protocol of engines, and the registry that selects one
    panel_weights        products of few rows, with weights in panels of columns
    row_batches          batches of products of few rows with matrices as they are in memory
    block_weights        weights of products in compound formats, with one scale for each block
    reference_kernels    warnings about slow kernels
    recurrent_rules      the dims and types of the tensors of a recurrent network
    calls                the checks of attributes and of the arguments of a call
    primitive            `Primitive`, the base of all classes
    bandwidth_limited    eltwise, PReLU, softmax, shuffle, reduction
    products             inner product, matmul
    spatial              pooling, resampling, and the geometry of sliding windows
    convolution          convolution, deconvolution
    normalization        batch, layer and group normalization, LRN
    joining              concat, sum, binary
    recurrent, gated     recurrent networks: vanilla RNN and LSTM, those with update gates
    reorder              reorder, as a primitive
    dynamic_quantization, cache_write, table_lookup
                         kinds that the specification lacks
    operation_checks     the checks of an operation that comes from a file

Glossary, with the name in the specification or in oneDNN:

    kind                 the operation, such as `convolution` (`dnnl_primitive_kind_t`)
    prop_kind            the purpose of a primitive: inference, training, or a gradient (`dnnl_prop_kind_t`)
    direction            forward, backward, backward_data or backward_weights: the row of a kind in `SIGNATURES`
    argument             a named tensor of a primitive, such as src or diff_weights (`DNNL_ARG_*`)
    signature            the arguments that a primitive reads and writes, and its parameters
    any                  a format that the engine chooses (`dnnl_format_tag_any`)
    hint_forward         the forward primitive for which a backward primitive computes the gradient
    post-operation       an operation fused to the end of a primitive (`dnnl_post_ops_t`)
    values               the numbers of scales, zero points and post-operation operands; arguments of each call
    workspace            data that a forward primitive of training writes for its backward primitive
    scratchpad           temporary memory of one run
    implementation       the kernel that an engine selected (`dnnl_primitive_desc_t`); impl is its name
    reference kernel     an implementation that supports every format and is optimized for none
    companion engine     an engine that adds operations to another one and runs on its threads

Source: oneAPI specification, "Primitives", "Memory format propagation" and "Primitive attributes".
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
