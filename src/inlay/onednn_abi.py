"""The C interface of oneDNN 3 that Inlay uses: functions, creators of primitive descriptors, arguments, enumerations.

The content of the library's headers is in tables here, which descriptors, the oneDNN engine and the benchmarks use. A
line of a table is a name and one letter or word for each argument:

    engine_create  o i z                    dnnl_engine_create(dnnl_engine_t *, int, size_t)
    eltwise forward: prop algorithm src dst alpha beta
                                            dnnl_eltwise_forward_primitive_desc_create(out, engine, prop_kind, ...)

The words of creators are the arguments and parameters of `primitives.rules.SIGNATURES`. Every creator also has the
arguments `out` and `engine` before them, and attributes after them.

Source: `dnnl.h`, `dnnl_types.h`, `dnnl_common.h` and `dnnl_common_types.h` of oneDNN 3.2 and 3.13, which have the same
content here.
"""

from collections.abc import Callable, Mapping
from ctypes import CDLL, Structure, c_char_p, c_float, c_int, c_int32, c_int64, c_size_t, c_uint, c_void_p
from types import MappingProxyType
from typing import Any

_LETTERS: Mapping[str, Any] = {
    "o": c_void_p,  # the address of an output argument for a new handle
    "p": c_void_p,  # a handle, or the address of an array
    "i": c_int,
    "I": c_int32,
    "u": c_uint,
    "d": c_int64,
    "z": c_size_t,
    "f": c_float,
    "s": c_char_p,
}

_STATUS = "i"
_FUNCTIONS = """
version                                   -> p
get_effective_cpu_isa                     -> i
engine_get_count            i             -> z
engine_create               o i z
engine_destroy              p
stream_create               o p u
stream_wait                 p
stream_destroy              p
memory_desc_create_with_strides           o i p i p
memory_desc_create_with_string_tag        o i p i s
memory_desc_create_with_tag               o i p i i
memory_desc_create_with_csr_encoding      o i p i d i i
memory_desc_create_with_coo_encoding      o i p i d i
memory_desc_create_with_packed_encoding   o i p i d
memory_desc_create_host_scalar            o i
memory_desc_create_with_blob              o p
memory_desc_get_blob        p p p
memory_desc_clone           o p
memory_desc_destroy         p
memory_desc_equal           p p
memory_desc_get_size        p             -> z
memory_desc_get_size_v2     p i           -> z
memory_desc_query           p i p
memory_desc_query_v2        p i i p
memory_desc_reshape         o p i p
memory_create               o p p p
memory_create_v2            o p p i p
memory_create_host_scalar   o p p
memory_set_data_handle      p p
memory_destroy              p
primitive_attr_create                     o
primitive_attr_destroy                    p
primitive_attr_set_scratchpad_mode        p i
primitive_attr_set_fpmath_mode            p i
primitive_attr_set_scales_mask            p i i
primitive_attr_set_scales                 p i i i p i
primitive_attr_set_zero_points_mask       p i i
primitive_attr_set_zero_points            p i i i p i
primitive_attr_set_post_ops               p p
primitive_attr_set_rnn_data_qparams       p f f
primitive_attr_set_rnn_weights_qparams    p d i p
primitive_attr_set_rnn_weights_projection_qparams p d i p
post_ops_create             o
post_ops_destroy            p
post_ops_append_sum         p f I i
post_ops_append_eltwise     p i f f
post_ops_append_binary      p i p
post_ops_append_prelu       p i
post_ops_append_dw          p i i i d d d
primitive_desc_next_impl    p
primitive_desc_query        p i i p
primitive_desc_query_md     p i i         -> p
primitive_desc_destroy      p
primitive_create            o p
primitive_execute           p p i p
primitive_destroy           p
reorder_primitive_desc_create             o p p p p p
concat_primitive_desc_create              o p p i i p p
sum_primitive_desc_create                 o p p i p p p
"""

_WINDOW = "strides dilations padding_l padding_r"
_GATES = "src_layer src_iter weights_layer weights_iter bias dst_layer dst_iter"
_GATES_DIFF = " ".join(f"diff_{name}" for name in _GATES.split())
_ATTENTIVE = "src_layer src_iter attention weights_layer weights_iter bias dst_layer dst_iter"
_ATTENTIVE_DIFF = " ".join(f"diff_{name}" for name in _ATTENTIVE.split())
_LSTM = (
    "src_layer src_iter src_iter_c weights_layer weights_iter weights_peephole weights_projection bias "
    "dst_layer dst_iter dst_iter_c"
)
_LSTM_DIFF = " ".join(f"diff_{name}" for name in _LSTM.split())

