"""What a Winograd convolution asks of its images: sizes, and strides that one table of words can say."""

from dataclasses import dataclass

from inlay.descriptor import MemoryDesc
from inlay.engine.inlay.tiles import KERNEL, OUT
from inlay.engine.inlay.vectors import Registers
from inlay.engine.inlay.weights import weights_desc
from inlay.errors import Unimplemented
from inlay.layout import Layout
from inlay.primitives.attributes import Eltwise, PrimitiveAttributes
from inlay.primitives.operation import Operation

_FLOAT = 4  # bytes
_DENSE = {"strides": (1, 1), "dilations": (0, 0)}


@dataclass(frozen=True, slots=True)
class Sizes:
    """Of a convolution."""

    ic: int
    """Source channels."""
    oc: int
    """Destination channels."""
    images: int
    """How many."""
    tiles_down: int
    """Of an image."""
    tiles_across: int
    """Of an image."""

    @property
    def tiles(self) -> int:
        """Of all images."""
        return self.images * self.tiles_down * self.tiles_across

    @classmethod
    def of(cls, src: MemoryDesc, dst: MemoryDesc) -> "Sizes":
        """Those of a convolution from `src` to `dst`."""
        down, across = (-(-size // OUT) for size in dst.dims[2:])
        return cls(src.dims[1], dst.dims[1], dst.dims[0], down, across)


@dataclass(frozen=True, slots=True)
class Image:
    """A side of a convolution."""

    desc: MemoryDesc
    """Its descriptor."""
    words: tuple[int, ...]
    """Height and width in pixels; bytes from one image to the next, one row, one pixel, one vector of channels."""
    offset: int
    """Bytes from the start of the memory."""


def images(operation: Operation, registers: Registers) -> tuple[Image, Image]:
    """Source and destination; `any` becomes nhwc.

    Raises:
        Unimplemented: the machine code cannot do it: see `winograd`.
    """
    why = _flaw(operation, registers)
    if why is not None:
        raise Unimplemented(f"Winograd convolution has no {why}")
    return _image(operation, "src", registers.lanes), _image(operation, "dst", registers.lanes)


def _image(operation: Operation, name: str, lanes: int) -> Image:
    desc = operation.descs[name]
    if desc.kind == "any":
        desc = MemoryDesc(desc.dims, "f32", "nhwc")
    step = _vector_step(desc, lanes)
    if step is None:
        raise Unimplemented(
            f"Winograd convolution has no {name} {desc}: give nhwc, or blocks of {lanes} channels, without padding"
        )
    assert isinstance(desc.layout, Layout)
    n, _, h, w = (axis.stride * _FLOAT for axis in desc.layout.axes)
    return Image(desc, (*desc.dims[2:], n, h, w, step * _FLOAT), desc.offset0 * _FLOAT)


def _vector_step(desc: MemoryDesc, lanes: int) -> int | None:
    """Elements from one vector of channels to the next; None where such vectors are not contiguous, or are padding."""
    layout = desc.layout
    if not isinstance(layout, Layout) or desc.padded_dims != desc.dims:
        return None
    if any(axis.inner for i, axis in enumerate(layout.axes) if i != 1):
        return None
    channels = layout.axes[1]
    if not channels.inner:
        return lanes if channels.stride == 1 else None
    is_a_register = len(channels.inner) == 1 and (channels.inner[0].extent, channels.inner[0].stride) == (lanes, 1)
    return channels.stride if is_a_register else None


def _flaw(operation: Operation, registers: Registers) -> str | None:
    """What is missing for an operation; None where nothing is."""
    if operation.kind != "convolution" or operation.prop_kind != "forward_inference":
        return f"{operation.kind} {operation.prop_kind}: it is for forward inference"
    descs, told, lanes = operation.descs, operation.parameters, registers.lanes
    src, weights, dst = (descs[name] for name in ("src", "weights", "dst"))
    if any(str(desc.data_type) != "f32" for desc in descs.values()):
        return "types but f32"
    if weights.dims[2:] != (KERNEL, KERNEL) or weights.ndims != 4:
        return f"weights of dims {weights.dims}: give one group of {KERNEL}x{KERNEL}"
    for name, value in _DENSE.items():
        if told[name] != value:
            return f"{name} {told[name]}: they are {value}"
    if src.dims[1] % lanes or dst.dims[1] % lanes or 0 in (*src.dims, *dst.dims):
        return f"{src.dims[1]} and {dst.dims[1]} channels: both are multiples of {lanes}, and no dim is 0"
    if weights.kind != "any" and weights != weights_desc(dst.dims[1], src.dims[1], registers):
        return f"weights {weights}: leave them any"
    if "bias" in descs and descs["bias"] not in (MemoryDesc(dst.dims[1:2], "f32", tag) for tag in ("any", "a")):
        return f"bias {descs['bias']}: leave it any"
    return _excess(operation.attributes)


def _excess(attributes: PrimitiveAttributes) -> str | None:
    """Attributes that are more than one ReLU."""
    plain = PrimitiveAttributes(post_ops=attributes.post_ops, scratchpad_mode=attributes.scratchpad_mode)
    if attributes != plain:
        return "attributes but a scratchpad mode and a ReLU"
    if attributes.post_ops not in ((), (Eltwise("relu", 0.0, 0.0),)):
        return f"post-operations {attributes.post_ops}: it ends with a ReLU or with nothing"
    return None
