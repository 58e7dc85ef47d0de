"""The fields of a descriptor, and queries that follow directly from them: kind, axes, strides, blocks and digits.

`DescriptorFields` is the protocol of objects that have the fields. The functions of this package take any such object,
so their modules are independent of `MemoryDesc`. The class has them as properties and methods: `desc.strides` is
`strides(desc)`.

>>> from inlay.descriptor import MemoryDesc
>>> desc = MemoryDesc((2, 17), "f32", "aB8b")
>>> kind(desc), padded_dims(desc), strides(desc), inner_blocks(desc)
('blocked', (2, 24), (24, 8), ((1, 8),))
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeAlias, TypeVar

from inlay.data_type import DataType
from inlay.descriptor import kinds
from inlay.descriptor.extras import Extras
from inlay.errors import InvalidArguments
from inlay.layout import RUNTIME, Digit, Dims, Layout, Swizzle

InnerBlocks: TypeAlias = tuple[tuple[int, int], ...]
"""Axis and size of each inner block, outermost first."""

FieldValues: TypeAlias = tuple[Dims, DataType | None, kinds.Placement, int, InnerBlocks | None, Extras, str | None]
"""Values of the fields of a `MemoryDesc`: dims, data type, layout, offset0, inner blocks, extras, spelling."""

_REMEDIES = {
    "sparse": "; inlay.to_dense(memory) has a layout",
    "swizzled": "; reorder to its format without the swizzle first",
    "opaque": "; a reorder of the engine that chose it has one, as inlay.primitives.Reorder makes",
}


class DescriptorFields(Protocol):
    """An object with the fields of a descriptor, which are documented in `MemoryDesc`."""

    @property
    def dims(self) -> Dims:
        """The logical dims."""

    @property
    def data_type(self) -> DataType | None:
        """The data type of the elements; None for the zero descriptor."""

    @property
    def layout(self) -> kinds.Placement:
        """The layout of the padded dims, or the kind of a descriptor without a layout."""

    @property
    def offset0(self) -> int:
        """The offset of the origin in the buffer, in elements."""

    @property
    def extras(self) -> Extras:
        """The flags and masks of the buffers behind the elements."""

    @property
    def spelling(self) -> str | None:
        """The text of the format that the descriptor was created from; None if there was none."""

    @property
    def _blocks(self) -> InnerBlocks | None:
        """The inner blocks; None if oneDNN has no format for the layout."""

    def __hash__(self) -> int:
        """Return a hash; equal descriptors have equal hashes."""


if TYPE_CHECKING:
    import numpy as np

    T = TypeVar("T")

    class Query(Generic[T]):
        """A `property` for type checkers, which do not infer the type of a property from a function."""

        def __init__(self, function: Callable[[Any], T]) -> None: ...

        def __get__(self, desc: object, owner: type | None = None) -> T: ...
else:
    Query = property


def ndims(desc: DescriptorFields) -> int:
    """The number of axes."""
    return len(desc.dims)


def shape(desc: DescriptorFields) -> Dims:
    """The logical dims, by NumPy's name."""
    return desc.dims


def dtype(desc: DescriptorFields) -> "np.dtype[Any] | None":
    """The NumPy type of the elements, of ml_dtypes where NumPy has none; None for the zero descriptor."""
    return None if desc.data_type is None else desc.data_type.dtype


def is_zero(desc: DescriptorFields) -> bool:
    """True for the zero descriptor, which has no dims."""
    return not desc.dims


def kind(desc: DescriptorFields) -> kinds.KindName:
    """The name of oneDNN's format kind, or `digits` for a layout that oneDNN cannot represent."""
    match desc.layout:
        case Layout():
            return "digits" if desc._blocks is None else "blocked"
        case kinds.Any():
            return "any"
        case kinds.Undefined():
            return "undef"
        case kinds.Opaque():
            return "opaque"
        case kinds.CSR() | kinds.COO() | kinds.Packed():
            return "sparse"
        case kinds.HostScalar():
            return "host_scalar"
        case kinds.SwizzledLayout():
            return "swizzled"


def kind_text(desc: DescriptorFields) -> str:
    """Return the end of an error text: the descriptor, its kind, and the remedy if the kind has one."""
    return f"{desc!r} is of kind {kind(desc)}{_REMEDIES.get(kind(desc), '')}"


