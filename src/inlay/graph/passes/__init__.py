"""Patterns: groups of nodes that stand for one operation, put together.

Each is a function from a network to a network that computes the same, but for the rounding of a reordered sum:

    narrow_floats_widened   float16 and bfloat16 become float32             precision
    without_noops           what gives what it takes is left out            nothing
    normalizations_whole    LayerNormalization in parts is whole            normalization
    activations_whole       Gelu, HardSwish, Swish, Mish are whole          activations
    affine_folded           scales and shifts of channels go into weights   affine

and `simplified` is all of them in that order.
"""

from inlay.graph.network import Network
from inlay.graph.passes.patterns import activations_whole as activations_whole
from inlay.graph.passes.patterns import affine_folded as affine_folded
from inlay.graph.passes.patterns import normalizations_whole as normalizations_whole
from inlay.graph.passes.patterns import without_noops as without_noops
from inlay.graph.passes.precision import narrow_floats_widened as narrow_floats_widened

PATTERNS = (narrow_floats_widened, without_noops, normalizations_whole, activations_whole, affine_folded)
"""Every pattern, in the order in which `simplified` looks for them."""


def simplified(network: Network) -> Network:
    """The network with every pattern put together, and without the nodes that nothing needs.

    Operations that are put together are nodes of ONNX: Gelu, LayerNormalization, HardSwish, Swish and Mish, also where
    the network's opset is older than they are.
    """
    for pattern in PATTERNS:
        network = pattern(network)
    return network
