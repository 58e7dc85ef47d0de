"""Plans of conversions: a value that lists every tensor, every box and every byte, before anything is written.

    plan = inlay.storage.plan("resnet50.safetensors", "packed.safetensors", ["conv*=OIhw16i16o"], memory="256 MB")
    print(plan)

Planning reads only headers. A plan consists of independent tasks: each reads one box of one tensor, converts it, and
writes it where no other task writes. So tasks may run in any order and in any process.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from pathlib import Path

from inlay.data_type import DataTypeLike, as_data_type
from inlay.descriptor import MemoryDesc
from inlay.errors import InvalidArguments
from inlay.files import require_unused
from inlay.layout import Dims
from inlay.storage.box import Box, box_at, count_boxes
from inlay.storage.chunked_plan import (
    ChunkRule,
    Stage,
    add_chunks,
    is_chunked,
    make_stage,
    parse_chunk_rule,
    plan_tensor_passes,
    require_rules_match,
)
from inlay.storage.cutting import cut_extents
from inlay.storage.formats import find_format, make_target, open_store
from inlay.storage.operation import BoxOperation, ReorderOperation
from inlay.storage.rechunking import PassPlan, TwoPasses
from inlay.storage.rules import (
    FormatRule,
    destination_descriptor,
    first_match,
    parse_rule,
    require_match,
    source_descriptor,
)
from inlay.storage.staged_store import StagedStore
from inlay.storage.store import Store, StoredTensor, raw_bytes
from inlay.storage.target import NewTensor, Target

DEFAULT_MEMORY = "1 GB"
"""Memory of a worker for boxes, unless the caller states another."""


@dataclass(frozen=True, slots=True)
class TensorConversion:
    """The conversion of one tensor."""

    tensor: StoredTensor
    """The tensor of the source."""
    src: MemoryDesc
    """Descriptor of the bytes that are read; `raw_bytes` if they are copied unchanged."""
    new: NewTensor
    """The tensor that the target is to have."""
    operation: BoxOperation
    """What is done with each box."""
    extents: Dims
    """Extents of the boxes of `src`."""
    reads: float = 1.0
    """How often each byte is read, on average: chunks that several boxes cut are read again."""

    @property
    def count(self) -> int:
        """Number of boxes."""
        return count_boxes(self.src.dims, self.extents)

    @property
    def size(self) -> int:
        """Number of elements of `src`."""
        return prod(self.src.dims)

    @property
    def read_nbytes(self) -> int:
        """Number of bytes that are read, those that are read again included."""
        return round(self.tensor.nbytes * self.reads)

    @property
    def is_copy(self) -> bool:
        """True if the bytes are copied unchanged."""
        return self.new.bytes_desc == self.src

    def __str__(self) -> str:
        """Return one line of text: name, source, destination, number of boxes."""
        sizes = f"{self.tensor.nbytes} -> {self.new.nbytes} bytes"
        boxes = f", {self.count} boxes" if self.count > 1 else ""
        boxes += f", read {self.reads:.2f} times" if self.reads > 1.005 else ""
        if self.is_copy:
            shape = "x".join(map(str, self.tensor.shape))
            return f"{self.tensor.label}: {self.tensor.stored_type} {shape}, copied, {self.new.nbytes} bytes{boxes}"
        dims = "x".join(map(str, self.src.dims))
        return f"{self.tensor.label}: {dims}, {self.src} -> {self.new.desc}, {sizes}{boxes}"


@dataclass(frozen=True, slots=True)
class ConversionTask:
    """One box of one tensor to convert."""

    number: int
    """Number of the task in its plan, from 0."""
    tensor: int
    """Index of the tensor in `ConversionPlan.tensors`."""
    box: Box
    """The elements to convert."""


@dataclass(frozen=True, slots=True)
class ConversionPlan:
    """The plan of a conversion of one store into a target; a value that can be pickled."""

    source: Store
    """What is read."""
    target: Target
    """What is written."""
    tensors: tuple[TensorConversion, ...]
    """One conversion for each tensor of the source, in the order of its bytes."""
    memory: int
    """Most bytes of one task, source and result together."""
    first_pass: "ConversionPlan | None" = None
    """The plan that writes the intermediate arrays from which tensors of `source` are read; None if there are none."""

    @property
    def count(self) -> int:
        """Number of tasks."""
        return sum(each.count for each in self.tensors)

    @property
    def nbytes(self) -> int:
        """Size of all tensors to write, in bytes."""
        return sum(each.new.nbytes for each in self.tensors)

    @property
    def nbytes_of_passes(self) -> int:
        """Size of all that is written, intermediate arrays too, in bytes."""
        return self.nbytes + (0 if self.first_pass is None else self.first_pass.nbytes)

    @property
    def converted(self) -> int:
        """Number of tensors that are not copied unchanged."""
        return sum(not each.is_copy for each in self.tensors)

    def tasks(self) -> Iterator[ConversionTask]:
        """Yield all tasks, by ascending number."""
        number = 0
        for i, each in enumerate(self.tensors):
            for place in range(each.count):
                yield ConversionTask(number, i, box_at(each.src.dims, each.extents, place))
                number += 1

    def __str__(self) -> str:
        """Return one line of text for each tensor, of the first pass and then of the second if there are two."""
        lines = list(map(str, self.tensors))
        if self.first_pass is None:
            return "\n".join(lines)
        first = self.first_pass
        header = f"pass 1 of 2, to intermediate arrays: {_describe_traffic(first.tensors)}"
        return "\n".join([header, str(first), f"pass 2 of 2: {_describe_traffic(self.tensors)}", *lines])


def plan(
    source: str | Path,
    target: str | Path,
    to: Sequence[str] = (),
    *,
    from_: Sequence[str] = (),
    data_type: DataTypeLike | None = None,
    dims: Dims | None = None,
    memory: int | str = DEFAULT_MEMORY,
    chunks: Dims | Sequence[str] = (),
) -> ConversionPlan:
    """Plan the conversion of the tensors of `source` that a rule of `to` matches; other tensors are copied unchanged.

    The first matching rule of `to` defines the format of a tensor, and `data_type`, if not None, its data type. A rule
    of `from_` defines the format of a tensor that the file stores without a descriptor. The shape in the file is then
    one entry for each letter of the tag and one for each inner block; or a single entry, and `dims` are the logical
    dims. A task takes at most `memory` bytes, source and result together, such as `256 MB` or 268435456.

    `chunks` are the extents of the chunks of a Zarr target: a tuple for every tensor, or texts such as
    `conv*=1,256,256`; -1 is a whole axis. Other tensors keep the chunks of a Zarr source, or get chunks of about 8 MiB.
    If one pass would read chunks of the source more than twice, the plan has a first pass to intermediate arrays.

    Raises:
        InvalidArguments: a rule matches no tensor, has another number of letters than a tensor that it matches, or
            matches a tensor without a descriptor; `target` cannot store the name of a tensor; or a box of a tensor
            does not fit into `memory`. (The name of the tensor in a .npy file is the stem of the file name.)
        FormatTagError, PatternError, NotationError: a rule has no valid format.
        Unimplemented: no conversion exists from the type of a tensor to `data_type`.
        FileError: `source` cannot be read, or `target` is the same file or cannot store the result.
    """
    found = find_format(target)
    to_rules, from_rules = [parse_rule(text) for text in to], [parse_rule(text) for text in from_]
    if dims is not None and not from_rules:
        raise InvalidArguments("dims are for memory that the file does not describe: give its format too (--from)")
    store, limit = open_store(source), parse_nbytes(memory)
    require_unused(Path(target), Path(source))
    for rule in (*to_rules, *from_rules):
        require_match(rule, store)
    target_type = None if data_type is None else as_data_type(data_type)
    chunk_rules, news = _chunk_rules(chunks, store, is_chunked=found.is_chunked), []
    for tensor in store.tensors:
        from_rule = first_match(from_rules, tensor.name)
        src = tensor.desc if from_rule is None else source_descriptor(tensor, from_rule, dims)
        in_chunks = found.is_chunked or bool(tensor.chunks)
        read, new = _plan_tensor(tensor, src, first_match(to_rules, tensor.name), target_type, in_chunks=in_chunks)
        news.append((read, add_chunks(new, tensor, chunk_rules) if found.is_chunked else new))
    made = make_target(target, [new for _, new in news], store.metadata)
    return _cut_tensors(store, news, made, limit)


def _describe_traffic(tensors: Sequence[TensorConversion]) -> str:
    """Return the numbers of bytes that a pass reads, reads again, and writes."""
    from rich.filesize import decimal

    read, once = sum(each.read_nbytes for each in tensors), sum(each.tensor.nbytes for each in tensors)
    again = f" ({decimal(read - once)} of them again)" if read > once else ""
    return f"reads {decimal(read)}{again}, writes {decimal(sum(each.new.nbytes for each in tensors))}"


def _chunk_rules(chunks: Dims | Sequence[str], store: Store, *, is_chunked: bool) -> list[ChunkRule]:
    """Return the rules of chunks.

    Raises:
        InvalidArguments: a text is malformed, matches no tensor, or the format of the target has no chunks.
    """
    if chunks and not is_chunked:
        raise InvalidArguments(
            "chunks are for Zarr stores: name a target that ends in .zarr, or leave them out (--chunks)"
        )
    texts = [each for each in chunks if isinstance(each, str)]
    extents = [each for each in chunks if not isinstance(each, str)]
    rules = [parse_chunk_rule(text) for text in (texts if texts or not extents else [",".join(map(str, extents))])]
    require_rules_match(rules, store)
    return rules


def _cut_tensors(
    store: Store, news: Sequence[tuple[MemoryDesc, NewTensor]], made: Target, limit: int
) -> ConversionPlan:
    """Return the plan of all tensors, with a first pass if some need two."""
    passes = {
        i: plan_tensor_passes(tensor, src, made.tensors[new.name], made, limit)
        for i, (tensor, (src, new)) in enumerate(zip(store.tensors, news, strict=True))
        if is_chunked(tensor, made.tensors[new.name])
    }
    cut = tuple(
        _cut(tensor, src, new, made, limit, passes.get(i))
        for i, (tensor, (src, new)) in enumerate(zip(store.tensors, news, strict=True))
    )
    double = [(store.tensors[i], news[i][0], each) for i, each in passes.items() if isinstance(each, TwoPasses)]
    if not double:
        return ConversionPlan(store, made, cut, limit)
    stage = make_stage(store, made.location, double, limit)
    first = ConversionPlan(store, stage.target, tuple(_first_pass(*each, stage) for each in double), limit)
    return ConversionPlan(StagedStore(store, stage.store), made, cut, limit, first)


def _first_pass(tensor: StoredTensor, src: MemoryDesc, passes: TwoPasses, stage: Stage) -> TensorConversion:
    """Return the conversion of a tensor to its intermediate array."""
    placed = stage.target.tensors[tensor.name]
    new = NewTensor(tensor.name, placed.desc.dims, placed.desc, placed.desc, chunks=passes.chunks)
    operation = ReorderOperation(placed, src.require_layout(tensor.label)[1])
    return TensorConversion(tensor, src, new, operation, passes.first.extents, passes.first.reads)


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
    if src is None or (src == dst and not in_chunks):
        unchanged = raw_bytes(tensor.nbytes)
        return unchanged, NewTensor(tensor.name, tensor.shape, unchanged, dst, tensor.stored_type)
    assert dst is not None
    return src, NewTensor(tensor.name, dst.dims, dst, dst)


def _cut(
    tensor: StoredTensor,
    src: MemoryDesc,
    new: NewTensor,
    target: Target,
    limit: int,
    passes: PassPlan | TwoPasses | None,
) -> TensorConversion:
    """Return the conversion of one tensor, cut into boxes of at most `limit` bytes."""
    placed = target.tensors[new.name]
    operation = ReorderOperation(placed, src.require_layout(tensor.label)[1])
    if passes is None:
        return TensorConversion(tensor, src, new, operation, cut_extents(src, placed.desc, limit, operation.units))
    last = passes.second if isinstance(passes, TwoPasses) else passes
    return TensorConversion(tensor, src, new, operation, last.extents, last.reads)


_UNITS: Mapping[str, int] = {"": 1, "b": 1, "kb": 10**3, "mb": 10**6, "gb": 10**9, "tb": 10**12}
_UNITS = {**_UNITS, **{f"{unit[0]}ib": 1 << 10 * (i + 1) for i, unit in enumerate(("kb", "mb", "gb", "tb"))}}


def parse_nbytes(text: int | str) -> int:
    """Return a number of bytes, given as a number or as text with a unit.

    Raises:
        InvalidArguments: it is no number above 0 with a known unit.

    >>> parse_nbytes("256 MB"), parse_nbytes("1.5GiB"), parse_nbytes(4096)
    (256000000, 1610612736, 4096)
    """
    value = str(text).strip().lower()
    number = value.rstrip("abcdefghijklmnopqrstuvwxyz ")
    try:
        nbytes = int(float(number) * _UNITS[value[len(number) :].strip()])
    except (KeyError, ValueError, OverflowError):
        nbytes = 0
    if nbytes < 1:
        raise InvalidArguments(f"{text!r} is no number of bytes: write a number with a unit, as in 256 MB or 1 GiB")
    return nbytes
