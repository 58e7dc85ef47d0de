"""The names of algorithms, as in oneDNN without its prefix, with what each computes.

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
"""The functions of eltwise, each with its formula."""

USE_DST = tuple(f"{name}_use_dst_for_bwd" for name in ("relu", "tanh", "elu", "sqrt", "logistic", "exp", "clip_v2"))
"""Functions whose gradient is computed from what they gave, so that the source need not be kept."""

ALL_ELTWISE = (*ELTWISE, *USE_DST)
"""Every algorithm of eltwise."""

BINARY = ("add", "mul", "max", "min", "div", "sub", "ge", "gt", "le", "lt", "eq", "ne", "select")
"""Those of binary; comparisons give 1 and 0, `select` takes src_0 where src_2 is not 0, else src_1."""

CONVOLUTION = ("direct", "winograd", "auto")
"""Those of convolution and deconvolution: all give the same, with other rounding."""

POOLING = ("max", "avg_include_padding", "avg_exclude_padding")
"""Those of pooling: averages divide by the whole window, or by its elements that are not padding."""

LRN = ("across_channels", "within_channel")
"""Those of local response normalization."""

SOFTMAX = ("accurate", "log")
"""Those of softmax; `log` is the logarithm of it."""

RESAMPLING = ("nearest", "linear")
"""Those of resampling."""

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
"""Those of reduction."""
