"""Hypothesis strategies; each draws values by the corresponding function of `drawing` or `kinds`.

>>> from hypothesis import find
>>> find(shapes(2), lambda dims: 0 in dims)
(0, 1)
"""

from hypothesis import strategies as st

from inlay.data_type import DataType, DataTypeLike
from inlay.descriptor import Extras, MemoryDesc
from inlay.layout import Dims, Layout, Swizzle
from inlay.memory import Memory
from inlay.notation.format_tag import FormatTag
from inlay.reordering.attributes import Attributes
from inlay.testing import drawing, kinds
from inlay.testing.choices import strategy


def data_types(*, sub_byte: bool = True) -> st.SearchStrategy[DataType]:
    """Return a strategy of data types; 4-bit types only if `sub_byte`.

    >>> from hypothesis import find
    >>> find(data_types(), lambda t: t.bits == 64).bits
    64
    """
    return strategy(drawing.draw_data_type)(sub_byte=sub_byte)


def shapes(ndims: int | None = None, *, max_size: int = 5000, zero: bool = True) -> st.SearchStrategy[Dims]:
    """Return a strategy of dims with a product of at most `max_size`.

    There are `ndims` dims, or 1 to 5 if it is None. If `zero`, one of them may be 0.

    >>> from hypothesis import find
    >>> find(shapes(3), lambda dims: min(dims) > 1)
    (2, 2, 2)
    """
    return strategy(drawing.draw_shape)(ndims, max_size=max_size, zero=zero)


def format_tags(ndims: int | None = None, *, min_blocks: int = 0, max_blocks: int = 3) -> st.SearchStrategy[FormatTag]:
    """Return a strategy of tags of `ndims` axes (1 to 6 if None), in any order.

    A tag has `min_blocks` to `max_blocks` inner blocks, of which one axis may have several.

    >>> from hypothesis import find
    >>> find(format_tags(2), lambda tag: tag.blocks(0) == 4 and tag.blocks(1) == 1).blocks(0)
    4
    """
    return strategy(drawing.draw_tag)(ndims, min_blocks=min_blocks, max_blocks=max_blocks)


def swizzles(*, whole_bytes: bool = False) -> st.SearchStrategy[Swizzle]:
    """Return a strategy of swizzles of 1 to 3 bits in either direction.

    With `whole_bytes`, they do not change the lowest bit, so that elements of 4 bits stay in pairs.

    >>> from hypothesis import find
    >>> find(swizzles(), lambda swizzle: swizzle.shift < 0)
    Swizzle(bits=1, base=0, shift=-1)
    """
    return strategy(drawing.draw_swizzle)(whole_bytes=whole_bytes)


def layouts(*, max_size: int = 1000) -> st.SearchStrategy[Layout]:
    """Return a strategy of layouts of 0 to 4 axes.

    Strides have any sign or are 0, elements may overlap, and the last block of an axis may be incomplete.

    >>> from hypothesis import find
    >>> find(layouts(), lambda layout: layout.overlaps).overlaps
    True
    """
    return strategy(drawing.draw_layout)(max_size=max_size)


def descriptors(
    dims: Dims | None = None, data_type: DataTypeLike | None = None, *, broadcast: bool = False
) -> st.SearchStrategy[MemoryDesc]:
    """Return a strategy of descriptors with a layout, made by a tag, by strides, by a pattern, or as a submemory.

    Elements do not overlap, so each can be a destination. If `broadcast`, strides may be 0 and elements overlap.

    >>> from hypothesis import find
    >>> find(descriptors((17, 3), "f32"), lambda d: d.padded_dims[0] == 20).padded_dims
    (20, 3)
    """
    return strategy(drawing.draw_descriptor)(dims, data_type, broadcast=broadcast)


def any_descriptors() -> st.SearchStrategy[MemoryDesc]:
    """Return a strategy of descriptors of any kind.

    They include layouts of every form, extras, RUNTIME dims and strides, views, sparse and opaque descriptors.

    >>> from hypothesis import find
    >>> find(any_descriptors(), lambda d: d.kind == "host_scalar").kind
    'host_scalar'
    """
    return strategy(kinds.draw_any_descriptor)()


