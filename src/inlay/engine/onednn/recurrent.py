"""What recurrent networks need that nobody asked for: zeros in the place of what is left out, and gradients left alone.

oneDNN 3.2 and 3.13 both

- compute no network without bias;
- compute a wrong diff_weights_iter of vanilla_rnn and lstm where src_iter is left out: they sum h_t da_t^T, not
  h_(t-1) da_t^T;
- compute wrong gradients of augru and lbr_augru: that of attention has a factor u (1 - u) too much, and those of o and
  h_(t-1) are weighed by u, not by (1 - a) u;
- compute wrong numbers where lstm has a projection in bf16, which their documentation calls not supported;
- compute something where src_layer has no channels, though nothing flows in, and divide by dims of weights that are 0;
- add the integers of two directions in 8 bits without taking the shift away once, and saturate the sum first.

3.2 also computes wrong gradients of lstm with a projection to more channels than all gates have together: it keeps rows
of the one where it has room for rows of the other. 3.13 does not.

3.13 also ends the process, now and then on a busy machine, in gradients of gru with more inputs than all its gates have
channels: it keeps rows of the one where it has room for rows of the other, beside a table of pointers. 3.2 was not seen
to do so.

So the engine brings a bias and initial states of zeros, which say the same as nothing, and declines training with
attention, such a projection or so many inputs, projections in bf16 and sums in 8 bits.

Source: found by differences of the outputs; `ref_postgemm_gru.cpp` of oneDNN agrees with the last one.
"""

from inlay.data_type import DATA_TYPES
from inlay.descriptor import MemoryDesc
from inlay.primitives.operation import Operation
from inlay.primitives.signatures import RECURRENT

_INTEGERS = (DATA_TYPES["u8"], DATA_TYPES["s8"])
_WIDE_SINCE = (3, 13)
_ATTENTIVE = ("augru", "lbr_augru")
_NEED_STATES = ("vanilla_rnn", "lstm")


def flaw(version: tuple[int, ...], operation: Operation) -> str | None:
    """What a library of this version computes wrongly, in the words of what it lacks."""
    if operation.kind not in RECURRENT:
        return None
    if operation.kind in _ATTENTIVE and operation.prop_kind != "forward_inference":
        return f"gradients of {operation.kind} that are those of its outputs"
    source, projection = (operation.descs.get(name) for name in ("src_layer", "weights_projection"))
    if any(0 in desc.dims for name, desc in operation.descs.items() if "weights" in name or name == "bias"):
        return "recurrent networks whose weights have a dim of 0"
    if projection is not None and projection.ndims == 4:
        if projection.data_type == DATA_TYPES["bf16"]:
            return "lstm with projection in bf16 that is right"
        is_wide = operation.prop_kind != "forward_inference" and projection.dims[3] > 4 * projection.dims[2]
        if is_wide and version < _WIDE_SINCE:
            return "right gradients of lstm with a projection to more channels than its four gates have"
    if operation.kind == "gru" and version >= _WIDE_SINCE and operation.prop_kind != "forward_inference":
        weights = operation.descs.get("weights_layer", MemoryDesc())
        if weights.ndims == 5 and weights.dims[2] > 3 * weights.dims[4]:
            return "safe gradients of gru with more inputs than its three gates have channels"
    if source is not None and source.data_type in _INTEGERS and operation.parameters.get("direction") == "sum":
        return "sum of two directions in 8 bits that is right"
    return None


def additions(operation: Operation) -> dict[str, MemoryDesc]:
    """The arguments that the engine brings itself: zeros, and room for their gradients.

    >>> descs = {"src_layer": MemoryDesc((3, 2, 5), "f32"), "weights_layer": MemoryDesc((1, 1, 5, 3, 6), "f32")}
    >>> operation = Operation("gru", "forward_inference", descs | {"weights_iter": descs["weights_layer"]})
    >>> {name: desc.dims for name, desc in additions(operation).items()}
    {'bias': (1, 1, 3, 6)}
    """
    descs = operation.descs
    if operation.kind not in RECURRENT or any(name not in descs for name in ("src_layer", *_WEIGHTS)):
        return {}  # what is missing is said where the primitive is created
    found = {}
    if descs["src_layer"].ndims != 3 or any(descs[name].ndims != 5 for name in _WEIGHTS):
        return {}  # so is this
    layers, directions, _, gates, channels = descs["weights_layer"].dims
    if "bias" not in descs:
        found["bias"] = MemoryDesc((layers, directions, gates + operation.kind.startswith("lbr_"), channels), "f32")
    if operation.kind in _NEED_STATES and operation.prop_kind != "forward_inference" and "src_iter" not in descs:
        batch, source = descs["src_layer"].dims[1], descs["src_layer"].data_type
        both = (layers, directions, batch)
        assert source is not None
        found["src_iter"] = MemoryDesc((*both, descs["weights_iter"].dims[2]), source)
        if operation.kind == "lstm":
            after = descs.get("dst_iter_c")
            cell = "f32" if after is None or after.data_type is None else after.data_type
            found["src_iter_c"] = MemoryDesc((*both, channels), cell)
    if operation.direction == "backward":
        found |= {f"diff_{name}": MemoryDesc(desc.dims, "f32") for name, desc in found.items()}
    return found


_WEIGHTS = ("weights_layer", "weights_iter")
