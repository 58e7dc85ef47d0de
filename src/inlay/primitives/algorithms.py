"""The names of the algorithms of each primitive, as in oneDNN without its prefix, with their formulas.

Source: oneAPI specification, "Elementwise", "Binary", "Pooling", "Reduction" and the others; `dnnl_alg_kind_t`.
"""

from collections.abc import Mapping
from types import MappingProxyType

ELTWISE: Mapping[str, str] = MappingProxyType(
    {
        "relu": "x if x > 0 else alpha x",
        "tanh": "tanh(x)",
        "elu": "x if x > 0 else alpha (exp(x) - 1)",
        "square": "x^2",
        "abs": "|x|",
        "sqrt": "sqrt(x)",
        "linear": "alpha x + beta",
        "soft_relu": "log(1 + exp(alpha x)) / alpha",
        "hardsigmoid": "max(0, min(1, alpha x + beta))",
        "logistic": "1 / (1 + exp(-x))",
        "mish": "x tanh(log(1 + exp(x)))",
        "exp": "exp(x)",
        "gelu_tanh": "x / 2 (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3)))",
        "swish": "x / (1 + exp(-alpha x))",
        "log": "log(x)",
        "clip": "min(beta, max(alpha, x)), gradient 1 in (alpha, beta]",
        "clip_v2": "min(beta, max(alpha, x)), gradient 1 in (alpha, beta)",
        "pow": "alpha x^beta",
        "gelu_erf": "x / 2 (1 + erf(x / sqrt(2)))",
        "round": "the nearest integer, ties to even; no gradient",
        "hardswish": "x max(0, min(1, alpha x + beta))",
    }
)
"""The elementwise functions, each with its formula."""

USE_DST = tuple(f"{name}_use_dst_for_bwd" for name in ("relu", "tanh", "elu", "sqrt", "logistic", "exp", "clip_v2"))
"""Elementwise algorithms whose gradient is computed from the result, so that training need not store the source."""

ALL_ELTWISE = (*ELTWISE, *USE_DST)
"""All algorithms of eltwise."""

BINARY = ("add", "mul", "max", "min", "div", "sub", "ge", "gt", "le", "lt", "eq", "ne", "select")
"""The algorithms of binary; comparisons return 1 or 0, `select` returns src_0 where src_2 is not 0, else src_1."""

CONVOLUTION = ("direct", "winograd", "auto")
"""The algorithms of convolution and deconvolution; their results differ only in rounding."""

POOLING = ("max", "avg_include_padding", "avg_exclude_padding")
"""The algorithms of pooling; an average divides by the size of the window, or by its elements that are not padding."""

LRN = ("across_channels", "within_channel")
"""The algorithms of local response normalization."""

SOFTMAX = ("accurate", "log")
"""The algorithms of softmax; `log` is the logarithm of softmax."""

RESAMPLING = ("nearest", "linear")
"""The algorithms of resampling."""

REDUCTION = (
    "max",
    "min",
    "sum",
    "mul",
    "mean",
    "norm_lp_max",
    "norm_lp_sum",
    "norm_lp_power_p_max",
    "norm_lp_power_p_sum",
)
"""The algorithms of reduction."""