_CREATORS = f"""
convolution forward: prop algorithm src weights bias dst {_WINDOW}
convolution backward_data: algorithm diff_src weights diff_dst {_WINDOW} hint
convolution backward_weights: algorithm src diff_weights diff_bias diff_dst {_WINDOW} hint
deconvolution forward: prop algorithm src weights bias dst {_WINDOW}
deconvolution backward_data: algorithm diff_src weights diff_dst {_WINDOW} hint
deconvolution backward_weights: algorithm src diff_weights diff_bias diff_dst {_WINDOW} hint
inner_product forward: prop src weights bias dst
inner_product backward_data: diff_src weights diff_dst hint
inner_product backward_weights: src diff_weights diff_bias diff_dst hint
matmul: src weights bias dst
vanilla_rnn forward: prop activation direction {_GATES} flags alpha beta
vanilla_rnn backward: prop activation direction {_GATES} {_GATES_DIFF} flags alpha beta hint
lstm forward: prop direction {_LSTM} flags
lstm backward: prop direction {_LSTM} {_LSTM_DIFF} flags hint
gru forward: prop direction {_GATES} flags
gru backward: prop direction {_GATES} {_GATES_DIFF} flags hint
lbr_gru forward: prop direction {_GATES} flags
lbr_gru backward: prop direction {_GATES} {_GATES_DIFF} flags hint
augru forward: prop direction {_ATTENTIVE} flags
augru backward: prop direction {_ATTENTIVE} {_ATTENTIVE_DIFF} flags hint
lbr_augru forward: prop direction {_ATTENTIVE} flags
lbr_augru backward: prop direction {_ATTENTIVE} {_ATTENTIVE_DIFF} flags hint
pooling forward: prop algorithm src dst strides kernel dilations padding_l padding_r
pooling backward: algorithm diff_src diff_dst strides kernel dilations padding_l padding_r hint
batch_normalization forward: prop src dst epsilon flags
batch_normalization backward: prop diff_src diff_dst src epsilon flags hint
layer_normalization forward: prop src dst statistics epsilon flags
layer_normalization backward: prop diff_src diff_dst src statistics epsilon flags hint
layer_normalization forward v2: prop src dst statistics scale_type epsilon flags
layer_normalization backward v2: prop diff_src diff_dst src statistics diff_scale_type scale_type epsilon flags hint
group_normalization forward: prop src dst groups epsilon flags
group_normalization backward: prop diff_src diff_dst src groups epsilon flags hint
lrn forward: prop algorithm src dst local_size alpha beta k
lrn backward: algorithm diff_src diff_dst src local_size alpha beta k hint
eltwise forward: prop algorithm src dst alpha beta
eltwise backward: algorithm diff_src diff_dst data alpha beta hint
shuffle forward: prop src dst axis group_size
shuffle backward: diff_src diff_dst axis group_size hint
softmax forward: prop algorithm src dst axis
softmax backward: algorithm diff_src diff_dst dst axis hint
prelu forward: prop src weights dst
prelu backward: src weights diff_src diff_weights diff_dst hint
resampling forward: prop algorithm factors src dst
resampling backward: algorithm factors diff_src diff_dst hint
reduction: algorithm src dst p eps
binary: algorithm src_0 src_1 dst
binary v2: algorithm src_0 src_1 src_2 dst
"""

DIMS_WORDS = frozenset(("strides", "dilations", "padding_l", "padding_r", "kernel"))
"""Words of creators for arrays of one integer per spatial axis."""

NOT_DESCRIPTORS: Mapping[str, Any] = MappingProxyType(
    {
        **dict.fromkeys(
            ("prop", "algorithm", "activation", "direction", "axis", "scale_type", "diff_scale_type"), c_int
        ),
        **dict.fromkeys(("group_size", "local_size", "groups"), c_int64),
        **dict.fromkeys(("alpha", "beta", "k", "p", "eps", "epsilon"), c_float),
        **dict.fromkeys((*DIMS_WORDS, "factors", "hint"), c_void_p),
        "flags": c_uint,
    }
)
"""Types of the words of creators that are not descriptors."""


def _functions() -> dict[str, tuple[tuple[Any, ...], Any]]:
    """Return argument types and result type of each function, from the tables above."""
    table = {}
    for line in _FUNCTIONS.strip().splitlines():
        arguments, _, result = line.partition("->")
        name, *letters = arguments.split()
        table[f"dnnl_{name}"] = (tuple(_LETTERS[c] for c in letters), _LETTERS[result.strip() or _STATUS])
    for (kind, direction, version), words in CREATORS.items():
        types = tuple(NOT_DESCRIPTORS.get(word, c_void_p) for word in words)
        table[creator_name(kind, direction, version)] = ((c_void_p, c_void_p, *types, c_void_p), c_int)
    return table


