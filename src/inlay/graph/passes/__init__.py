"""Passes: rewrites and analyses of a network before its formats are chosen.

Data flow. `simplify_network` runs passes on a `Network`, whose nodes are ONNX's operators, in the order of `PATTERNS`:

    rewriting            the mechanism: a rule replaces nodes one by one, then dead nodes are removed
    precision            float16 and bfloat16 become float32
    attention_operators  Attention and RotaryEmbedding become nodes that the other passes know
    expansions           an Expand of a mask is delayed; one before operators that broadcast is removed
    padding              a Pad is folded into the convolutions and poolings that read it
    patterns             no-ops are removed; activations in several nodes become one node; scales and shifts of channels
                         are folded into weights
    normalizations       LayerNormalization and RMSNormalization in several nodes become one node
    attention_products   scales, repeated heads and negated features of attention become parts of other operations
    common_subexpressions  equal nodes with equal inputs become one node

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

from inlay.graph.network import Network
from inlay.graph.passes.attention_operators import decompose_attention
from inlay.graph.passes.attention_products import broadcast_groups, hoist_scales, sign_rotations
from inlay.graph.passes.common_subexpressions import merge_common_subexpressions
from inlay.graph.passes.expansions import delay_expansions, remove_expansions
from inlay.graph.passes.normalizations import fuse_normalizations
from inlay.graph.passes.padding import fold_padding
from inlay.graph.passes.patterns import fold_affine, fuse_activations, remove_noops
from inlay.graph.passes.precision import widen_narrow_floats

PATTERNS = (
    widen_narrow_floats,
    remove_noops,
    decompose_attention,
    delay_expansions,
    remove_expansions,
    fold_padding,
    fuse_normalizations,
    fuse_activations,
    fold_affine,
    hoist_scales,
    broadcast_groups,
    sign_rotations,
    merge_common_subexpressions,
)
"""Passes of `simplify_network`, in the order in which it runs them."""


def simplify_network(network: Network) -> Network:
    """Return the network with every pattern fused, and without nodes that no output needs.

    It computes the same as before, except for the rounding of reordered sums.

    The nodes that replace a pattern are ONNX's Gelu, LayerNormalization, RMSNormalization, HardSwish, Swish and Mish,
    even if the network's opset does not have them yet.
    """
    for pattern in PATTERNS:
        network = pattern(network)
    return network
