"""What a descriptor is made of, and what these fields say at once: kind, axes, strides, blocks and digits.

`Described` names the fields. What the functions of this package tell about a descriptor they read from any value that
has them, so they are defined before `MemoryDesc`, which offers them under their names: `desc.strides` is
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
from inlay.layout import RUNTIME, Digit, Dims, Layout

InnerBlocks: TypeAlias = tuple[tuple[int, int], ...]
"""Axis and size of each inner block, outermost first."""

Fields: TypeAlias = tuple[Dims, DataType | None, kinds.Placement, int, InnerBlocks | None, Extras, str | None]
"""The fields of a descriptor in the order of `MemoryDesc`: dims, type, layout, offset0, blocks, extras, spelling."""

_REMEDIES = {
    "sparse": "; inlay.to_dense(memory) has a layout",
    "opaque": "; a reorder of the engine that chose it has one, as inlay.primitives.Reorder makes",
}


class Described(Protocol):
    """The fields of a descriptor, which are documented in `MemoryDesc`."""

    @property
    def dims(self) -> Dims:
        """The logical dims."""

    @property
    def data_type(self) -> DataType | None:
        """The type of the elements."""

    @property
    def layout(self) -> kinds.Placement:
        """Where the elements lie."""

    @property
    def offset0(self) -> int:
        """Elements before the origin."""

    @property
    def extras(self) -> Extras:
        """What lies behind the elements."""

    @property
    def spelling(self) -> str | None:
        """The text of the format tag it was made of."""

    @property
    def _blocks(self) -> InnerBlocks | None:
        """The inner blocks, None where oneDNN cannot say them."""

    def __hash__(self) -> int:
        """Equal values have equal hashes."""


if TYPE_CHECKING:
    T = TypeVar("T")

    class Query(Generic[T]):
        """A property whose type is that of its function, which type checkers do not tell of `property`."""

        def __init__(self, function: Callable[[Any], T]) -> None: ...

        def __get__(self, desc: object, owner: type | None = None) -> T: ...
else:
    Query = property


def ndims(desc: Described) -> int:
    """The number of axes."""
    return len(desc.dims)


def is_zero(desc: Described) -> bool:
    """Whether this is the zero descriptor, which has no dims."""
    return not desc.dims


def kind(desc: Described) -> kinds.KindName:
    """oneDNN's format kind, or `digits` for a layout whose digit order oneDNN cannot say."""
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


def kind_text(desc: Described) -> str:
    """The descriptor, its kind, and how to get what this kind has not: the end of a message."""
    return f"{desc!r} is of kind {kind(desc)}{_REMEDIES.get(kind(desc), '')}"


def padded_dims(desc: Described) -> Dims:
    """Elements along each axis in memory: data and padding."""
    if isinstance(desc.layout, Layout):
        return desc.layout.dims
    return (0,) if isinstance(desc.layout, kinds.HostScalar) else desc.dims


def padded_offsets(desc: Described) -> Dims:
    """Always zeros: padding follows the data."""
    return (0,) * len(desc.dims)


def has_runtime(desc: Described) -> bool:
    """Whether a dim or stride is RUNTIME."""
    return desc.layout.has_runtime if isinstance(desc.layout, Layout) else RUNTIME in desc.dims


def strides(desc: Described) -> Dims:
    """Elements from one block of each axis to the next, or from one coordinate to the next where it has no blocks.

    Raises:
        InvalidArguments: there is no layout, or one with digits in an order that oneDNN cannot say.
    """
    if not desc.dims:
        return ()
    if not isinstance(desc.layout, Layout) or (desc._blocks is None and any(a.inner for a in desc.layout.axes)):
        raise _no_format(desc, "strides")
    return tuple([axis.stride for axis in desc.layout.axes])


def inner_blocks(desc: Described) -> InnerBlocks:
    """Axis and size of each inner block, outermost first.

    Raises:
        InvalidArguments: the kind is not blocked.
    """
    if not desc.dims:
        return ()
    if desc._blocks is None:
        raise _no_format(desc, "inner blocks")
    return desc._blocks


def _no_format(desc: Described, what: str) -> InvalidArguments:
    if isinstance(desc.layout, Layout):
        remedy = "this digit order has no inner blocks in oneDNN's sense; read `digits`"
        return InvalidArguments(f"{what} of {desc!r} cannot be said: {remedy}")
    return InvalidArguments(f"{what} belong to blocked layouts: {kind_text(desc)}")


def inner_nblks(desc: Described) -> int:
    """The number of inner blocks."""
    return len(inner_blocks(desc))


def inner_blks(desc: Described) -> Dims:
    """The size of each inner block, outermost first."""
    return tuple(size for _, size in inner_blocks(desc))


def inner_idxs(desc: Described) -> Dims:
    """The axis of each inner block, outermost first."""
    return tuple(axis for axis, _ in inner_blocks(desc))


def digits(desc: Described) -> tuple[tuple[Digit, ...], ...]:
    """Per axis, every digit of its coordinates, most significant first.

    Raises:
        InvalidArguments: the kind has no layout.
    """
    return require_layout(desc, "digits")[0].digits if desc.dims else ()


def require_layout(desc: Described, purpose: str) -> tuple[Layout, DataType]:
    """The layout and the data type; `purpose` begins the message where there is no layout.

    Raises:
        InvalidArguments: the kind is not blocked or digits.
    """
    if isinstance(desc.layout, Layout) and desc.data_type is not None:
        return desc.layout, desc.data_type
    raise InvalidArguments(f"{purpose} needs a layout: {kind_text(desc)}")
