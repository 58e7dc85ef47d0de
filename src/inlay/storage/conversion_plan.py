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
from typing import TYPE_CHECKING, Any

from inlay.data_type import DataTypeLike
from inlay.descriptor import MemoryDesc
from inlay.errors import InvalidArguments, printable
from inlay.layout import Dims
from inlay.memory.reorder_cache import byte_extent
from inlay.storage.box import Box, box_at, count_boxes, iterate_boxes
from inlay.storage.cutting import cut_extents
from inlay.storage.formats import find_format, make_target, open_store
from inlay.storage.locations import UrlPath, parse_location
from inlay.storage.operation import BoxOperation, ReorderOperation
from inlay.storage.options import OPEN_DEFAULTS, WRITE_DEFAULTS, OpenOptions, WriteOptions
from inlay.storage.quantization import DEFAULT_SCALES, as_unscaled_type, parse_quantization, require_scale_names
from inlay.storage.quantization_plan import QuantizationPlanner
from inlay.storage.rules import (
    FormatRule,
    destination_descriptor,
    first_match,
    parse_rule,
    require_match,
    source_descriptor,
)
from inlay.storage.store import Store, StoredTensor, raw_bytes, row_major, source_units
from inlay.storage.target import NewTensor, Target
from inlay.storage.traffic import ConversionTraffic, count_traffic, total_traffic
from inlay.storage.used_files import require_other_files, require_other_place

if TYPE_CHECKING:
    from dask.delayed import Delayed
from inlay.storage.tensor_draft import ReorderDraft, TensorDraft

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
    beside: tuple[NewTensor, ...] = ()
    """Tensors that the target is to have beside `new`, such as scales."""

    @property
    def nbytes(self) -> int:
        """Size of all tensors to write, in bytes."""
        return sum(new.nbytes for new in (self.new, *self.beside))

    @property
    def count(self) -> int:
        """Number of boxes."""
        return count_boxes(self.src.dims, self.extents)

    @property
    def traffic(self) -> ConversionTraffic:
        """Bytes that the conversion reads and writes."""
        return count_traffic(self.tensor, self.src, self.extents, self.operation)

    def boxes(self) -> Iterator[Box]:
        """Yield the boxes, in the order of the tasks."""
        return iterate_boxes(self.src.dims, self.extents)

    def to_json(self) -> dict[str, Any]:
        """Return the conversion as a JSON object: formats, bytes, boxes."""
        traffic = self.traffic
        return {
            "name": self.new.name,
            "stored_type": self.tensor.stored_type,
            "shape": list(self.tensor.shape),
            "action": "copy" if self.is_copy else "convert",
            "source": _text_of(self.new.desc if self.is_copy else self.src),
            "target": self.new.compound or _text_of(self.new.desc),
            "beside": {new.name: _text_of(new.desc) for new in self.beside},
            "bytes_read": traffic.read,
            "bytes_read_again": traffic.read_again,
            "bytes_written": traffic.written,
            "box": list(self.extents),
            "tasks": traffic.tasks,
            "task_bytes": traffic.task_nbytes,
        }

    @property
    def size(self) -> int:
        """Number of elements of `src`."""
        return prod(self.src.dims)

    @property
    def is_copy(self) -> bool:
        """True if the bytes are copied unchanged."""
        return self.new.bytes_desc == self.src

    def __str__(self) -> str:
        """Return one line of text: name, source, destination, number of boxes."""
        sizes = f"{self.tensor.nbytes} -> {self.nbytes} bytes"
        boxes = f", {self.count} boxes" if self.count > 1 else ""
        if self.is_copy:
            shape = "x".join(map(str, self.tensor.shape)) or "scalar"
            return f"{self.tensor.label}: {self.tensor.stored_type} {shape}, copied, {self.new.nbytes} bytes{boxes}"
        dims = "x".join(map(str, self.src.dims))
        news = [f"{self.new.compound or self.new.desc}", *(f"{printable(new.name)} {new.desc}" for new in self.beside)]
        return f"{self.tensor.label}: {dims}, {self.src} -> {', '.join(news)}, {sizes}{boxes}"


