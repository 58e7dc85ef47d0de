"""`simplify_network`: the passes on a `Network`, in a row."""

from inlay.graph.network import Network
from inlay.graph.passes.attention_operators import decompose_attention
from inlay.graph.passes.attention_products import broadcast_groups, hoist_scales, sign_rotations
from inlay.graph.passes.block_products import recognize_block_products
from inlay.graph.passes.common_subexpressions import merge_common_subexpressions
from inlay.graph.passes.dynamic_quantization import recognize_dynamic_quantization
from inlay.graph.passes.expansions import delay_expansions, remove_expansions
from inlay.graph.passes.normalizations import fuse_normalizations
from inlay.graph.passes.padding import fold_padding
from inlay.graph.passes.patterns import fold_affine, fuse_activations, remove_noops
from inlay.graph.passes.precision import widen_narrow_floats
from inlay.graph.passes.quantization import recognize_quantized
from inlay.graph.passes.quantized_operators import expand_quantized_operators

PATTERNS = (
    widen_narrow_floats,
    recognize_block_products,
    expand_quantized_operators,
    remove_noops,
    recognize_quantized,
    recognize_dynamic_quantization,
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
