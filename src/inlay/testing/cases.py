"""Operations on descriptors with arguments worth asking: about half of them valid, the others spoiled in one way.

A case is a value that knows how to run itself, so another implementation can be asked the same and the two answers
compared. Every function draws by `Choices`:

    >>> from inlay.testing.choices import Seeded
    >>> case = draw_permute(Seeded(0), Scope(huge=False))
    >>> case.run() == case.desc.permute_axes(case.permutation)
    True

`Scope` says what both implementations know, such as the data types of an older oneDNN.
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
_TENTH = (True,) + (False,) * 9
_EITHER = (True, False)


@dataclass(frozen=True, slots=True)
class Scope:
    """What may be drawn."""

    data_types: Sequence[DataType] = tuple(DATA_TYPES.values())
    """The types of elements."""
    tags: Sequence[str] = tuple(ENUMERATED)
    """The format tags, besides `any` and `undef`."""
    encodings: Sequence[str] = ("csr", "coo", "packed")
    """The sparse encodings."""
    host_scalar: bool = True
    """Whether that kind is known."""
    huge: bool = True
    """Whether dims and strides may be so large that counts of elements or bytes overflow."""


@dataclass(frozen=True, slots=True)
class ByTag:
    """Creation by dims, type and a tag, `any` or `undef`."""

    dims: Dims
    data_type: DataType
    tag: str

    def run(self) -> MemoryDesc:
        """What Inlay creates."""
        return MemoryDesc(self.dims, self.data_type, self.tag)


@dataclass(frozen=True, slots=True)
class ByStrides:
    """Creation by dims, type and strides; None asks for the dense row-major ones."""

    dims: Dims
    data_type: DataType
    strides: Dims | None

    def run(self) -> MemoryDesc:
        """What Inlay creates."""
        return MemoryDesc(self.dims, self.data_type, strides=self.strides)


@dataclass(frozen=True, slots=True)
class Submemory:
    """A box of a descriptor."""

    desc: MemoryDesc
    dims: Dims
    offsets: Dims

    def run(self) -> MemoryDesc:
        """Inlay's view."""
        return self.desc.submemory(self.dims, self.offsets)


@dataclass(frozen=True, slots=True)
class Reshape:
    """A descriptor under other dims."""

    desc: MemoryDesc
    dims: Dims

    def run(self) -> MemoryDesc:
        """Inlay's view."""
        return self.desc.reshape(self.dims)


@dataclass(frozen=True, slots=True)
class Permute:
    """A descriptor with its axes relabeled."""

    desc: MemoryDesc
    permutation: Dims

    def run(self) -> MemoryDesc:
        """Inlay's view."""
        return self.desc.permute_axes(self.permutation)


@dataclass(frozen=True, slots=True)
class Pair:
    """Two descriptors that may be equal."""

    desc: MemoryDesc
    other: MemoryDesc

    def run(self) -> bool:
        """Whether they are, in Inlay."""
        return self.desc == self.other


@check_arguments(scope=Scope)
def draw_by_tag(choose: Choices, scope: Scope) -> ByTag:
    """By any tag of the scope; seldom with dims that it does not place."""
    data_type = choose.pick(scope.data_types)
    text = choose.pick(("any", "undef")) if choose.integer(0, 19) == 0 else choose.pick(scope.tags)
    ndims = FormatTag.parse(text).ndims if text not in ("any", "undef") else choose.integer(1, 12)
    if choose.integer(0, 7) == 0:
        ndims = choose.integer(0, 13)
    return ByTag(_dims(choose, ndims, scope), data_type, text)


