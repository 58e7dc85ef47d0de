"""Plans of conversions from and to chunked arrays: the chunks of new arrays, boxes, and the first of two passes.

A conversion in two passes consists of two plans. The first copies tensors of the source to intermediate arrays beside
the target, row-major and in the source's types; the second is the conversion, which reads these tensors there.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from hashlib import sha256
from math import prod

from inlay.descriptor import MemoryDesc
from inlay.errors import InvalidArguments
from inlay.layout import Dims
from inlay.storage.array_properties import ArrayProperties
from inlay.storage.quantization_drafts import QuantizeDraft
from inlay.storage.rechunking import ChunkedSide, PassPlan, TwoPasses, plan_passes, source_side
from inlay.storage.store import Store, StoredTensor, row_major
from inlay.storage.target import NewTensor, Target, TargetTensor
from inlay.storage.tensor_draft import ReorderDraft, TensorDraft
from inlay.storage.zarr_store import ZarrStore, is_url
from inlay.storage.zarr_target import ZarrTarget, default_chunks, zarr_target

STAGE_SUFFIX = ".inlay.stage"
"""Suffix of the name of intermediate arrays."""
STAGE_DIGEST_CHARACTERS = 12
"""Number of characters of the digest in that name."""
_NAME_CHARACTERS = 60
"""Number of characters of the name of the target in that of the intermediate arrays."""


@dataclass(frozen=True, slots=True)
class ChunkRule:
    """Chunks of new arrays by name: `conv*=1,256,256`, or numbers alone for every tensor."""

    pattern: str | None
    """Shell pattern for tensor names; None matches every tensor."""
    chunks: Dims
    """Extents of a chunk; -1 for the whole axis."""

    def of(self, dims: Dims) -> Dims:
        """Return the extents of a chunk of a tensor, which may have another number of dims.

        >>> ChunkRule(None, (16, -1)).of((64, 100))
        (16, 100)
        """
        if len(self.chunks) != len(dims):
            return self.chunks
        return tuple(max(n, 1) if extent == -1 else extent for extent, n in zip(self.chunks, dims, strict=True))


def parse_chunk_rule(text: str) -> ChunkRule:
    """Parse `CHUNKS` or `PATTERN=CHUNKS`, where CHUNKS are numbers separated by commas.

    Raises:
        InvalidArguments: the pattern is empty, or a number is neither -1 nor 1 or more.

    >>> parse_chunk_rule("conv*=1,256,256")
    ChunkRule(pattern='conv*', chunks=(1, 256, 256))
    """
    pattern, equals, numbers = text.rpartition("=")
    try:
        chunks = tuple(int(number) for number in numbers.split(","))
    except ValueError:
        chunks = ()
    if not chunks or any(n < 1 and n != -1 for n in chunks) or (equals and not pattern):
        raise InvalidArguments(
            f"{text!r} does not state chunks: write an extent for each dim, -1 for a whole one, as in 1,256,256, for "
            "some tensors after their name, as in 'conv*=1,256,256'"
        )
    return ChunkRule(pattern if equals else None, chunks)


def parse_chunk_rules(chunks: Dims | Sequence[str], store: Store) -> list[ChunkRule]:
    """Return the rules of chunks: extents for every tensor, or texts.

    Raises:
        InvalidArguments: a text is malformed, or matches no tensor.
    """
    texts = [each for each in chunks if isinstance(each, str)]
    extents = [each for each in chunks if not isinstance(each, str)]
    rules = [parse_chunk_rule(text) for text in (texts if texts or not extents else [",".join(map(str, extents))])]
    _require_rules_match(rules, store)
    return rules


def add_chunks(draft: TensorDraft | ReorderDraft, rules: Sequence[ChunkRule]) -> TensorDraft | ReorderDraft:
    """Return the draft of a tensor whose new tensors have chunks.

    Chunks of scales hold the scales of a chunk of quants, so that boxes of both consist of whole chunks.
    """
    first, *beside = draft.news
    if isinstance(draft, ReorderDraft):
        return replace(draft, news=(_add_chunks(first, draft.tensor, rules),))
    if first.desc is None:
        return draft  # blocks: their axes are not those of the tensor
    new = replace(_add_chunks(first, draft.tensor, rules), is_unnamed=False)
    if isinstance(draft, QuantizeDraft):
        groups = draft.groups
        chunks = new.chunks or tuple(
            max(chunk // group * group, group) for chunk, group in zip(default_chunks(first.desc), groups, strict=True)
        )
        new = replace(new, chunks=chunks)
        parts = tuple(-(-chunk // group) for chunk, group in zip(chunks, groups, strict=True))
        beside = [replace(each, chunks=parts if len(each.shape) == len(parts) else None) for each in beside]
    changed: TensorDraft = replace(draft, news=(new, *beside))  # type: ignore[type-var]
    return changed


def _add_chunks(new: NewTensor, tensor: StoredTensor, rules: Sequence[ChunkRule]) -> NewTensor:
    """Return the tensor to write with its chunks: those of the first rule that matches, else those of the source.

    Compression, attributes and names of axes are those of the source too.
    """
    rule = next((r for r in rules if r.pattern is None or fnmatchcase(new.name, r.pattern)), None)
    chunks = rule.of(new.shape) if rule is not None and new.desc is not None and new.shape else None
    if chunks is None and tensor.shape == new.shape and tensor.chunks and tensor.properties is not None:
        chunks = tensor.chunks
    properties = tensor.properties
    if properties is not None and new.desc is not None and tensor.desc is not None:
        is_same_type = new.desc.data_type == tensor.desc.data_type
        names = properties.dimension_names if len(new.shape) == len(tensor.shape) else None
        fill_value = properties.fill_value if is_same_type else None
        properties = replace(properties, fill_value=fill_value, dimension_names=names)
    data_type = new.data_type or tensor.data_type
    return replace(new, chunks=chunks, properties=properties, is_unnamed=tensor.is_unnamed, data_type=data_type)


def _require_rules_match(rules: Sequence[ChunkRule], store: Store) -> None:
    """Check that each rule matches a tensor.

    Raises:
        InvalidArguments: one matches none.
    """
    for rule in rules:
        if rule.pattern is not None and not any(fnmatchcase(t.name, rule.pattern) for t in store.tensors):
            raise InvalidArguments(f"no tensor of {store.location} matches {rule.pattern!r} of the chunks")


def is_chunked(tensor: StoredTensor, placed: TargetTensor) -> bool:
    """Return True if a tensor is read from chunks of an array, or written to some."""
    return (tensor.properties is not None and bool(tensor.chunks)) or bool(placed.chunks)


def plan_tensor_passes(
    tensor: StoredTensor, src: MemoryDesc, placed: TargetTensor, target: Target, limit: int
) -> PassPlan | TwoPasses:
    """Return the passes of the conversion of one tensor from or to chunks.

    Raises:
        InvalidArguments: a chunk does not fit into `limit`.
    """
    if not src.size or not tensor.shape:
        return PassPlan(tuple(max(n, 1) for n in src.dims), 1.0, 1.0)
    is_local = not is_url(target.location)
    source = source_side(tensor, src)
    if source.chunks is None and tensor.chunks is not None:
        source = replace(source, chunks=source.desc.dims)
    return plan_passes(source, target_side(placed, target), limit, is_local=is_local)


def target_side(placed: TargetTensor, target: Target) -> ChunkedSide:
    """Return the target of a pass."""
    if placed.chunks is None or not isinstance(target, ZarrTarget):
        return ChunkedSide(placed.desc, placed.chunks, None)
    array = target.arrays[placed.file]
    is_direct = not is_url(target.location) and not array.properties.is_compressed
    return ChunkedSide(placed.desc, placed.chunks, array.chunk if is_direct else None)


@dataclass(frozen=True, slots=True)
class Stage:
    """The intermediate arrays of a conversion: as the target of the first pass, and as a store for the second."""

    target: ZarrTarget
    """The arrays to write."""
    store: ZarrStore
    """The arrays to read."""


def stage_prefix(location: str) -> str:
    """Return the start of the name of the intermediate arrays of conversions to a target.

    >>> stage_prefix("w/b.zarr")
    '.b.zarr.'
    """
    return f".{location.rstrip('/').rpartition('/')[2][:_NAME_CHARACTERS]}."


def make_stage(
    store: Store, location: str, staged: Sequence[tuple[StoredTensor, MemoryDesc, TwoPasses]], limit: int
) -> Stage:
    """Return the intermediate arrays beside the target at `location`.

    Their name depends on the version of the source and on all boxes, so that they are found again by the same
    conversion only.
    """
    version = sha256(repr((store.location, store.version, limit, staged)).encode()).hexdigest()
    parent, slash, _ = location.rstrip("/").rpartition("/")
    path = f"{parent}{slash}{stage_prefix(location)}{version[:STAGE_DIGEST_CHARACTERS]}{STAGE_SUFFIX}"
    news, tensors = [], []
    for tensor, src, passes in staged:
        data_type = src.require_layout(tensor.label)[1]
        desc = row_major(src.dims, data_type)
        chunk = None if is_url(path) else row_major(passes.chunks, data_type)
        properties = ArrayProperties(chunk=chunk)
        news.append(NewTensor(tensor.name, desc.dims, desc, desc, chunks=passes.chunks, properties=properties))
        nbytes = prod(src.dims) * data_type.itemsize
        tensors.append(
            StoredTensor(
                tensor.name, data_type.name, desc.dims, 0, nbytes, desc, chunks=passes.chunks, properties=properties
            )
        )
    return Stage(zarr_target(path, news, {}), ZarrStore(path, tuple(tensors), {}, {}))
