"""Passes: rewrites and analyses of a network before its formats are chosen.

Data flow. `simplify_network` runs passes on a `Network`, whose nodes are ONNX's operators, in the order of `PATTERNS`:

    rewriting            the mechanism: a rule replaces nodes one by one, then dead nodes are removed
    precision            float16 and bfloat16 become float32
    block_products       products with weights of few bits in blocks become BlockMatMul, whose weights stay integers
    quantized_operators  QLinearConv and the like become DequantizeLinear, an f32 operator, QuantizeLinear
    quantization         operators between DequantizeLinear and QuantizeLinear become operators on integers
        quantized_tensors  tensors that a DequantizeLinear computes, with their scales and zero points
        quantized_motion   operators that move elements move integers
        lookup_tables      functions of one tensor of integers become tables
    dynamic_quantization  products of integers after DynamicQuantizeLinear become one operator each
    attention_operators  Attention and RotaryEmbedding become nodes that the other passes know
    expansions           an Expand of a mask is delayed; one before operators that broadcast is removed
    padding              a Pad is folded into the convolutions and poolings that read it
    patterns             no-ops are removed; activations in several nodes become one node; scales and shifts of channels
                         are folded into weights
    normalizations       LayerNormalization and RMSNormalization in several nodes become one node
    attention_products   scales, repeated heads and negated features of attention become parts of other operations
    common_subexpressions  equal nodes with equal inputs become one node

    simplification       `simplify_network`
    cache_updates        a cache of the maximum length, which TensorScatter updates, becomes one that grows
    group_query_attention  GroupQueryAttention that reads a state becomes nodes that the other passes know
    absent_positions     positions that are not written yet have no share in attention
    kept_states          states of decoding are written in place: `keep_states`, for sessions that have them

After lowering, passes run on an `OpGraph`, whose operations are primitives, views and references:

    elementwise_motion   element-wise operations move before reshapes
    concatenations       a concatenation reads the result of an earlier one that has its first sources
    value_ranges         bounds of the elements of each tensor
    range_guards         choice of the tensors whose bounds a run checks, so that no NaN or infinity is lost

Glossary:

    pattern      nodes that together compute one operation, and one that replaces them (LLVM: peephole optimization)
    no-op        node whose result is its input, such as Identity
    dead node    node whose results no output depends on (LLVM: dead code elimination)
    fusion       replacing several nodes by one
    value range  least and greatest possible element of a tensor (Moore, "Interval Analysis", 1966)
    guard        check in a run that the elements of a tensor are within a value range
"""

from typing import TYPE_CHECKING

from inlay.lazy_names import lazy_names

if TYPE_CHECKING:
    from inlay.graph.passes.simplification import PATTERNS, simplify_network

__all__ = ["PATTERNS", "simplify_network"]

__getattr__, __dir__ = lazy_names(__name__, dict.fromkeys(__all__, "inlay.graph.passes.simplification"))
