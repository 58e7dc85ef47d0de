"""The function of each primitive in each direction.

>>> TABLE["softmax", "forward"].__module__
'inlay.engine.reference.softmax'
"""

from collections.abc import Mapping
from types import MappingProxyType

from inlay.engine.reference import (
    binary,
    convolution,
    deconvolution,
    eltwise,
    lrn,
    moving,
    normalization,
    pooling,
    prelu,
    products,
    recurrent_formulas,
    reduction,
    resampling,
    softmax,
    sparse_products,
)
from inlay.engine.reference.arrays import Formula
from inlay.primitives.signatures import RECURRENT, Direction

TABLE: Mapping[tuple[str, Direction], Formula] = MappingProxyType(
    {
        ("convolution", "forward"): convolution.forward,
        ("convolution", "backward_data"): convolution.backward_data,
        ("convolution", "backward_weights"): convolution.backward_weights,
        ("deconvolution", "forward"): deconvolution.forward,
        ("deconvolution", "backward_data"): deconvolution.backward_data,
        ("deconvolution", "backward_weights"): deconvolution.backward_weights,
        ("inner_product", "forward"): products.inner_product,
        ("inner_product", "backward_data"): products.inner_product_backward_data,
        ("inner_product", "backward_weights"): products.inner_product_backward_weights,
        ("matmul", "forward"): products.matmul,
        ("pooling", "forward"): pooling.forward,
        ("pooling", "backward"): pooling.backward,
        ("batch_normalization", "forward"): normalization.batch_forward,
        ("batch_normalization", "backward"): normalization.batch_backward,
        ("layer_normalization", "forward"): normalization.layer_forward,
        ("layer_normalization", "backward"): normalization.layer_backward,
        ("group_normalization", "forward"): normalization.group_forward,
        ("group_normalization", "backward"): normalization.group_backward,
        ("lrn", "forward"): lrn.forward,
        ("lrn", "backward"): lrn.backward,
        ("eltwise", "forward"): eltwise.forward,
        ("eltwise", "backward"): eltwise.backward,
        ("shuffle", "forward"): moving.shuffle,
        ("shuffle", "backward"): moving.shuffle_backward,
        ("softmax", "forward"): softmax.forward,
        ("softmax", "backward"): softmax.backward,
        ("prelu", "forward"): prelu.forward,
        ("prelu", "backward"): prelu.backward,
        ("resampling", "forward"): resampling.forward,
        ("resampling", "backward"): resampling.backward,
        ("reduction", "forward"): reduction.forward,
        ("concat", "forward"): moving.concat,
        ("sum", "forward"): moving.weighted_sum,
        ("binary", "forward"): binary.forward,
        **{(kind, "forward"): recurrent_formulas.computed for kind in RECURRENT},
        **{(kind, "backward"): recurrent_formulas.gradients for kind in RECURRENT},
    }
)
"""Kind and direction to formula; reorder has none, since it is Inlay's own."""

SPARSE: Mapping[tuple[str, Direction], Formula] = MappingProxyType(
    {
        ("matmul", "forward"): sparse_products.matmul,
        ("inner_product", "forward"): sparse_products.inner_product,
    }
)
"""The formulas of products with one sparse factor."""
