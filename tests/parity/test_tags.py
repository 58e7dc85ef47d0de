"""All format tags and data types, compared with oneDNN."""

import pytest

from inlay.descriptor import MemoryDesc
from inlay.layout import Dims
from inlay.notation.format_tag import ENUMERATED, FormatTag
from tests.oracles import onednn
from tests.parity.operations import facts, scope_of_library

WHY_NOT = onednn.why_unavailable()
pytestmark = [pytest.mark.skipif(WHY_NOT is not None, reason=str(WHY_NOT)), pytest.mark.parity]


def _first(n: int, dims: Dims) -> Dims:
    """The first `n` of `dims`, 2s where they end."""
    return (dims + (2,) * n)[:n]


@pytest.mark.parametrize("dims", [(17, 3, 5, 9, 2, 3), (1, 33, 1, 2, 1, 1)])
def test_every_enumerated_tag_gives_the_librarys_layout(dims: Dims) -> None:
    """On dims that need padding."""
    for text in ENUMERATED:
        shape = _first(FormatTag.parse(text).ndims, dims)
        assert facts(MemoryDesc(shape, "f32", text)) == facts(onednn.by_string_tag(shape, 3, text)), text


def test_every_known_tag_gives_the_librarys_layout_when_a_dim_is_0() -> None:
    tags = scope_of_library().tags
    assert len(tags) > 750
    for text in tags:
        dims = _first(FormatTag.parse(text).ndims, (3, 0, 33, 1, 2, 1))
        assert facts(MemoryDesc(dims, "f32", text)) == facts(onednn.by_tag(dims, 3, ENUMERATED[text])), text


def test_sizes_of_elements() -> None:
    types = scope_of_library().data_types
    assert len(types) >= 7
    for data_type in types:
        assert data_type.itemsize == onednn.data_type_size(data_type.code)
