"""Passes that rewrite or analyze a network before its formats are chosen.

On a `Network`, whose nodes are ONNX's operators; `simplified` runs them all, in the order of `PATTERNS`:

    rewriting       the mechanism: nodes replaced one by one by a rule, dead nodes left out
    precision       float16 and bfloat16 become float32
    patterns        nodes that change nothing go; LayerNormalization and activations that exports write in parts become
                    one node; scales and shifts of channels go into weights

On an `OpGraph`, whose operations are primitives, views and references:

    motion          element-wise operations move in front of reshapes, concatenations read the results of earlier ones
    value_ranges    bounds of the elements of each tensor
    range_guards    the tensors whose bounds a run checks, so that no NaN and no infinity can vanish
"""

from inlay.graph.network import Network
from inlay.graph.passes.patterns import fold_affine, fuse_activations, fuse_layer_normalizations, remove_noops
from inlay.graph.passes.precision import widen_narrow_floats

PATTERNS = (widen_narrow_floats, remove_noops, fuse_layer_normalizations, fuse_activations, fold_affine)
"""Every pattern, in the order in which `simplified` looks for them."""


def simplify_network(network: Network) -> Network:
    """The network with every pattern put together, and without the nodes that nothing needs.

    It computes the same as before, but for the rounding of a reordered sum.

    Operations that are put together are nodes of ONNX: Gelu, LayerNormalization, HardSwish, Swish and Mish, also where
    the network's opset is older than they are.
    """
    for pattern in PATTERNS:
        network = pattern(network)
    return network