def _text_of(desc: MemoryDesc | None) -> str | None:
    """Return the text of a descriptor for a JSON object."""
    return None if desc is None else str(desc)


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
    """One conversion for each tensor of the source, in the order of its bytes, without scales that become a factor."""
    memory: int
    """Most bytes of one task, source and result together."""

    @property
    def count(self) -> int:
        """Number of tasks."""
        return sum(each.count for each in self.tensors)

    @property
    def nbytes(self) -> int:
        """Size of all tensors to write, in bytes."""
        return sum(each.nbytes for each in self.tensors)

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

    @property
    def traffic(self) -> ConversionTraffic:
        """Bytes that the conversion reads and writes, and the greatest memory of a task."""
        return total_traffic(each.traffic for each in self.tensors)

    def to_json(self) -> dict[str, Any]:
        """Return the plan as a JSON object; `json.dumps` makes text of it."""
        traffic = self.traffic
        return {
            "source": self.source.location,
            "target": self.target.location,
            "memory": self.memory,
            "bytes_read": traffic.read,
            "bytes_read_again": traffic.read_again,
            "bytes_written": traffic.written,
            "tasks": traffic.tasks,
            "task_bytes": traffic.task_nbytes,
            "tensors": [each.to_json() for each in self.tensors],
        }

    def to_dask(self, *, allow_loss: bool = False, overwrite: bool = False) -> "Delayed":
        """Return a `dask.delayed` object whose `compute()` does the conversion, on any scheduler of Dask.

        The result of `compute()` is that of `convert`. A failed computation keeps the boxes that are written: the same
        conversion by any executor goes on. All workers must see the source and the target under the same paths.

        Raises:
            MissingExtra: Dask is not installed.
        """
        from inlay.storage.dask_graph import build_graph

        return build_graph(self, allow_loss, overwrite)

    def __str__(self) -> str:
        """Return one line of text for each tensor, and one for the traffic of all."""
        return "\n".join([*map(str, self.tensors), str(self.traffic)])


def plan(
    source: str | Path | UrlPath,
    target: str | Path | UrlPath,
    to: Sequence[str] = (),
    *,
    from_: Sequence[str] = (),
    data_type: DataTypeLike | None = None,
    dims: Dims | None = None,
    memory: int | str = DEFAULT_MEMORY,
    source_options: OpenOptions = OPEN_DEFAULTS,
    target_options: WriteOptions = WRITE_DEFAULTS,
    quantize: str | None = None,
    scales: str = DEFAULT_SCALES,
    scales_to: str | None = None,
    scales_type: str | None = None,
    dequantize: bool = False,
) -> ConversionPlan:
    """Plan the conversion of the tensors of `source` that a rule of `to` matches; other tensors are copied unchanged.

    The first matching rule of `to` defines the format of a tensor, and `data_type`, if not None, its data type. A rule
    of `from_` defines the format of a tensor that the file stores without a descriptor. The shape in the file is then
    one entry for each letter of the tag and one for each inner block; or a single entry, and `dims` are the logical
    dims. A task takes at most `memory` bytes, source and result together, such as `256 MB` or 268435456.

    `source` and `target` are files, folders (checkpoints) or URLs. `source_options` say what raw bytes hold, and
    `target_options` the size of shards and where a target at a URL is staged.
    `quantize` is `absmax`, `absmax:AXIS` or `absmax:group=N`: tensors of floats that match are quantized to
    `data_type`, one of `inlay.storage.quantization.ELEMENT_FORMATS`, or to a compound format of `to`. Scales are
    written beside them, named by the pattern `scales`, in the format `scales_to` and of the type `scales_type`.
    `dequantize` converts quants with such scales, and compound blocks, to floats of `data_type`, or of the type that
    they had.

    Raises:
        InvalidArguments: a rule matches no tensor, has another number of letters than a tensor that it matches, or
            matches a tensor without a descriptor; `target` cannot store the name of a tensor; or a box of a tensor
            does not fit into `memory`. (The name of the tensor in a .npy file is the stem of the file name.) Or options
            of quantization do not go together, or do not fit a tensor.
        FormatTagError, PatternError, NotationError: a rule has no valid format.
        Unimplemented: no conversion exists from the type of a tensor to `data_type`.
        FileError: `source` cannot be read, or `target` is the same file or cannot store the result.
    """
    find_format(target, target_options.storage_options)
    to_rules, from_rules = [parse_rule(text) for text in to], [parse_rule(text) for text in from_]
    if dims is not None and not from_rules:
        raise InvalidArguments("dims are for memory that the file does not describe: give its format too (--from)")
    store, limit = open_store(source, source_options), parse_nbytes(memory)
    require_other_place(parse_location(target), parse_location(source))
    for rule in (*to_rules, *from_rules):
        require_match(rule, store)
    if quantize is not None and not to_rules:
        raise InvalidArguments("quantize is for tensors that a rule matches: give their format (--to, such as plain)")
    if quantize is not None and dequantize:
        raise InvalidArguments("quantize and dequantize exclude each other: convert twice")
    require_scale_names(scales)
    quantization = None if quantize is None else parse_quantization(quantize, data_type, scales, scales_to, scales_type)
    target_type = None if data_type is None or quantize is not None else as_unscaled_type(data_type)
    planner = QuantizationPlanner(store, quantization, dequantize, scales, target_type)
    drafts = list[TensorDraft | ReorderDraft]()
    for tensor in planner.kept:
        from_rule, to_rule = first_match(from_rules, tensor.name), first_match(to_rules, tensor.name)
        src = tensor.desc if from_rule is None else source_descriptor(tensor, from_rule, dims)
        draft = planner.draft(tensor, src, to_rule)
        if draft is None:
            read, new = _plan_tensor(tensor, src, None if quantization else to_rule, target_type)
            draft = ReorderDraft(tensor, read, (new,))
        drafts.append(draft)
    made = make_target(target, [new for draft in drafts for new in draft.news], planner.metadata, target_options)
    require_other_files(store, made)
    return ConversionPlan(store, made, tuple(_place(draft, made, limit) for draft in drafts), limit)