@check_arguments(scope=Scope)
def draw_by_strides(choose: Choices, scope: Scope) -> ByStrides:
    """Nested strides with gaps, of which about half are then spoiled; seldom the default ones."""
    data_type = choose.pick(scope.data_types)
    ndims = choose.integer(0, 13) if choose.pick(_TENTH) else choose.integer(1, 6)
    dims = _dims(choose, ndims, scope)
    if not dims or choose.pick(_TENTH):
        return ByStrides(dims, data_type, None)
    strides = nested_strides(choose, dims, data_type)
    strides = [max(-(2**62), min(stride, 2**62)) for stride in strides]
    if choose.pick(_EITHER):
        spoiled = choose.pick((-1, 0, 0, 1, 2, 3, 5, 7, 12, RUNTIME, 2 ** choose.integer(20, 62) if scope.huge else 3))
        strides[choose.integer(0, ndims - 1)] = spoiled
    return ByStrides(dims, data_type, tuple(strides))


def _dims(choose: Choices, ndims: int, scope: Scope) -> Dims:
    """So many dims, one in three times with entries that are RUNTIME, negative or huge."""
    dims = [choose.pick(_SOME_DIMS) for _ in range(ndims)]
    if dims and choose.integer(0, 2) == 0:
        odd = choose.pick((RUNTIME, -1, 2 ** choose.integer(20, 62) if scope.huge else RUNTIME))
        for i in choose.several(range(ndims), 1, 2):
            dims[i] = odd
    return tuple(dims)


@check_arguments(scope=Scope)
def draw_blocked(choose: Choices, scope: Scope) -> MemoryDesc:
    """A descriptor that oneDNN can say, parts of others and broadcast ones among them."""
    while True:
        desc = draw_descriptor(choose, data_type=choose.pick(scope.data_types), broadcast=True)
        if desc.kind == "blocked":
            return desc


@check_arguments(scope=Scope)
def draw_any_kind(choose: Choices, scope: Scope) -> MemoryDesc:
    """A descriptor of any kind in the scope, the zero descriptor and those with RUNTIME entries among them."""
    data_type = choose.pick(scope.data_types)
    dims = draw_shape(choose)
    kind = choose.pick(("any", "zero", "runtime", "runtime", *scope.encodings, *(("host_scalar",) * scope.host_scalar)))
    match kind:
        case "any":
            return MemoryDesc(dims, data_type, "any")
        case "zero":
            return MemoryDesc()
        case "runtime":
            return _with_runtime(choose, data_type)
        case "host_scalar":
            return MemoryDesc.host_scalar(data_type)
        case _:
            return _sparse(choose, scope, kind, dims, data_type)


def _with_runtime(choose: Choices, data_type: DataType) -> MemoryDesc:
    dims = list(draw_shape(choose))
    dims[choose.integer(0, len(dims) - 1)] = RUNTIME
    if choose.pick(_EITHER):
        return MemoryDesc(dims, data_type, draw_tag(choose, len(dims)))
    return MemoryDesc(dims, data_type, strides=[choose.pick((RUNTIME, 1, 24)) for _ in dims])


def _sparse(choose: Choices, scope: Scope, encoding: str, dims: Dims, data_type: DataType) -> MemoryDesc:
    """With oneDNN's number of dims, RUNTIME seldom among them."""
    dims = dims if encoding == "packed" else dims[:2]
    nnz = 0 if 0 in dims else choose.integer(0, min(dims))
    if choose.pick(_TENTH):
        dims = (RUNTIME, *dims[1:])
    integers = [t for t in scope.data_types if t.kind != "float" and not t.is_sub_byte]
    match encoding:
        case "csr":
            return MemoryDesc.csr(dims, data_type, nnz, choose.pick(integers), choose.pick(integers))
        case "coo":
            return MemoryDesc.coo(dims, data_type, nnz, choose.pick(integers))
        case _:
            return MemoryDesc.packed(dims, data_type, nnz)


def _mostly_blocked(choose: Choices, scope: Scope) -> MemoryDesc:
    return draw_any_kind(choose, scope) if choose.pick(_TENTH) else draw_blocked(choose, scope)


