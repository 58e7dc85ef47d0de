"""Random descriptors, layouts, attributes and sparse memory, for tests of Inlay and of code that uses it.

Hypothesis strategies draw small tensors (thousands of elements) that cover the rules of descriptors: dims of 1 and 0,
blocks of odd sizes, two or three blocks on one axis, padding, gaps, submemories, and digits in orders that no tag
describes. A property test with them covers more formats than a list does:

    >>> from hypothesis import given, settings
    >>> @settings(max_examples=20, deadline=None, database=None)
    ... @given(descriptors())
    ... def every_coordinate_has_an_address(desc):
    ...     if 0 not in desc.dims:
    ...         assert desc.offset([0] * desc.ndims) == desc.offset0
    >>> every_coordinate_has_an_address()

Each strategy calls a function that takes a source of choices (`Choices`). The source `Seeded`, Python's random
generator, is at least ten times as fast as Hypothesis but does not shrink failing cases. Use it for many cases:

    >>> choose = Seeded(7)
    >>> descs = [draw_descriptor(choose, broadcast=True) for _ in range(1000)]
    >>> {desc.kind for desc in descs} == {"blocked", "digits"}
    True

Each module uses those before it:

    choices       sources of random choices: Hypothesis and a seeded generator
    drawing       shapes, tags, layouts, descriptors, sparse memory
    cases         calls of descriptor operations with valid and invalid arguments
    kinds         descriptors of every kind, attributes, int8 weights
    strategies    Hypothesis strategies for these values

Terms:

    strategy        a description of random values from which Hypothesis draws (Hypothesis documentation, "Strategies")
    shrinking       the search of Hypothesis for the simplest value that still fails
    choice          one random decision: an integer, a pick from a list, a permutation
    tag, pattern    notations of memory formats; see `inlay.notation`
    digit           one factor of the index of an axis, with its own stride; see `inlay.layout`
    extras          compensation and scale of int8 weights (oneDNN: `memory_extra_desc_t`)
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
    draw_swizzle,
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
    swizzles,
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
    "draw_swizzle",
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
    "swizzles",
    "unbound_descriptors",
    "weight_problems",
]
