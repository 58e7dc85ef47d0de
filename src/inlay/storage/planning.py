"""Planning of conversions: what becomes of each tensor of a store, and how it is cut into boxes.

    plan = inlay.storage.plan("resnet50.safetensors", "packed.safetensors", ["conv*=OIhw16i16o"], memory="256 MB")

Planning reads only headers. First each tensor has a draft: the tensors that the target is to have. The target gives
them their places. Then each draft has an operation and boxes: those of quantizations place themselves (`tensor_draft`),
reorders are placed here, and those of chunked arrays in one pass or two (`chunked_plan`).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from inlay.data_type import DataType, DataTypeLike
from inlay.descriptor import MemoryDesc
from inlay.errors import InvalidArguments
from inlay.layout import Dims
from inlay.memory.reorder_cache import byte_extent
from inlay.storage.chunked_plan import (
    ChunkRule,
    Stage,
    add_chunks,
    is_chunked,
    make_stage,
    parse_chunk_rules,
    plan_tensor_passes,
)
from inlay.storage.conversion_plan import ConversionPlan, TensorConversion
from inlay.storage.cutting import cut_extents
from inlay.storage.formats import find_format, make_target, open_store
from inlay.storage.locations import UrlPath, parse_location
from inlay.storage.operation import ReorderOperation
from inlay.storage.options import OPEN_DEFAULTS, WRITE_DEFAULTS, OpenOptions, WriteOptions
from inlay.storage.quantization import (
    DEFAULT_SCALES,
    Quantization,
    as_unscaled_type,
    parse_quantization,
    require_scale_names,
)
from inlay.storage.quantization_plan import QuantizationPlanner
from inlay.storage.rechunking import PassPlan, TwoPasses
from inlay.storage.rules import (
    FormatRule,
    destination_descriptor,
    first_match,
    parse_rule,
    require_match,
    source_descriptor,
)
from inlay.storage.sizes import parse_nbytes
from inlay.storage.staged_store import StagedStore
from inlay.storage.store import Store, StoredTensor, raw_bytes, row_major, source_units
from inlay.storage.target import NewTensor, Target
from inlay.storage.tensor_draft import ReorderDraft, TensorDraft
from inlay.storage.used_files import require_other_files, require_other_place

DEFAULT_MEMORY = "1 GB"
"""Memory of a worker for boxes, unless the caller states another."""


def plan(
    source: str | Path | UrlPath,
    target: str | Path | UrlPath,
    to: Sequence[str] = (),
    *,
    from_: Sequence[str] = (),
    data_type: DataTypeLike | None = None,
    dims: Dims | None = None,
    memory: int | str = DEFAULT_MEMORY,
    chunks: Dims | Sequence[str] = (),
    quantize: str | None = None,
    scales: str = DEFAULT_SCALES,
    scales_to: str | None = None,
    scales_type: str | None = None,
    dequantize: bool = False,
    source_options: OpenOptions = OPEN_DEFAULTS,
    target_options: WriteOptions = WRITE_DEFAULTS,
) -> ConversionPlan:
    """Plan the conversion of the tensors of `source` that a rule of `to` matches; other tensors are copied unchanged.

    The first matching rule of `to` defines the format of a tensor, and `data_type`, if not None, its data type. A rule
    of `from_` defines the format of a tensor that the file stores without a descriptor. The shape in the file is then
    one entry for each letter of the tag and one for each inner block; or a single entry, and `dims` are the logical
    dims. A task takes at most `memory` bytes, source and result together, such as `256 MB` or 268435456.

    `source` and `target` are files, folders (checkpoints), Zarr arrays or groups, or URLs. `source_options` say what
    raw bytes hold, and `target_options` the size of shards and where a target at a URL is staged.

    `chunks` are the extents of the chunks of a Zarr target: a tuple for every tensor, or texts such as
    `conv*=1,256,256`; -1 is a whole axis. Other tensors keep the chunks of a Zarr source, or get chunks of about 8 MiB.
    If one pass would read chunks of the source more than twice, the plan has a first pass to intermediate arrays.

    `quantize` is `absmax`, `absmax:AXIS` or `absmax:group=N`: tensors of floats that match are quantized to
    `data_type`, one of `inlay.storage.quantization.ELEMENT_FORMATS`, or to a compound format of `to`. Scales are
    written beside them, named by the pattern `scales`, in the format `scales_to` and of the type `scales_type`.
    `dequantize` converts quants with such scales, and compound blocks, to floats of `data_type`, or of the type that
    they had.

    Raises:
        InvalidArguments: a rule matches no tensor, has another number of letters than a tensor that it matches, or
            matches a tensor without a descriptor; `target` cannot store the name of a tensor; or a box of a tensor
            does not fit into `memory`. (The name of the tensor in a .npy file is the stem of the file name.) Or options
            do not go together, or do not fit a tensor or the target.
        FormatTagError, PatternError, NotationError: a rule has no valid format.
        Unimplemented: no conversion exists from the type of a tensor to `data_type`.
        FileError: `source` cannot be read, or `target` is the same file or cannot store the result.
        MissingExtra: a format or a URL needs a package that is not installed.
    """
    found, rules = find_format(target, target_options.storage_options), _parse_rules(to, from_, dims)
    store, limit = open_store(source, source_options), parse_nbytes(memory)
    require_other_place(parse_location(target), parse_location(source))
    rules.require_matches(store)
    quantization = None
    if quantize is not None:
        _require_quantized(to, dequantize)
        quantization = parse_quantization(quantize, data_type, scales, scales_to, scales_type)
    require_scale_names(scales)
    target_type = None if data_type is None or quantize is not None else as_unscaled_type(data_type)
    planner = QuantizationPlanner(store, quantization, dequantize, scales, target_type)
    chunk_rules = parse_chunk_rules(chunks, store) if found.is_chunked else None
    if chunks and not found.is_chunked:
        raise InvalidArguments(
            "chunks are for Zarr stores: name a target that ends in .zarr, or leave them out (--chunks)"
        )
    drafts = _Drafting(planner, rules, quantization, target_type, chunk_rules).draft_all()
    made = make_target(target, [new for draft in drafts for new in draft.news], planner.metadata, target_options)
    require_other_files(store, made)
    return _place_all(store, drafts, made, limit)


@dataclass(frozen=True, slots=True)
class _TensorRules:
    """Rules for formats of tensors, in the source and in the target."""

    to: Sequence[FormatRule]
    from_: Sequence[FormatRule]
    dims: Dims | None

    def require_matches(self, store: Store) -> None:
        """Check that each rule matches a tensor."""
        for rule in (*self.to, *self.from_):
            require_match(rule, store)

    def source(self, tensor: StoredTensor) -> MemoryDesc | None:
        """Return the descriptor of a tensor of the source."""
        rule = first_match(self.from_, tensor.name)
        return tensor.desc if rule is None else source_descriptor(tensor, rule, self.dims)


def _parse_rules(to: Sequence[str], from_: Sequence[str], dims: Dims | None) -> _TensorRules:
    """Return the rules of these texts.

    Raises:
        InvalidArguments: there are dims, and no rule for the source.
    """
    rules = _TensorRules([parse_rule(text) for text in to], [parse_rule(text) for text in from_], dims)
    if dims is not None and not rules.from_:
        raise InvalidArguments("dims are for memory that the file does not describe: give its format too (--from)")
    return rules


def _require_quantized(to: Sequence[str], dequantize: bool) -> None:
    """Check that a quantization has tensors, and is none back to floats.

    Raises:
        InvalidArguments: no rule states which tensors to quantize, or they are to be floats.
    """
    if dequantize:
        raise InvalidArguments("quantize and dequantize exclude each other: convert twice")
    if not to:
        raise InvalidArguments("quantize is for tensors that a rule matches: give their format (--to, such as plain)")


# Drafts


@dataclass(frozen=True, slots=True)
class _Drafting:
    """The rules that decide the drafts of the tensors of a store; `chunk_rules` is None if the target has no chunks."""

    planner: QuantizationPlanner
    rules: _TensorRules
    quantization: Quantization | None
    target_type: DataType | None
    chunk_rules: Sequence[ChunkRule] | None

    def draft_all(self) -> list[TensorDraft | ReorderDraft]:
        """Return the drafts of all tensors of the store that are kept."""
        return [self._draft(tensor) for tensor in self.planner.kept]

    def _draft(self, tensor: StoredTensor) -> TensorDraft | ReorderDraft:
        """Return the draft of one tensor."""
        src, rule = self.rules.source(tensor), first_match(self.rules.to, tensor.name)
        draft = self.planner.draft(tensor, src, rule)
        if draft is None:
            in_chunks = self.chunk_rules is not None or tensor.properties is not None
            to_rule = None if self.quantization else rule
            read, new = _plan_tensor(tensor, src, to_rule, self.target_type, in_chunks=in_chunks)
            draft = ReorderDraft(tensor, read, (new,))
        if self.chunk_rules is not None:
            draft = add_chunks(draft, self.chunk_rules)
        return draft


def _plan_tensor(
    tensor: StoredTensor,
    src: MemoryDesc | None,
    rule: FormatRule | None,
    data_type: DataTypeLike | None,
    *,
    in_chunks: bool,
) -> tuple[MemoryDesc, NewTensor]:
    """Return the descriptor of the bytes to read of one tensor, and the tensor to write.

    A tensor that is in chunks before or after is copied by elements, since its bytes are in another order there.
    """
    # A tensor without a descriptor, such as a scalar, is row-major already.
    is_only_row_major = rule is not None and rule.tag is None and data_type is None
    if src is None and rule is not None and not is_only_row_major:
        raise InvalidArguments(f"{rule.text} does not fit tensor {tensor.label}: {tensor.refusal}")
    dst = src if rule is None or src is None else destination_descriptor(tensor, src, rule, data_type)
    if rule is None and src is not None and tensor.is_view:
        dst = row_major(src.dims, src.require_layout(tensor.label)[1])
    if src is None or (src == dst and not in_chunks):
        # Behind the last element, a packed tensor has bytes up to a multiple of 64, which are not part of it.
        unchanged = raw_bytes(tensor.nbytes if src is None else min(tensor.nbytes, byte_extent(src)[1]))
        fields = (tensor.name, tensor.shape, unchanged, dst, tensor.stored_type)
        return unchanged, NewTensor(*fields, data_type=tensor.data_type, refusal=tensor.refusal)
    assert dst is not None
    return src, NewTensor(tensor.name, dst.dims, dst, dst)


# Places and boxes


def _place_all(store: Store, drafts: Sequence[TensorDraft | ReorderDraft], made: Target, limit: int) -> ConversionPlan:
    """Return the plan of all tensors, with a first pass if some need two."""
    placed, double = list[TensorConversion](), list[tuple[StoredTensor, MemoryDesc, TwoPasses]]()
    for draft in drafts:
        passes, first = None, made.tensors[draft.news[0].name]
        if isinstance(draft, ReorderDraft) and is_chunked(draft.tensor, first):
            passes = plan_tensor_passes(draft.tensor, draft.src, first, made, limit)
        if isinstance(passes, TwoPasses):
            double.append((draft.tensor, draft.src, passes))
        placed.append(_place(draft, made, limit, passes))
    if not double:
        return ConversionPlan(store, made, tuple(placed), limit)
    stage = make_stage(store, made.location, double, limit)
    first_pass = ConversionPlan(store, stage.target, tuple(_first_pass(*each, stage) for each in double), limit)
    return ConversionPlan(StagedStore(store, stage.store), made, tuple(placed), limit, first_pass)


def _place(
    draft: TensorDraft | ReorderDraft, target: Target, limit: int, passes: PassPlan | TwoPasses | None
) -> TensorConversion:
    """Return the conversion of one tensor, cut into boxes of at most `limit` bytes."""
    (new, *beside), tensor, src = draft.news, draft.tensor, draft.src
    if not isinstance(draft, ReorderDraft):
        made, extents = draft.place(target.tensors, limit)
        return TensorConversion(tensor, src, new, made, extents, beside=tuple(beside))
    placed = target.tensors[new.name]
    operation = ReorderOperation(placed, src.require_layout(tensor.label)[1])
    if passes is None:
        extents = cut_extents(src, placed.desc, limit, source_units(tensor, src, operation.units))
        return TensorConversion(tensor, src, new, operation, extents)
    last = passes.second if isinstance(passes, TwoPasses) else passes
    return TensorConversion(tensor, src, new, operation, last.extents, reads=last.reads)


def _first_pass(tensor: StoredTensor, src: MemoryDesc, passes: TwoPasses, stage: Stage) -> TensorConversion:
    """Return the conversion of a tensor to its intermediate array."""
    placed = stage.target.tensors[tensor.name]
    new = NewTensor(tensor.name, placed.desc.dims, placed.desc, placed.desc, chunks=passes.chunks)
    operation = ReorderOperation(placed, src.require_layout(tensor.label)[1])
    return TensorConversion(tensor, src, new, operation, passes.first.extents, reads=passes.first.reads)