@check_arguments(scope=Scope)
def draw_submemory(choose: Choices, scope: Scope) -> Submemory:
    """Boxes that begin and end at blocks, at the border, or anywhere; seldom outside, or RUNTIME."""
    desc = _mostly_blocked(choose, scope)
    blocks = [axis.block for axis in desc.layout.axes] if isinstance(desc.layout, Layout) else [1] * desc.ndims
    careful = choose.pick(_EITHER)
    dims, offsets = [], []
    for dim, block in zip([max(0, dim) for dim in desc.dims], blocks, strict=True):
        whole = block * choose.integer(0, dim // block)
        offset = choose.pick((0, whole)) if careful else choose.pick((0, whole, whole, choose.integer(-1, dim)))
        ends = (dim - offset, dim - offset, min(block, dim - offset))
        dims.append(choose.pick(ends if careful else (*ends, choose.integer(0, dim))))
        offsets.append(offset)
    if dims and choose.integer(0, 49) == 0:
        choose.pick((dims, offsets))[0] = RUNTIME
    return Submemory(desc, tuple(dims), tuple(offsets))


@check_arguments(scope=Scope)
def draw_reshape(choose: Choices, scope: Scope) -> Reshape:
    """Axes split, joined, unit axes dropped and inserted, sometimes out of order or of another volume."""
    desc = _mostly_blocked(choose, scope)
    gentle = choose.pick(_EITHER)
    dims: list[int] = []
    for i, dim in enumerate(desc.dims):
        if dim == 1 and choose.pick(_EITHER):
            continue
        factors = [f for f in (2, 3, 5, 7) if dim > f and dim % f == 0]
        split = factors and choose.integer(0, 3) == 0
        if split and not (gentle and _is_held_together(desc, i)):
            factor = choose.pick(factors)
            dims += choose.shuffled((factor, dim // factor))
        else:
            dims.append(dim)
    if not gentle:
        _join_some(choose, dims)
    for _ in range(choose.integer(0, 2)):
        dims.insert(choose.integer(0, len(dims)), 1)
    if choose.integer(0, 19) == 0:
        dims = choose.shuffled(dims)
    if dims and choose.integer(0, 19) == 0:
        dims[0] = choose.pick((dims[0] + 1, RUNTIME, -1))
    return Reshape(desc, tuple(dims))


def _is_held_together(desc: MemoryDesc, i: int) -> bool:
    """Whether axis `i` has blocks or padding, so that it cannot be split."""
    if not isinstance(desc.layout, Layout):
        return False
    return desc.padded_dims[i] != desc.dims[i] or bool(desc.layout.axes[i].inner)


def _join_some(choose: Choices, dims: list[int]) -> None:
    i = 0
    while i + 1 < len(dims):
        if choose.integer(0, 4) == 0:
            dims[i : i + 2] = [dims[i] * dims[i + 1]]
        else:
            i += 1


@check_arguments(scope=Scope)
def draw_permute(choose: Choices, scope: Scope) -> Permute:
    """Any permutation; one in five times with an entry replaced."""
    desc = _mostly_blocked(choose, scope)
    permutation = choose.shuffled(range(desc.ndims))
    if permutation and choose.integer(0, 4) == 0:
        permutation[choose.integer(0, desc.ndims - 1)] = choose.integer(-1, desc.ndims)
    return Permute(desc, tuple(permutation))


@check_arguments(scope=Scope)
def draw_pair(choose: Choices, scope: Scope) -> Pair:
    """A descriptor and itself, or one that differs in a stride, the type, the padding, the offset or the spelling."""
    desc = _mostly_blocked(choose, scope)
    if not isinstance(desc.layout, Layout) or desc.data_type is None:
        return Pair(desc, desc if choose.pick(_EITHER) else draw_any_kind(choose, scope))
    try:
        return Pair(desc, _changed(choose, scope, desc, desc.layout, desc.data_type))
    except InlayError:
        return Pair(desc, desc)


def _changed(choose: Choices, scope: Scope, desc: MemoryDesc, layout: Layout, data_type: DataType) -> MemoryDesc:
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
    near = MemoryDesc.from_layout(layout, data_type, dims=dims, offset0=start)
    # Another implementation has no descriptor of strides that do not nest.
    return near if near.kind == desc.kind else desc
