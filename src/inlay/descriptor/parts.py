"""The parts of a descriptor that came from outside, and the one check that they are those of a descriptor.

A text, some bytes, or another library's object may say anything. What they say is read into `Parts`, and `checked`
refuses what no constructor and no view could have made, whatever its source:

    dims (2, 17)   padded_dims (2, 24)   strides (24, 8)   one block of 8          a descriptor
    dims (2, 17)   padded_dims (2, 16)   ...                                       refused: 16 < 17
    dims (4, 4)    strides (3, 1), as blocks of oneDNN                             refused: elements share offsets
"""

from dataclasses import dataclass
from typing import assert_never

from inlay.data_type import DataType
from inlay.descriptor import kinds
from inlay.descriptor.creation import InnerBlocks, blocks_of
from inlay.descriptor.extras import NO_EXTRAS, Extras
from inlay.descriptor.sparsity import (
    checked_index_type,
    checked_nnz,
    checked_opaque,
    checked_packed_tag,
    require_csr_ndims,
)
from inlay.descriptor.validation import require_dims, require_nested, require_placed
from inlay.errors import InvalidArguments, shown
from inlay.format_tag import FormatTag
from inlay.layout import RUNTIME, Dims, Layout


@dataclass(frozen=True, slots=True)
class Parts:
    """What a descriptor is made of, not yet checked."""

    dims: Dims
    """The logical dims; none for the zero descriptor."""
    data_type: DataType | None
    """None for the zero descriptor only."""
    layout: kinds.Placement
    """Where the elements lie."""
    offset0: int = 0
    """Elements from the start of the buffer to the origin."""
    extras: Extras = NO_EXTRAS
    """What lies behind the elements."""
    spelling: str | None = None
    """The text of the format tag that says the layout, where it was made of one."""


def checked(parts: Parts) -> InnerBlocks | None:
    """Refuse parts that do not fit together; returns the inner blocks where there is a layout that oneDNN can say.

    Strides of 4-bit elements may be odd, as they are in some views.

    Raises:
        InvalidArguments: the parts are those of no descriptor.
        Unimplemented: compressed sparse rows of more than 2 dims.
    """
    placement = parts.layout
    if (parts.data_type is None) != isinstance(placement, kinds.Undefined) or (parts.data_type is None) == bool(
        parts.dims
    ):
        raise InvalidArguments("only the zero descriptor has no dims and no data type, and it has neither")
    if not isinstance(placement, Layout) and (parts.offset0 or parts.extras):
        raise InvalidArguments("offset0 and extras belong to a layout: this descriptor has none")
    match placement:
        case kinds.Undefined():
            return None
        case Layout():
            return _checked_layout(parts, placement)
        case kinds.Any():
            require_dims(parts.dims)
            if RUNTIME in parts.dims:
                raise InvalidArguments(
                    "format any needs known dims: a primitive cannot choose a layout for RUNTIME ones"
                )
        case kinds.Opaque():
            require_dims(parts.dims)
            checked_opaque(placement.name, placement.nbytes)
        case kinds.CSR() | kinds.COO() | kinds.Packed():
            _require_number(parts)
            _require_sparse(parts.dims, placement)
        case kinds.HostScalar():
            _require_number(parts)
            if parts.dims != (1,):
                raise InvalidArguments(f"a host scalar has dims (1,), not {parts.dims}")
        case _:
            assert_never(placement)
    return None


def _checked_layout(parts: Parts, layout: Layout) -> InnerBlocks | None:
    assert parts.data_type is not None
    require_placed(parts.dims, layout, parts.offset0)
    parts.extras.require_axes(len(parts.dims))
    blocks = blocks_of(layout)
    if blocks is not None:
        require_nested(layout, parts.data_type, whole_bytes=False)
    if parts.spelling is not None and (parts.offset0 or FormatTag.parse(parts.spelling).layout(layout.dims) != layout):
        raise InvalidArguments(f"format {shown(parts.spelling)} gives dims {layout.dims} another layout than is said")
    return blocks


def _require_number(parts: Parts) -> None:
    if parts.data_type is not None and not parts.data_type.is_number:
        raise InvalidArguments(f"sparse tensors and host scalars hold numbers: {parts.data_type} only moves")


def _require_sparse(dims: Dims, placement: kinds.Sparse) -> None:
    if isinstance(placement, kinds.CSR):
        require_csr_ndims(dims)
        checked_index_type("pointer_type", placement.pointer_type)
    if not isinstance(placement, kinds.Packed):
        checked_index_type("index_type", placement.index_type)
    checked_nnz(dims, placement.nnz)
    if isinstance(placement, kinds.Packed) and checked_packed_tag(dims, placement.tag) != placement.tag:
        raise InvalidArguments(
            f"tag of the packed encoding is {placement.tag!r}: write it as {checked_packed_tag(dims, placement.tag)!r}"
        )