def padded_dims(desc: DescriptorFields) -> Dims:
    """The number of elements along each axis in memory: data and padding."""
    if isinstance(desc.layout, Layout):
        return desc.layout.dims
    if isinstance(desc.layout, kinds.SwizzledLayout):
        return desc.layout.layout.dims
    return (0,) if isinstance(desc.layout, kinds.HostScalar) else desc.dims


def padded_offsets(desc: DescriptorFields) -> Dims:
    """The number of padding elements before the data along each axis: always 0, because padding follows the data."""
    return (0,) * len(desc.dims)


def has_runtime(desc: DescriptorFields) -> bool:
    """True if a dim or stride is RUNTIME."""
    return desc.layout.has_runtime if isinstance(desc.layout, Layout) else RUNTIME in desc.dims


def strides(desc: DescriptorFields) -> Dims:
    """The stride of each axis in elements: from one block to the next, or between coordinates if there are no blocks.

    Raises:
        InvalidArguments: there is no layout, or oneDNN cannot represent its digits.
    """
    if not desc.dims:
        return ()
    if not isinstance(desc.layout, Layout) or (desc._blocks is None and any(a.inner for a in desc.layout.axes)):
        raise _no_format(desc, "strides")
    return tuple([axis.stride for axis in desc.layout.axes])


def inner_blocks(desc: DescriptorFields) -> InnerBlocks:
    """Axis and size of each inner block, outermost first.

    Raises:
        InvalidArguments: the kind is not blocked.
    """
    if not desc.dims:
        return ()
    if desc._blocks is None:
        raise _no_format(desc, "inner blocks")
    return desc._blocks


def _no_format(desc: DescriptorFields, what: str) -> InvalidArguments:
    """Return the error for strides or inner blocks of a descriptor that has none in oneDNN's sense."""
    if isinstance(desc.layout, Layout):
        remedy = "this digit order has no inner blocks in oneDNN's sense; read `digits`"
        return InvalidArguments(f"{what} of {desc!r} do not exist: {remedy}")
    return InvalidArguments(f"{what} belong to blocked layouts: {kind_text(desc)}")


def inner_nblks(desc: DescriptorFields) -> int:
    """The number of inner blocks."""
    return len(inner_blocks(desc))


def inner_blks(desc: DescriptorFields) -> Dims:
    """The size of each inner block, outermost first."""
    return tuple(size for _, size in inner_blocks(desc))


def inner_idxs(desc: DescriptorFields) -> Dims:
    """The axis of each inner block, outermost first."""
    return tuple(axis for axis, _ in inner_blocks(desc))


def digits(desc: DescriptorFields) -> tuple[tuple[Digit, ...], ...]:
    """All digits of each axis, most significant first.

    Raises:
        InvalidArguments: the kind has no layout.
    """
    return require_layout(desc, "digits")[0].digits if desc.dims else ()


def require_layout(desc: DescriptorFields, purpose: str) -> tuple[Layout, DataType]:
    """Return the layout and the data type.

    Raises:
        InvalidArguments: the kind is neither blocked nor digits; the text starts with `purpose`.
    """
    if isinstance(desc.layout, Layout) and desc.data_type is not None:
        return desc.layout, desc.data_type
    raise InvalidArguments(f"{purpose} needs a layout: {kind_text(desc)}")


def addressed_layout(desc: DescriptorFields, purpose: str) -> tuple[Layout, DataType]:
    """Return the layout, without the swizzle of a swizzled one, and the data type.

    Raises:
        InvalidArguments: there is no layout; the text starts with `purpose`.
    """
    if isinstance(desc.layout, kinds.SwizzledLayout) and desc.data_type is not None:
        return desc.layout.layout, desc.data_type
    return require_layout(desc, purpose)


def require_start_in_buffer(desc: DescriptorFields, layout: Layout) -> None:
    """Check that the lowest offset of `desc`, whose layout is `layout`, is not below the start of the buffer.

    Raises:
        InvalidArguments: it is below.
    """
    low, high = layout.span
    if low < high and low + desc.offset0 < 0:
        raise InvalidArguments(
            f"{desc!r} reaches {-low - desc.offset0} elements below the start of its buffer: give it a larger offset0"
        )


def swizzle(desc: DescriptorFields) -> Swizzle | None:
    """The permutation of offsets after the layout; None if there is none.

    >>> from inlay.descriptor import MemoryDesc
    >>> MemoryDesc((8, 64), "bf16", "Swizzle<3,3,3> o (8,64):(64,1)").swizzle
    Swizzle(bits=3, base=3, shift=3)
    """
    return desc.layout.swizzle if isinstance(desc.layout, kinds.SwizzledLayout) else None