def extras(ndims: int, *, gpu: bool = False) -> st.SearchStrategy[Extras]:
    """Return a strategy of extras of int8 weights.

    They have flags, masks of one or more of `ndims` axes, and a scale; GPU flags too if `gpu`.

    >>> from hypothesis import find
    >>> find(extras(2), lambda e: e.flags == 9).flags
    9
    """
    return strategy(kinds.draw_extras)(ndims, gpu=gpu)


def unbound_descriptors() -> st.SearchStrategy[tuple[MemoryDesc, MemoryDesc, str]]:
    """Return a strategy of triples: a descriptor with RUNTIME dims, the same with these dims bound, their tag.

    >>> from hypothesis import find
    >>> unbound, bound, tag = find(unbound_descriptors(), lambda drawn: drawn[0].has_runtime)
    >>> unbound.bind(bound.dims, format=tag) == bound
    True
    """
    return strategy(kinds.draw_unbound)()


def reorder_problems(
    *, sub_byte: bool = False, convert: bool = False, large: bool = False
) -> st.SearchStrategy[tuple[MemoryDesc, MemoryDesc]]:
    """Return a strategy of pairs: a source and a destination of equal dims that a reorder accepts.

    Sources may be broadcast. Both may have padding or gaps, be part of a larger memory, and have blocks of sizes that
    do not divide each other (8 and 12). Both have the same type, a 4-bit type only if `sub_byte`; if `convert`, they
    have two independent types. If `large`, two dims are 64 to 130, which make whole vector tiles and remainders.

    >>> from hypothesis import find
    >>> src, dst = find(reorder_problems(convert=True), lambda pair: pair[0].data_type != pair[1].data_type)
    >>> src.dims == dst.dims
    True
    """
    return strategy(drawing.draw_reorder_problem)(sub_byte=sub_byte, convert=convert, large=large)


def weight_problems(*, large: bool = False) -> st.SearchStrategy[tuple[MemoryDesc, MemoryDesc]]:
    """Return a strategy of pairs: a source of any type, and int8 weights of equal dims with extras.

    The extras have flags that a reorder computes: 1, 2 and 8. If `large`, two dims are 64 to 130.

    >>> from hypothesis import find
    >>> src, dst = find(weight_problems(), lambda pair: pair[1].extras.flags == 9)
    >>> src.dims == dst.dims, dst.data_type.name
    (True, 's8')
    """
    return strategy(kinds.draw_weight_problem)(large=large)


def attributes(src: MemoryDesc, dst: MemoryDesc) -> st.SearchStrategy[Attributes]:
    """Return a strategy of attributes that a reorder from `src` to `dst` accepts.

    Scales and zero points have masks, groups and types of values; there may be a sum and stochastic rounding.

    >>> from hypothesis import find
    >>> src, dst = MemoryDesc((4, 6), "s8"), MemoryDesc((4, 6), "f32")
    >>> find(attributes(src, dst), lambda a: a.src_scales and a.src_scales.groups[:1] == (2,)).src_scales.mask
    3
    """
    return strategy(kinds.draw_attributes)(src, dst)


def sparse_descriptors(
    dims: Dims | None = None, data_type: DataTypeLike | None = None, *, packed: bool = False
) -> st.SearchStrategy[MemoryDesc]:
    """Return a strategy of CSR and COO descriptors, and packed ones if `packed`, that store none, some or all elements.

    The types of indices and pointers can represent every coordinate and `nnz`.

    >>> from hypothesis import find
    >>> find(sparse_descriptors((2, 3), "f32"), lambda d: d.sparse_encoding == "csr" and d.nnz > 1).dims
    (2, 3)
    """
    return strategy(drawing.draw_sparse_descriptor)(dims, data_type, packed=packed)


def sparse_memories(
    dims: Dims | None = None, data_type: DataTypeLike | None = None, *, ordered: bool = True
) -> st.SearchStrategy[Memory]:
    """Return a strategy of CSR and COO memory with random bits as values, including zeros.

    If not `ordered`, entries are in any order.

    >>> from hypothesis import find
    >>> find(sparse_memories((4,), "s8"), lambda m: m.unpack().any()).desc
    MemoryDesc.coo((4,), 's8', 1)
    """
    return strategy(drawing.draw_sparse_memory)(dims, data_type, ordered=ordered)
