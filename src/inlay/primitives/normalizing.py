"""Batch, layer and group normalization: elements brought to mean 0 and variance 1, over different axes.

    dst = scale * (src - mean) / sqrt(variance + epsilon) + shift

| kind | mean and variance over | their dims | scale and shift |
|---|---|---|---|
| batch | batch and space | (C,) | (C,) |
| layer | the last axis | all dims but the last | (C,), the last dim |
| group | space and the channels of a group | (N, groups) | (C,) |

Flags say what is read and written: `use_global_stats`: mean and variance are read; else they are computed, and in
training written. `use_scale`, `use_shift`: these are read, else they are 1 and 0. Batch normalization can have a relu
fused (`fuse_norm_relu`), and an addition before it (`fuse_norm_add_relu`, of src_1); training keeps a workspace for it.
"""

from typing import Any, ClassVar

from inlay.data_type import DataTypeLike, as_data_type
from inlay.descriptor import MemoryDesc
from inlay.layout import Dims
from inlay.primitives.attributes import PrimitiveAttributes
from inlay.primitives.engines import EngineLike
from inlay.primitives.operation import Parameter
from inlay.primitives.primitive import Primitive, forward_kind, forward_of, like_forward
from inlay.primitives.rules import choice, settled, type_of
from inlay.primitives.signatures import PropKind
from inlay.primitives.slow_kernels import Avoid

FLAGS = ("use_global_stats", "use_scale", "use_shift")
"""Flags that all three have."""


class Normalization(Primitive):
    """What the three share, forward."""

    __slots__ = ()
    in_place = frozenset({("src", "dst")})

    def _normalize(
        self,
        src: MemoryDesc,
        dst: MemoryDesc | None,
        stat: MemoryDesc | None,
        dims: tuple[Dims, int],
        parameters: dict[str, Parameter],
        flags: frozenset[str],
        prop_kind: str,
        scale_shift_type: DataTypeLike = "f32",
        *,
        attributes: PrimitiveAttributes | None,
        engine: EngineLike,
        avoid: Avoid,
    ) -> None:
        """Create it; `dims` are those of the statistics, and the number of scales."""
        place = type(self).__name__
        kind = forward_kind(place, prop_kind)
        descs = {"src": src, "dst": settled(place, "dst", dst, src.dims, type_of(src), f"src {src.dims}")}
        if kind == "forward_training" or "use_global_stats" in flags:
            float32, why = as_data_type("f32"), f"src {src.dims}"
            found = settled(place, "stat", stat, dims[0], float32, why, "abcdefghijkl"[: len(dims[0])])
            descs |= {name: found for name in ("mean", "variance") if name == "variance" or "rms_norm" not in flags}
        for name in ("scale", "shift"):
            if f"use_{name}" in flags:
                descs[name] = MemoryDesc((dims[1],), scale_shift_type, "a")
        if "fuse_norm_add_relu" in flags:
            descs["src_1"] = src
        self._create(kind, descs, {**parameters, "flags": flags}, attributes=attributes, engine=engine, avoid=avoid)


class NormalizationBackward(Primitive):
    """What the three share, backward."""

    __slots__ = ()
    in_place = frozenset({("diff_dst", "diff_src")})
    forward: ClassVar[type[Primitive]]
    """The class whose gradient it is."""

    def __init__(
        self,
        diff_dst: MemoryDesc | None = None,
        diff_src: MemoryDesc | None = None,
        *,
        hint_forward: Primitive | None = None,
        prop_kind: str = "backward",
        attributes: PrimitiveAttributes | None = None,
        engine: EngineLike = None,
        avoid: Avoid = None,
    ) -> None:
        """Create it for `hint_forward`, with its flags; `backward_data` leaves out gradients of scale and shift.

        Raises:
            InvalidArguments: the hint is missing or of inference, a gradient has other dims, or what `Primitive`
                refuses.
            Unimplemented: no engine computes it.
        """
        place = type(self).__name__
        hint = forward_of(place, hint_forward, self.forward)
        wanted: PropKind = (
            "backward"
            if choice(place, "prop_kind", prop_kind, ("backward", "backward_data")) == "backward"
            else "backward_data"
        )
        flags: Any = hint.operation.parameters["flags"]
        descs = {name: hint.desc(name) for name in ("src", "mean", "variance", "scale") if name in hint.operation.descs}
        descs |= like_forward(place, hint, diff_dst=diff_dst, diff_src=diff_src)
        for name in ("scale", "shift"):
            if wanted == "backward" and f"use_{name}" in flags:
                descs[f"diff_{name}"] = hint.desc(name)
        if "fuse_norm_add_relu" in flags:
            descs["diff_src_1"] = descs["diff_src"]
        self._create(
            wanted, descs, hint.operation.parameters, attributes=attributes, hint=hint, engine=engine, avoid=avoid
        )
