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
from inlay.descriptor.creation import blocks_of
from inlay.descriptor.described import Fields, InnerBlocks
from inlay.descriptor.extras import NO_EXTRAS, Extras
from inlay.descriptor.sparsity import checked_coo, checked_csr, checked_opaque, checked_packed
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

    @property
    def _blocks(self) -> InnerBlocks | None:
        return blocks_of(self.layout) if isinstance(self.layout, Layout) else None


def checked_fields(parts: Parts) -> Fields:
    """The fields of the descriptor of these parts.

    Raises:
        InvalidArguments, Unimplemented: as `checked`.
    """
    blocks = checked(parts)
    return parts.dims, parts.data_type, parts.layout, parts.offset0, blocks, parts.extras, parts.spelling


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
        case kinds.Opaque(name=name, nbytes=nbytes):
            checked_opaque(parts.dims, name, nbytes)
        case kinds.CSR(nnz=nnz, index_type=index_type, pointer_type=pointer_type):
            _require_number(parts)
            checked_csr(parts.dims, nnz, index_type, pointer_type)
        case kinds.COO(nnz=nnz, index_type=index_type):
            _require_number(parts)
            checked_coo(parts.dims, nnz, index_type)
        case kinds.Packed(nnz=nnz, tag=tag):
            _require_number(parts)
            said = checked_packed(parts.dims, nnz, tag).tag
            if said != tag:
                raise InvalidArguments(f"tag of the packed encoding is {tag!r}: write it as {said!r}")
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