def _plan_tensor(
    tensor: StoredTensor, src: MemoryDesc | None, rule: FormatRule | None, data_type: DataTypeLike | None
) -> tuple[MemoryDesc, NewTensor]:
    """Return the descriptor of the bytes to read of one tensor, and the tensor to write."""
    # A tensor without a descriptor, such as a scalar, is row-major already.
    is_only_row_major = rule is not None and rule.tag is None and data_type is None
    if src is None and rule is not None and not is_only_row_major:
        raise InvalidArguments(f"{rule.text} does not fit tensor {tensor.label}: {tensor.refusal}")
    dst = src if rule is None or src is None else destination_descriptor(tensor, src, rule, data_type)
    if rule is None and src is not None and tensor.is_view:
        dst = row_major(src.dims, src.require_layout(tensor.label)[1])
    if src is None or src == dst:
        # Behind the last element, a packed tensor has bytes up to a multiple of 64, which are not part of it.
        unchanged = raw_bytes(tensor.nbytes if src is None else min(tensor.nbytes, byte_extent(src)[1]))
        fields = (tensor.name, tensor.shape, unchanged, dst, tensor.stored_type)
        return unchanged, NewTensor(*fields, data_type=tensor.data_type, refusal=tensor.refusal)
    assert dst is not None
    return src, NewTensor(tensor.name, dst.dims, dst, dst)


def _cut(tensor: StoredTensor, src: MemoryDesc, new: NewTensor, target: Target, limit: int) -> TensorConversion:
    """Return the conversion of one tensor, cut into boxes of at most `limit` bytes."""
    placed = target.tensors[new.name]
    operation = ReorderOperation(placed, src.require_layout(tensor.label)[1])
    units = source_units(tensor, src, operation.units)
    return TensorConversion(tensor, src, new, operation, cut_extents(src, placed.desc, limit, units))


def _place(draft: TensorDraft | ReorderDraft, target: Target, limit: int) -> TensorConversion:
    """Return the conversion of one tensor, cut into boxes of at most `limit` bytes."""
    new, *beside = draft.news
    if isinstance(draft, ReorderDraft):
        return _cut(draft.tensor, draft.src, new, target, limit)
    operation, extents = draft.place(target.tensors, limit)
    return TensorConversion(draft.tensor, draft.src, new, operation, extents, beside=tuple(beside))


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
