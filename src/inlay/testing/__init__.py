"""Random descriptors and everything that describes memory: for tests of Inlay and of code that uses it.

Hypothesis strategies draw small values (thousands of elements) that are as unlike as the rules allow: unit and zero
dims, blocks of odd sizes, two or three blocks on one axis, padding, gaps, submemories, digits in an order no tag can
say. A law that holds for what is drawn here is worth more than any list of formats:

    >>> from hypothesis import given, settings
    >>> @settings(max_examples=20, deadline=None, database=None)
    ... @given(descriptors())
    ... def every_coordinate_has_an_address(desc):
    ...     if 0 not in desc.dims:
    ...         assert desc.offset([0] * desc.ndims) == desc.offset0
    >>> every_coordinate_has_an_address()

Behind each strategy is a function of `Choices`, which a seeded generator can make too, ten times faster and more, but
without shrinking. Where a hundred thousand cases are wanted, draw from that:

    >>> choose = Seeded(7)
    >>> descs = [draw_descriptor(choose, broadcast=True) for _ in range(1000)]
    >>> {desc.kind for desc in descs} == {"blocked", "digits"}
    True

In the order in which they build on each other:

    choices       where drawn values come from
    drawing       shapes, tags, layouts, descriptors, sparse memory
    cases         operations on descriptors, with arguments worth asking
    kinds         descriptors of every kind, attributes, int8 weights
    strategies    all of these for Hypothesis
"""

from inlay.testing.cases import (
    ByStrides,
    ByTag,
    Pair,
    Permute,
    Reshape,
    Scope,
    Submemory,
    draw_any_kind,
    draw_blocked,
    draw_by_strides,
    draw_by_tag,
    draw_pair,
    draw_permute,
    draw_reshape,
    draw_submemory,
)
from inlay.testing.choices import Choices, Drawn, Seeded, strategy
from inlay.testing.drawing import (
    BLOCK_SIZES,
    CONVERTIBLE,
    draw_data_type,
    draw_descriptor,
    draw_layout,
    draw_reorder_problem,
    draw_shape,
    draw_sparse_descriptor,
    draw_sparse_memory,
    draw_tag,
)
from inlay.testing.kinds import (
    draw_any_descriptor,
    draw_attributes,
    draw_extras,
    draw_flagged,
    draw_unbound,
    draw_weight_problem,
)
from inlay.testing.strategies import (
    any_descriptors,
    attributes,
    data_types,
    descriptors,
    extras,
    format_tags,
    layouts,
    reorder_problems,
    shapes,
    sparse_descriptors,
    sparse_memories,
    unbound_descriptors,
    weight_problems,
)

__all__ = [
    "BLOCK_SIZES",
    "CONVERTIBLE",
    "ByStrides",
    "ByTag",
    "Choices",
    "Drawn",
    "Pair",
    "Permute",
    "Reshape",
    "Scope",
    "Seeded",
    "Submemory",
    "any_descriptors",
    "attributes",
    "data_types",
    "descriptors",
    "draw_any_descriptor",
    "draw_any_kind",
    "draw_attributes",
    "draw_blocked",
    "draw_by_strides",
    "draw_by_tag",
    "draw_data_type",
    "draw_descriptor",
    "draw_extras",
    "draw_flagged",
    "draw_layout",
    "draw_pair",
    "draw_permute",
    "draw_reorder_problem",
    "draw_reshape",
    "draw_shape",
    "draw_sparse_descriptor",
    "draw_sparse_memory",
    "draw_submemory",
    "draw_tag",
    "draw_unbound",
    "draw_weight_problem",
    "extras",
    "format_tags",
    "layouts",
    "reorder_problems",
    "shapes",
    "sparse_descriptors",
    "sparse_memories",
    "strategy",
    "unbound_descriptors",
    "weight_problems",
]