def creator_name(kind: str, direction: str, version: str) -> str:
    """Return the name of the function for a row of `CREATORS`.

    >>> creator_name("binary", "", "v2")
    'dnnl_binary_primitive_desc_create_v2'
    """
    return "_".join(filter(None, ("dnnl", kind, direction, "primitive_desc_create", version)))


def _creators() -> dict[tuple[str, str, str], tuple[str, ...]]:
    """Return the words of each creator, from the table above."""
    table = {}
    for line in _CREATORS.strip().splitlines():
        head, words = line.split(":")
        kind, *rest = head.split()
        version = "v2" if "v2" in rest else ""
        table[kind, "".join(word for word in rest if word != "v2"), version] = tuple(words.split())
    return table


CREATORS: Mapping[tuple[str, str, str], tuple[str, ...]] = MappingProxyType(_creators())
"""Words for the arguments of each creator, by kind, direction ("" if there is only one) and version ("" or "v2")."""

FUNCTIONS: Mapping[str, tuple[tuple[Any, ...], Any]] = MappingProxyType(_functions())
"""Argument types and result type of each function, by name; most results are a status."""


def function(library: CDLL, name: str) -> Any:
    """Return the function `dnnl_{name}` of a library, or None if the library lacks it.

    The result is a new object with the types of `FUNCTIONS`, so other users of `library` are not affected.
    """
    if not hasattr(library, f"dnnl_{name}"):
        return None
    entry = library[f"dnnl_{name}"]
    entry.argtypes, entry.restype = FUNCTIONS[f"dnnl_{name}"]
    return entry


def functions(library: CDLL) -> dict[str, Callable[..., Any]]:
    """Return the functions of `FUNCTIONS` that a library has, as `function` does, by name without `dnnl_`."""
    names = (name.removeprefix("dnnl_") for name in FUNCTIONS)
    return {name: entry for name in names if (entry := function(library, name)) is not None}


def _enumerate_codes(first: int, names: str) -> dict[str, int]:
    """Return consecutive codes of names that are separated by spaces, from `first` on."""
    return {name: first + i for i, name in enumerate(names.split())}


SUCCESS, OUT_OF_MEMORY, INVALID_ARGUMENTS, UNIMPLEMENTED, LAST_IMPL_REACHED, RUNTIME_ERROR = range(6)
"""Codes of statuses (`dnnl_status_t`); other codes are failures, too."""

CPU = 1
"""Code of the engine kind CPU (`dnnl_engine_kind_t`)."""

IN_ORDER = 1
"""Flag of streams that execute in order (`dnnl_stream_flags_t`)."""

MAX_NDIMS = 12
"""Number of entries of every array of dims (`DNNL_MAX_NDIMS`)."""

DIMS = c_int64 * MAX_NDIMS
"""Type of arrays of dims or strides (`dnnl_dims_t`)."""

RUNTIMES = {1: "sequential", 2: "omp", 4: "tbb", 8: "threadpool", 512: "sycl"}
"""Name of the CPU runtime, by the code in the version of the library."""

PROP_KINDS = {
    "forward_training": 64,
    "forward_inference": 96,
    "backward": 128,
    "backward_data": 160,
    "backward_weights": 192,
    "backward_bias": 193,
}

_ELTWISE = (
    "relu tanh elu square abs sqrt linear soft_relu hardsigmoid logistic exp gelu_tanh swish log clip clip_v2 pow "
    "gelu_erf round mish hardswish"
)
_FROM_DST = " ".join(
    f"{name}_use_dst_for_bwd" for name in ("relu", "tanh", "elu", "sqrt", "logistic", "exp", "clip_v2")
)

ELTWISE = {**_enumerate_codes(0x20, _ELTWISE), **_enumerate_codes(0x100, _FROM_DST)}
"""Codes of elementwise functions, which include the activations of recurrent networks."""

BINARY = _enumerate_codes(0x1FFF0, "add mul max min div sub ge gt le lt eq ne select")

ALGORITHMS: Mapping[str, Mapping[str, int]] = MappingProxyType(
    {
        "convolution": {"direct": 1, "winograd": 2, "auto": 3},
        "deconvolution": {"direct": 10, "winograd": 11},
        "eltwise": ELTWISE,
        "binary": BINARY,
        "pooling": {"max": 0x1FF, "avg_include_padding": 0x2FF, "avg_exclude_padding": 0x3FF},
        "lrn": {"across_channels": 0xAFF, "within_channel": 0xBFF},
        "resampling": {"nearest": 0x2FFF0, "linear": 0x2FFF1},
        "reduction": _enumerate_codes(
            0x2FFF2, "max min sum mul mean norm_lp_max norm_lp_sum norm_lp_power_p_max norm_lp_power_p_sum"
        ),
        "softmax": {"accurate": 0x30000, "log": 0x30001},
    }
)
"""Codes of the algorithms of each kind of primitive (`dnnl_alg_kind_t`)."""

