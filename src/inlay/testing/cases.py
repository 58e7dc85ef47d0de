"""Calls of descriptor operations with random arguments: about half of them valid, the others with one wrong argument.

A case holds the arguments of one call; `run` executes it in Inlay. A test can execute the same call in another
implementation and compare the results. Every function here takes a source of choices:

    >>> from inlay.testing.choices import Seeded
    >>> case = draw_permute(Seeded(0), Scope(huge=False))
    >>> case.run() == case.desc.permute_axes(case.permutation)
    True

`Scope` lists the features that both implementations support, such as the data types of an older oneDNN.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from inlay.data_type import DATA_TYPES, DataType
from inlay.descriptor import MemoryDesc
from inlay.errors import InlayError
from inlay.layout import RUNTIME, Axis, Dims, Layout
from inlay.notation.format_tag import ENUMERATED, FormatTag
from inlay.testing.choices import Choices, check_arguments
from inlay.testing.drawing import draw_descriptor, draw_shape, draw_tag, nested_strides

_SOME_DIMS = (1, 2, 3, 4, 5, 6, 1, 2, 3, 4, 0, 8, 12, 16, 17, 31, 32)
_ONE_IN_TEN = (True,) + (False,) * 9
_EITHER = (True, False)


@dataclass(frozen=True, slots=True)
class Scope:
    """The set of features that cases may use."""

    data_types: Sequence[DataType] = tuple(DATA_TYPES.values())
    """Data types of elements."""
    tags: Sequence[str] = tuple(ENUMERATED)
    """Format tags, in addition to `any` and `undef`."""
    encodings: Sequence[str] = ("csr", "coo", "packed")
    """Sparse encodings."""
    host_scalar: bool = True
    """True if host scalars are supported."""
    huge: bool = True
    """True if dims and strides may be so large that the number of elements or bytes overflows."""


@dataclass(frozen=True, slots=True)
class ByTag:
    """Creation of a descriptor by dims, type and tag; the tag may be `any` or `undef`."""

    dims: Dims
    data_type: DataType
    tag: str

    def run(self) -> MemoryDesc:
        """Create the descriptor in Inlay."""
        return MemoryDesc(self.dims, self.data_type, self.tag)


@dataclass(frozen=True, slots=True)
class ByStrides:
    """Creation of a descriptor by dims, type and strides; None means dense row-major strides."""

    dims: Dims
    data_type: DataType
    strides: Dims | None

    def run(self) -> MemoryDesc:
        """Create the descriptor in Inlay."""
        return MemoryDesc(self.dims, self.data_type, strides=self.strides)


@dataclass(frozen=True, slots=True)
class Submemory:
    """Creation of a submemory: a box of coordinates of a descriptor."""

    desc: MemoryDesc
    dims: Dims
    offsets: Dims

    def run(self) -> MemoryDesc:
        """Create the submemory in Inlay."""
        return self.desc.submemory(self.dims, self.offsets)


@dataclass(frozen=True, slots=True)
class Reshape:
    """Reshape of a descriptor to other dims."""

    desc: MemoryDesc
    dims: Dims

    def run(self) -> MemoryDesc:
        """Reshape the descriptor in Inlay."""
        return self.desc.reshape(self.dims)


@dataclass(frozen=True, slots=True)
class Permute:
    """Permutation of the axes of a descriptor."""

    desc: MemoryDesc
    permutation: Dims

    def run(self) -> MemoryDesc:
        """Permute the axes in Inlay."""
        return self.desc.permute_axes(self.permutation)


@dataclass(frozen=True, slots=True)
class Pair:
    """Comparison of two descriptors for equality."""

    desc: MemoryDesc
    other: MemoryDesc

    def run(self) -> bool:
        """Return True if Inlay considers the descriptors equal."""
        return self.desc == self.other


@check_arguments(scope=Scope)
def draw_by_tag(choose: Choices, scope: Scope) -> ByTag:
    """Draw a creation by any tag of the scope; one in eight times with a random number of dims."""
    data_type = choose.pick(scope.data_types)
    text = choose.pick(("any", "undef")) if choose.integer(0, 19) == 0 else choose.pick(scope.tags)
    ndims = FormatTag.parse(text).ndims if text not in ("any", "undef") else choose.integer(1, 12)
    if choose.integer(0, 7) == 0:
        ndims = choose.integer(0, 13)
    return ByTag(_draw_dims(choose, ndims, scope), data_type, text)


@check_arguments(scope=Scope)
def draw_by_strides(choose: Choices, scope: Scope) -> ByStrides:
    """Draw a creation by nested strides with gaps, half of the time with one wrong stride; seldom without strides."""
    data_type = choose.pick(scope.data_types)
    ndims = choose.integer(0, 13) if choose.pick(_ONE_IN_TEN) else choose.integer(1, 6)
    dims = _draw_dims(choose, ndims, scope)
    if not dims or choose.pick(_ONE_IN_TEN):
        return ByStrides(dims, data_type, None)
    strides = nested_strides(choose, dims, data_type)
    strides = [max(-(2**62), min(stride, 2**62)) for stride in strides]
    if choose.pick(_EITHER):
        wrong = choose.pick((-1, 0, 0, 1, 2, 3, 5, 7, 12, RUNTIME, 2 ** choose.integer(20, 62) if scope.huge else 3))
        strides[choose.integer(0, ndims - 1)] = wrong
    return ByStrides(dims, data_type, tuple(strides))


def _draw_dims(choose: Choices, ndims: int, scope: Scope) -> Dims:
    """Draw `ndims` dims, one in three times with one or two entries that are RUNTIME, negative or huge."""
    dims = [choose.pick(_SOME_DIMS) for _ in range(ndims)]
    if dims and choose.integer(0, 2) == 0:
        special = choose.pick((RUNTIME, -1, 2 ** choose.integer(20, 62) if scope.huge else RUNTIME))
        for i in choose.several(range(ndims), 1, 2):
            dims[i] = special
    return tuple(dims)


@check_arguments(scope=Scope)
def draw_blocked(choose: Choices, scope: Scope) -> MemoryDesc:
    """Draw a descriptor of kind `blocked`, which oneDNN can represent, including submemories and broadcast strides."""
    while True:
        desc = draw_descriptor(choose, data_type=choose.pick(scope.data_types), broadcast=True)
        if desc.kind == "blocked":
            return desc


@check_arguments(scope=Scope)
def draw_any_kind(choose: Choices, scope: Scope) -> MemoryDesc:
    """Draw a descriptor of any kind in the scope, including the zero descriptor and RUNTIME dims and strides."""
    data_type = choose.pick(scope.data_types)
    dims = draw_shape(choose)
    kind = choose.pick(("any", "zero", "runtime", "runtime", *scope.encodings, *(("host_scalar",) * scope.host_scalar)))
    match kind:
        case "any":
            return MemoryDesc(dims, data_type, "any")
        case "zero":
            return MemoryDesc()
        case "runtime":
            return _draw_with_runtime(choose, data_type)
        case "host_scalar":
            return MemoryDesc.host_scalar(data_type)
        case _:
            return _draw_sparse(choose, scope, kind, dims, data_type)


def _draw_with_runtime(choose: Choices, data_type: DataType) -> MemoryDesc:
    """Draw a descriptor with one RUNTIME dim, and with a tag or with strides that may be RUNTIME."""
    dims = list(draw_shape(choose))
    dims[choose.integer(0, len(dims) - 1)] = RUNTIME
    if choose.pick(_EITHER):
        return MemoryDesc(dims, data_type, draw_tag(choose, len(dims)))
    return MemoryDesc(dims, data_type, strides=[choose.pick((RUNTIME, 1, 24)) for _ in dims])


def _draw_sparse(choose: Choices, scope: Scope, encoding: str, dims: Dims, data_type: DataType) -> MemoryDesc:
    """Draw a sparse descriptor with a number of dims that oneDNN supports; one in ten has a RUNTIME dim."""
    dims = dims if encoding == "packed" else dims[:2]
    nnz = 0 if 0 in dims else choose.integer(0, min(dims))
    if choose.pick(_ONE_IN_TEN):
        dims = (RUNTIME, *dims[1:])
    integers = [t for t in scope.data_types if t.kind != "float" and not t.is_sub_byte]
    match encoding:
        case "csr":
            return MemoryDesc.csr(dims, data_type, nnz, choose.pick(integers), choose.pick(integers))
        case "coo":
            return MemoryDesc.coo(dims, data_type, nnz, choose.pick(integers))
        case _:
            return MemoryDesc.packed(dims, data_type, nnz)


def _draw_mostly_blocked(choose: Choices, scope: Scope) -> MemoryDesc:
    """Draw a descriptor of any kind in one of ten cases, else a blocked one."""
    return draw_any_kind(choose, scope) if choose.pick(_ONE_IN_TEN) else draw_blocked(choose, scope)


@check_arguments(scope=Scope)
def draw_submemory(choose: Choices, scope: Scope) -> Submemory:
    """Draw boxes that begin and end at block boundaries, at the end of an axis, or anywhere, seldom outside the tensor.

    One in fifty has a RUNTIME entry.
    """
    desc = _draw_mostly_blocked(choose, scope)
    blocks = [axis.block for axis in desc.layout.axes] if isinstance(desc.layout, Layout) else [1] * desc.ndims
    is_valid = choose.pick(_EITHER)
    dims, offsets = [], []
    for dim, block in zip([max(0, dim) for dim in desc.dims], blocks, strict=True):
        boundary = block * choose.integer(0, dim // block)
        offsets_to_pick = (0, boundary) if is_valid else (0, boundary, boundary, choose.integer(-1, dim))
        offset = choose.pick(offsets_to_pick)
        extents = (dim - offset, dim - offset, min(block, dim - offset))
        dims.append(choose.pick(extents if is_valid else (*extents, choose.integer(0, dim))))
        offsets.append(offset)
    if dims and choose.integer(0, 49) == 0:
        choose.pick((dims, offsets))[0] = RUNTIME
    return Submemory(desc, tuple(dims), tuple(offsets))


@check_arguments(scope=Scope)
def draw_reshape(choose: Choices, scope: Scope) -> Reshape:
    """Draw a reshape that splits and joins axes, and removes and inserts axes of dim 1.

    Seldom, axes are permuted, or the number of elements changes.
    """
    desc = _draw_mostly_blocked(choose, scope)
    is_simple = choose.pick(_EITHER)
    dims: list[int] = []
    for i, dim in enumerate(desc.dims):
        if dim == 1 and choose.pick(_EITHER):
            continue
        factors = [f for f in (2, 3, 5, 7) if dim > f and dim % f == 0]
        split = factors and choose.integer(0, 3) == 0
        if split and not (is_simple and _is_blocked_or_padded(desc, i)):
            factor = choose.pick(factors)
            dims += choose.shuffled((factor, dim // factor))
        else:
            dims.append(dim)
    if not is_simple:
        _join_some(choose, dims)
    for _ in range(choose.integer(0, 2)):
        dims.insert(choose.integer(0, len(dims)), 1)
    if choose.integer(0, 19) == 0:
        dims = choose.shuffled(dims)
    if dims and choose.integer(0, 19) == 0:
        dims[0] = choose.pick((dims[0] + 1, RUNTIME, -1))
    return Reshape(desc, tuple(dims))


def _is_blocked_or_padded(desc: MemoryDesc, i: int) -> bool:
    """Return True if axis `i` has blocks or padding, so that not every split of it is possible."""
    if not isinstance(desc.layout, Layout):
        return False
    return desc.padded_dims[i] != desc.dims[i] or bool(desc.layout.axes[i].inner)


def _join_some(choose: Choices, dims: list[int]) -> None:
    """Replace some pairs of adjacent dims by their product, in place."""
    i = 0
    while i + 1 < len(dims):
        if choose.integer(0, 4) == 0:
            dims[i : i + 2] = [dims[i] * dims[i + 1]]
        else:
            i += 1


@check_arguments(scope=Scope)
def draw_permute(choose: Choices, scope: Scope) -> Permute:
    """Draw a permutation of the axes; one in five times with one entry replaced by another number."""
    desc = _draw_mostly_blocked(choose, scope)
    permutation = choose.shuffled(range(desc.ndims))
    if permutation and choose.integer(0, 4) == 0:
        permutation[choose.integer(0, desc.ndims - 1)] = choose.integer(-1, desc.ndims)
    return Permute(desc, tuple(permutation))


@check_arguments(scope=Scope)
def draw_pair(choose: Choices, scope: Scope) -> Pair:
    """Draw a descriptor, and the same one or one that may differ in a stride, the type, the padding or the offset."""
    desc = _draw_mostly_blocked(choose, scope)
    if not isinstance(desc.layout, Layout) or desc.data_type is None:
        return Pair(desc, desc if choose.pick(_EITHER) else draw_any_kind(choose, scope))
    try:
        return Pair(desc, _draw_variant(choose, scope, desc, desc.layout, desc.data_type))
    except InlayError:
        return Pair(desc, desc)


def _draw_variant(choose: Choices, scope: Scope, desc: MemoryDesc, layout: Layout, data_type: DataType) -> MemoryDesc:
    """Draw a descriptor that differs from `desc` in one respect, or in none."""
    start, dims = desc.offset0, desc.dims
    match choose.pick(("nothing", "nothing", "stride", "stride", "stride", "type", "blocks", "reshaped", "offset")):
        case "stride":
            i = choose.integer(0, desc.ndims - 1)
            axes = list(layout.axes)
            axes[i] = Axis(axes[i].stride + choose.integer(0, 9), axes[i].inner)
            layout = Layout(layout.dims, tuple(axes))
        case "type":
            data_type = choose.pick([t for t in scope.data_types if not t.is_sub_byte])
        case "blocks":
            return MemoryDesc(dims, data_type, strides=desc.strides)
        case "reshaped":
            return desc.reshape(dims)
        case "offset":
            start += choose.integer(0, 1)
    variant = MemoryDesc.from_layout(layout, data_type, dims=dims, offset0=start)
    # Other implementations cannot represent strides that do not nest, which have another kind here.
    return variant if variant.kind == desc.kind else desc
