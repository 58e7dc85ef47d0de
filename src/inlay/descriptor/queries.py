"""What can be asked of dims, type and place: the size in bytes, the key of equality, the spelling.

Size is oneDNN's, the bytes up to the end of the axis that reaches farthest, inner blocks included:

    (4, 6) strides (8, 1), f32    axis 0 reaches 4 * 8 = 32 elements: 128 bytes, the last gap included
    (2, 17, 5, 4) nChw8c, f32     axis 0 reaches 2 * 480: 3840 bytes, padding included

It says what to allocate for a fresh tensor, not what a view touches: `offset0` is left out, all-zero strides give 0 or
one block, and so does a box inside one block. What offsets really reach is `Layout.span`.
"""

from math import prod

from inlay.data_type import DataType
from inlay.descriptor import kinds
from inlay.descriptor.creation import InnerBlocks
from inlay.descriptor.extras import NO_EXTRAS, Extras
from inlay.errors import InlayError
from inlay.format_tag import FormatTag
from inlay.layout import RUNTIME, Dims, Layout
from inlay.pattern import parse_pattern, pattern_of

RUNTIME_SIZE = 2**63
"""The size of a descriptor with RUNTIME dims or strides (oneDNN's `DNNL_RUNTIME_SIZE_VAL`)."""


def bytes_of(elements: int, data_type: DataType) -> int:
    """Whole bytes that hold this many elements.

    >>> from inlay.data_type import as_data_type
    >>> bytes_of(5, as_data_type("s4")), bytes_of(5, as_data_type("bf16"))
    (3, 10)
    """
    return -(-elements * data_type.bits // 8)


def bytes_text(count: int) -> str:
    """A number of bytes as a reader takes it in, in powers of 1000.

    >>> bytes_text(640), bytes_text(5760)
    ('640 bytes', '5.8 kB')
    """
    if count < 1000:
        return "1 byte" if count == 1 else f"{count} bytes"
    size, unit = float(count), "bytes"
    for larger in ("kB", "MB", "GB", "TB", "PB", "EB"):
        if size < 1000:
            break
        size, unit = size / 1000, larger
    return f"{size:.1f} {unit}"


def layout_size(
    dims: Dims, layout: Layout, data_type: DataType, blocks: InnerBlocks | None, extras: Extras = NO_EXTRAS
) -> int:
    """The size in bytes of a tensor of logical `dims` that `layout` places; 2**63 where something is RUNTIME.

    A layout that oneDNN cannot say takes the bytes up to its last element, from its first if that lies below 0.
    """
    if not dims or 0 in dims:
        return 0
    if layout.has_runtime:
        return RUNTIME_SIZE
    nbytes = _elements_size(layout, data_type, blocks)
    return extras.size_with(nbytes, layout.dims) if extras else nbytes


def _elements_size(layout: Layout, data_type: DataType, blocks: InnerBlocks | None) -> int:
    if blocks is None:
        low, high = layout.span
        return bytes_of(high - min(low, 0), data_type)
    reach = 0
    for dim, axis in zip(layout.dims, layout.axes, strict=True):
        count = dim // axis.block
        reach = max(reach, count * axis.stride if count != 1 else 1)
    if reach == 1 and blocks:
        reach = prod(size for _, size in blocks)
    return bytes_of(reach, data_type)


def equality_key(
    dims: Dims, data_type: DataType | None, placement: kinds.Placement, offset0: int, blocks: InnerBlocks | None
) -> tuple[object, ...]:
    """What two descriptors must share to be equal: all of the spelling, except strides of unpadded unit axes."""
    if not dims or data_type is None:
        return ()
    if not isinstance(placement, Layout):
        return (dims, data_type.code or data_type.name, placement)
    strides = tuple(
        [
            None if dim == padded == 1 else axis.stride
            for dim, padded, axis in zip(dims, placement.dims, placement.axes, strict=True)
        ]
    )
    digits = None if blocks is not None else tuple(axis.inner for axis in placement.axes)
    return (dims, data_type.code or data_type.name, placement.dims, offset0, blocks, strides, digits)


def spelled(values: Dims) -> str:
    """A tuple as Python writes it, with RUNTIME by its name.

    >>> spelled((2, RUNTIME)), spelled((3,))
    ('(2, RUNTIME)', '(3,)')
    """
    texts = ["RUNTIME" if value == RUNTIME else str(value) for value in values]
    return f"({texts[0]},)" if len(texts) == 1 else f"({', '.join(texts)})"


def descriptor_repr(
    dims: Dims,
    data_type: DataType | None,
    placement: kinds.Placement,
    offset0: int,
    blocks: InnerBlocks | None,
    extras: Extras,
    tag: str | None,
) -> str:
    """The call that creates the descriptor of these parts; `tag` where one does, with padded dims where need be."""
    if not dims or data_type is None:
        return "MemoryDesc()"
    call = f"MemoryDesc({spelled(dims)}, '{data_type}'"
    also = f", extras={extras!r}" if extras else ""
    if tag is not None:
        placed = isinstance(placement, Layout) and FormatTag.parse(tag).layout(dims).dims != placement.dims
        padded = f", padded_dims={spelled(placement.dims)}" if placed and isinstance(placement, Layout) else ""
        return f"{call}, '{tag}'{padded}{also})"
    if isinstance(placement, kinds.HostScalar):
        return f"MemoryDesc.host_scalar('{data_type}')"
    if isinstance(placement, kinds.Sparse):
        return _sparse_repr(dims, data_type, placement)
    if isinstance(placement, kinds.Opaque):
        return f"MemoryDesc.opaque({spelled(dims)}, '{data_type}', {placement.name!r}, {placement.nbytes})"
    assert isinstance(placement, Layout)
    said = _arguments(dims, placement, blocks) if offset0 == 0 else None
    if said is not None:
        return f"{call}, {said}{also})"
    start = f", offset0={offset0}" if offset0 else ""
    logical = f", dims={spelled(dims)}" if dims != placement.dims else ""
    return f"MemoryDesc.from_layout({placement!r}, '{data_type}'{logical}{start}{also})"


def _sparse_repr(dims: Dims, data_type: DataType, placement: kinds.Sparse) -> str:
    types: dict[str, str] = {}
    match placement:
        case kinds.CSR(index_type=index_type, pointer_type=pointer_type):
            types = {"index_type": index_type.name, "pointer_type": pointer_type.name}
        case kinds.COO(index_type=index_type):
            types = {"index_type": index_type.name}
        case kinds.Packed(tag=tag) if tag:
            types = {"tag": tag}
    said = "".join(f", {name}='{value}'" for name, value in types.items() if value != "s32")
    return f"MemoryDesc.{placement.encoding}({spelled(dims)}, '{data_type}', {placement.nnz}{said})"


def _arguments(dims: Dims, layout: Layout, blocks: InnerBlocks | None) -> str | None:
    """The constructor's arguments that say `layout`, or None where only the layout itself does."""
    if blocks:
        return None
    if blocks == ():
        said, padded = f"strides={spelled(tuple(axis.stride for axis in layout.axes))}", dims
    else:
        try:
            said = f"pattern='{pattern_of(layout)}'"
            padded = parse_pattern(pattern_of(layout), dims).dims
        except InlayError:
            return None
    return said if padded == layout.dims else f"{said}, padded_dims={spelled(layout.dims)}"
