"""The Hypothesis strategies: each draws by the function of `drawing` or `kinds` that bears its name.

>>> from hypothesis import find
>>> find(shapes(2), lambda dims: 0 in dims)
(0, 1)
"""

from hypothesis import strategies as st

from inlay.data_type import DataType, DataTypeLike
from inlay.descriptor import Extras, MemoryDesc
from inlay.layout import Dims, Layout
from inlay.memory import Memory
from inlay.notation.format_tag import FormatTag
from inlay.reordering.attributes import Attributes
from inlay.testing import drawing, kinds
from inlay.testing.choices import strategy


def data_types(*, sub_byte: bool = True) -> st.SearchStrategy[DataType]:
    """Any data type; without those of 4 bits where `sub_byte` is False.

    >>> from hypothesis import find
    >>> find(data_types(), lambda t: t.bits == 64).bits
    64
    """
    return strategy(drawing.draw_data_type)(sub_byte=sub_byte)


def shapes(ndims: int | None = None, *, max_size: int = 5000, zero: bool = True) -> st.SearchStrategy[Dims]:
    """Dims with at most `max_size` elements, 1 to 5 of them unless `ndims` says how many; 0 among them if `zero`.

    >>> from hypothesis import find
    >>> find(shapes(3), lambda dims: min(dims) > 1)
    (2, 2, 2)
    """
    return strategy(drawing.draw_shape)(ndims, max_size=max_size, zero=zero)


def format_tags(ndims: int | None = None, *, min_blocks: int = 0, max_blocks: int = 3) -> st.SearchStrategy[FormatTag]:
    """Any order of 1 to 6 axes, or of `ndims`, with so many inner blocks, several on one axis too.

    >>> from hypothesis import find
    >>> find(format_tags(2), lambda tag: tag.blocks(0) == 4 and tag.blocks(1) == 1).blocks(0)
    4
    """
    return strategy(drawing.draw_tag)(ndims, min_blocks=min_blocks, max_blocks=max_blocks)


def layouts(*, max_size: int = 1000) -> st.SearchStrategy[Layout]:
    """Any layout of 0 to 4 axes: strides of any sign, zero and overlapping ones, digits that end inside a block.

    >>> from hypothesis import find
    >>> find(layouts(), lambda layout: layout.overlaps).overlaps
    True
    """
    return strategy(drawing.draw_layout)(max_size=max_size)


def descriptors(
    dims: Dims | None = None, data_type: DataTypeLike | None = None, *, broadcast: bool = False
) -> st.SearchStrategy[MemoryDesc]:
    """A descriptor with addresses: by tag, strides with gaps, a pattern, or a submemory of one of these.

    Its elements do not overlap, so it can be a destination, unless `broadcast` lets strides be 0.

    >>> from hypothesis import find
    >>> find(descriptors((17, 3), "f32"), lambda d: d.padded_dims[0] == 20).padded_dims
    (20, 3)
    """
    return strategy(drawing.draw_descriptor)(dims, data_type, broadcast=broadcast)


def any_descriptors() -> st.SearchStrategy[MemoryDesc]:
    """A descriptor of any kind: layouts of every spelling, extras, RUNTIME entries, views of views, sparse, opaque.

    >>> from hypothesis import find
    >>> find(any_descriptors(), lambda d: d.kind == "host_scalar").kind
    'host_scalar'
    """
    return strategy(kinds.draw_any_descriptor)()


def extras(ndims: int, *, gpu: bool = False) -> st.SearchStrategy[Extras]:
    """Flags of int8 weights with what they need, masks of 1 to all of `ndims` axes; the GPU's flags too if `gpu`.

    >>> from hypothesis import find
    >>> find(extras(2), lambda e: e.flags == 9).flags
    9
    """
    return strategy(kinds.draw_extras)(ndims, gpu=gpu)


def unbound_descriptors() -> st.SearchStrategy[tuple[MemoryDesc, MemoryDesc, str]]:
    """A descriptor by tag with RUNTIME dims, the one it becomes once they are bound, and the tag of both.

    >>> from hypothesis import find
    >>> unbound, bound, tag = find(unbound_descriptors(), lambda drawn: drawn[0].has_runtime)
    >>> unbound.bind(bound.dims, format=tag) == bound
    True
    """
    return strategy(kinds.draw_unbound)()


def reorder_problems(
    *, sub_byte: bool = False, convert: bool = False, large: bool = False
) -> st.SearchStrategy[tuple[MemoryDesc, MemoryDesc]]:
    """A source and a destination of equal dims that a reorder accepts.

    Sources may be broadcast; both may be padded, hold gaps, or be part of a larger memory; indivisible pairs of blocks
    (8 and 12) occur. `sub_byte` admits types of 4 bits, `convert` asks for two types with a conversion instead of one
    type, and `large` for two dims of 64 to 130, which fill whole vector tiles and leave tails.

    >>> from hypothesis import find
    >>> src, dst = find(reorder_problems(convert=True), lambda pair: pair[0].data_type != pair[1].data_type)
    >>> src.dims == dst.dims
    True
    """
    return strategy(drawing.draw_reorder_problem)(sub_byte=sub_byte, convert=convert, large=large)


def weight_problems(*, large: bool = False) -> st.SearchStrategy[tuple[MemoryDesc, MemoryDesc]]:
    """A source of any type, and int8 weights of equal dims with extras that a reorder computes: flags 1, 2 and 8.

    `large` asks for two dims of 64 to 130.

    >>> from hypothesis import find
    >>> src, dst = find(weight_problems(), lambda pair: pair[1].extras.flags == 9)
    >>> src.dims == dst.dims, dst.data_type.name
    (True, 's8')
    """
    return strategy(kinds.draw_weight_problem)(large=large)


def attributes(src: MemoryDesc, dst: MemoryDesc) -> st.SearchStrategy[Attributes]:
    """Attributes that a reorder from `src` to `dst` can have: masks, groups and types of values, sum, rounding.

    >>> from hypothesis import find
    >>> src, dst = MemoryDesc((4, 6), "s8"), MemoryDesc((4, 6), "f32")
    >>> find(attributes(src, dst), lambda a: a.src_scales and a.src_scales.groups[:1] == (2,)).src_scales.mask
    3
    """
    return strategy(kinds.draw_attributes)(src, dst)


def sparse_descriptors(
    dims: Dims | None = None, data_type: DataTypeLike | None = None, *, packed: bool = False
) -> st.SearchStrategy[MemoryDesc]:
    """A CSR or COO descriptor, or a packed one if `packed`, that stores none, some or all of its elements.

    Types of indices and pointers are wide enough for every coordinate and for `nnz`.

    >>> from hypothesis import find
    >>> find(sparse_descriptors((2, 3), "f32"), lambda d: d.sparse_encoding == "csr" and d.nnz > 1).dims
    (2, 3)
    """
    return strategy(drawing.draw_sparse_descriptor)(dims, data_type, packed=packed)


def sparse_memories(
    dims: Dims | None = None, data_type: DataTypeLike | None = None, *, ordered: bool = True
) -> st.SearchStrategy[Memory]:
    """CSR or COO memory with any bits for values, zeros among them; entries in any order unless `ordered`.

    >>> from hypothesis import find
    >>> find(sparse_memories((4,), "s8"), lambda m: m.unpack().any()).desc
    MemoryDesc.coo((4,), 's8', 1)
    """
    return strategy(drawing.draw_sparse_memory)(dims, data_type, ordered=ordered)