DIRECTIONS = _enumerate_codes(1, "left2right right2left concat sum")
"""Codes of the directions of a recurrent network (`dnnl_rnn_direction_t`)."""

FLAGS = {
    "use_global_stats": 1,
    "use_scale": 2,
    "use_shift": 4,
    "fuse_norm_relu": 8,
    "fuse_norm_add_relu": 16,
    "rms_norm": 32,
}
"""Flags of normalizations (`dnnl_normalization_flags_t`)."""

RECURRENT_FLAGS = {"diff_weights_overwrite": 1}
"""Flags of recurrent networks (`dnnl_rnn_flags_t`)."""

FPMATH_MODES = _enumerate_codes(0, "strict bf16 f16 any tf32")

SCRATCHPAD_USER = 1

FORMAT_ANY = 1
"""Code of the format tag `any`."""

QUERY_IMPL, QUERY_SOURCE, QUERY_ARGUMENT = 8, 129, 255
"""Codes of queries of a primitive descriptor: implementation name, source descriptor, descriptor of an argument."""

QUERY_STRIDES = 14
QUERY_NDIMS, QUERY_DIMS, QUERY_TYPE, QUERY_OFFSET0, QUERY_PADDED, QUERY_PADDED_OFFSETS, QUERY_KIND = range(256, 263)
QUERY_NBLKS, QUERY_BLKS, QUERY_IDXS, QUERY_ENCODING, QUERY_NNZ = range(263, 268)
"""Codes of queries of a memory descriptor."""

UNDEF, ANY, BLOCKED, OPAQUE, SPARSE, HOST_SCALAR = range(6)
"""Codes of format kinds (`dnnl_format_kind_t`)."""

CSR, PACKED, COO = 1, 2, 3
"""Codes of sparse encodings (`dnnl_sparse_encoding_t`)."""

F32, S8 = 3, 5
"""Codes of two data types; `data_type` has those of all."""

ARGUMENTS: Mapping[str, int] = MappingProxyType(
    {
        **_enumerate_codes(1, "src_0 src_1 src_2 src_3"),
        **_enumerate_codes(17, "dst_0 dst_1 dst_2"),
        **_enumerate_codes(33, "weights_0 weights_1 weights_2 weights_3"),
        **_enumerate_codes(49, "mean variance scale shift"),
        **_enumerate_codes(129, "diff_src_0 diff_src_1 diff_src_2 diff_src_3"),
        **_enumerate_codes(145, "diff_dst_0 diff_dst_1 diff_dst_2"),
        **_enumerate_codes(161, "diff_weights_0 diff_weights_1 diff_weights_2 diff_weights_3"),
        "src": 1,
        **_enumerate_codes(1, "src_layer src_iter src_iter_c attention"),
        **_enumerate_codes(129, "diff_src_layer diff_src_iter diff_src_iter_c diff_attention"),
        "dst": 17,
        **_enumerate_codes(17, "dst_layer dst_iter dst_iter_c"),
        **_enumerate_codes(145, "diff_dst_layer diff_dst_iter diff_dst_iter_c"),
        "weights": 33,
        **_enumerate_codes(33, "weights_layer weights_iter weights_peephole weights_projection"),
        **_enumerate_codes(161, "diff_weights_layer diff_weights_iter diff_weights_peephole diff_weights_projection"),
        "bias": 41,
        "workspace": 64,
        "scratchpad": 80,
        "diff_src": 129,
        "diff_dst": 145,
        "diff_weights": 161,
        "diff_bias": 169,
        "diff_scale": 255,
        "diff_shift": 256,
    }
)
"""Code of each argument of an execution (`DNNL_ARG_*`)."""

MULTIPLE_SRC = 1024
"""Code of source 0 of concat and sum (`DNNL_ARG_MULTIPLE_SRC`); the number of another source is added."""

ATTR_SCALES, ATTR_ZERO_POINTS, ATTR_POST_OP_DW, ATTR_POST_OP = 4096, 8192, 16384, 32768
"""Summands of the codes of attributes' arguments; the last is multiplied by the post-op's number, counted from 1."""


class Version(Structure):
    """The structure whose address `dnnl_version` returns (`dnnl_version_t`)."""

    _fields_ = (
        ("major", c_int),
        ("minor", c_int),
        ("patch", c_int),
        ("hash", c_char_p),
        ("cpu_runtime", c_uint),
        ("gpu_runtime", c_uint),
    )


class ExecutionArgument(Structure):
    """One argument of an execution: its code and a `dnnl_memory_t`."""

    _fields_ = (("code", c_int), ("memory", c_void_p))
