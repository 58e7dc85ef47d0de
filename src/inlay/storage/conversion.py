"""Conversion of a file of tensors: a plan, and the executor that carries it out.

    plan = plan_conversion("resnet50.safetensors", "packed.safetensors", ["conv*.weight=OIhw16i16o"])
    print(plan)
    convert(plan)

A plan is made from headers alone: it names every tensor with its source and destination descriptor and refuses what
cannot be done before a byte is written. The executor takes one tensor at a time: its bytes are read, reordered and
appended to the new file slab by slab; the file takes its name when all is done. What a new data type loses is counted
on the way, and too much of it is refused.

A **slab** is a range of the outermost axis of the source, so its bytes are one range of the file: a megabyte is read,
counted and reordered while it is in the cache. All slabs but the last have equal descriptors, and one compiled reorder
moves them. Where the axis is the outermost of the destination too, each slab is a range of the result and nothing else
is held; else the result is put together in memory.

    source, ab     slab 0 | slab 1 | slab 2            read one after the other into one buffer
    result, ba     every slab is a range of each row

Formats without such an axis, and elements of less than a byte, are one slab.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from math import lcm, prod
from pathlib import Path

import numpy as np

from inlay.data_type import DataTypeLike, as_data_type
from inlay.descriptor import MemoryDesc
from inlay.descriptor.extras import NO_EXTRAS
from inlay.errors import FileError, InvalidArguments
from inlay.files import Progress, require_unused
from inlay.layout import Dims, Layout
from inlay.memory import Memory, reorder
from inlay.memory.buffers import Bytes, allocate
from inlay.notation.format_tag import FormatTag
from inlay.storage.loss import ConversionLoss, LossCounter, require_little_loss
from inlay.storage.npy import npy_header, write_npy
from inlay.storage.packed import entry_of, is_row_major, metadata_of, open_store, require_suffix
from inlay.storage.safetensors_file import Entry, require_names, write_safetensors
from inlay.storage.store import Store, StoredTensor, StoreReader, row_major

# Rules


PLAIN = "plain"
"""The word for row-major in place of a tag, whatever the number of dims."""


@dataclass(frozen=True, slots=True)
class FormatRule:
    """Which tensors have which format: `conv*.weight=OIhw16i16o`, or a format alone for every tensor."""

    pattern: str | None
    """A shell pattern for tensor names (`*`, `?`, `[abc]`); None matches every tensor."""
    tag: FormatTag | None
    """The format; None is row-major, written `plain`."""
    text: str
    """The rule as it was written."""

    def matches(self, name: str) -> bool:
        """Whether the rule is for the tensor `name`."""
        return self.pattern is None or fnmatchcase(name, self.pattern)


def parse_rule(text: str) -> FormatRule:
    """Read `TAG` or `PATTERN=TAG`; the tag may be an alias, or `plain` for row-major.

    Raises:
        InvalidArguments: the pattern is empty.
        FormatTagError: the tag is not a tag.

    >>> rule = parse_rule("conv*.weight=OIhw16i16o")
    >>> rule.matches("conv1.weight"), rule.matches("fc.weight"), str(rule.tag)
    (True, False, 'ABcd16b16a')
    """
    pattern, equals, tag = text.rpartition("=")
    if equals and not pattern:
        raise InvalidArguments(
            f"the name pattern before '=' in {text!r} is empty: write *{text} for every tensor, or the tag alone"
        )
    return FormatRule(pattern if equals else None, None if tag == PLAIN else FormatTag.parse(tag), text)


# Plans


@dataclass(frozen=True, slots=True)
class ConversionStep:
    """What happens to one tensor."""

    tensor: StoredTensor
    """The tensor in the source file."""
    src: MemoryDesc | None
    """The descriptor its bytes are read by; None when they are copied as they are."""
    dst: MemoryDesc | None
    """The descriptor its bytes are written by; None when no descriptor can be made of the tensor."""
    entry: Entry
    """How it is kept in the new file."""

    @property
    def is_copy(self) -> bool:
        """Whether the bytes are copied as they are."""
        return self.src is None or self.src == self.dst

    def __str__(self) -> str:
        """One line: name, source, destination."""
        if self.src is None or self.is_copy:
            shape = "x".join(map(str, self.tensor.shape))
            return f"{self.tensor.label}: {self.tensor.stored_type} {shape}, copied, {self.entry.nbytes} bytes"
        dims = "x".join(map(str, self.src.dims))
        sizes = f"{self.tensor.nbytes} -> {self.entry.nbytes} bytes"
        return f"{self.tensor.label}: {dims}, {self.src} -> {self.dst}, {sizes}"


@dataclass(frozen=True, slots=True)
class ConversionPlan:
    """A conversion of one file into another, ready to be carried out, printed or tested."""

    source: Store
    """The file that is read."""
    target: Path
    """The file that will be written."""
    steps: tuple[ConversionStep, ...]
    """One per tensor of the new file."""
    metadata: Mapping[str, str]
    """The texts of the new file: those of the source, and the descriptors."""

    @property
    def nbytes(self) -> int:
        """Bytes of tensor data that will be written."""
        return sum(step.entry.nbytes for step in self.steps)

    @property
    def converted(self) -> int:
        """How many tensors are not just copied."""
        return sum(not step.is_copy for step in self.steps)

    def __str__(self) -> str:
        """One line per tensor."""
        return "\n".join(map(str, self.steps))


def plan_conversion(
    source: str | Path,
    target: str | Path,
    to: Sequence[str],
    from_: Sequence[str] = (),
    data_type: DataTypeLike | None = None,
    dims: Dims | None = None,
) -> ConversionPlan:
    """Plan the conversion of the tensors of `source` that a rule of `to` matches; the others are copied as they are.

    The first rule that matches a tensor holds. A rule of `from_` says that the file has no descriptor of a tensor,
    only its memory in that format: the shape in the file is then one entry per letter of the tag and one per inner
    block, or one entry for all with the logical `dims` given. `data_type` converts the elements of the tensors matched.

    Raises:
        InvalidArguments: a rule does not fit: no tensor matches it, it has another number of letters than a tensor
            that it matches, or no descriptor can be made of the tensor. Or `target` cannot keep the name of a tensor:
            that of a .npy file is the stem of the file name.
        FormatTagError: a rule has no tag that can be read.
        Unimplemented: no conversion exists from the type of a tensor to `data_type`.
        FileError: `source` cannot be read, `target` is the same file or cannot keep the result.
    """
    source, target = Path(source), Path(target)
    require_suffix(source)
    require_suffix(target)
    to_rules, from_rules = [parse_rule(text) for text in to], [parse_rule(text) for text in from_]
    if dims is not None and not from_rules:
        raise InvalidArguments("dims are for memory that the file does not describe: give its format too (--from)")
    store = open_store(source)
    require_unused(target, source)
    for required in (*to_rules, *from_rules):
        _require_match(required, store)
    target_type = None if data_type is None else as_data_type(data_type)
    steps = []
    for tensor in store.tensors:
        rule = next((r for r in to_rules if r.matches(tensor.name)), None)
        written_by = next((r for r in from_rules if r.matches(tensor.name)), None)
        steps.append(_plan_step(tensor, rule, written_by, target_type, dims))
    plan = ConversionPlan(store, target, tuple(steps), {})
    return _plan_npy(plan) if target.suffix == ".npy" else _plan_safetensors(plan)


def _require_match(rule: FormatRule, store: Store) -> None:
    if any(rule.matches(t.name) for t in store.tensors):
        return
    if not store.tensors:
        raise InvalidArguments(f"{store.path} holds no tensor: there is nothing to convert")
    names = ", ".join(t.label for t in store.tensors[:3])
    more = f" and {len(store.tensors) - 3} more" if len(store.tensors) > 3 else ""
    raise InvalidArguments(f"no tensor of {store.path} matches {rule.pattern!r}: its tensors are {names}{more}")


def _plan_step(
    tensor: StoredTensor,
    to_rule: FormatRule | None,
    from_rule: FormatRule | None,
    data_type: DataTypeLike | None,
    dims: Dims | None,
) -> ConversionStep:
    src = tensor.desc if from_rule is None else source_descriptor(tensor, from_rule, dims)
    is_mere_plain = to_rule is not None and to_rule.tag is None and data_type is None
    if to_rule is None or (src is None and is_mere_plain):
        return _copy_step(tensor, src)
    if src is None:
        raise InvalidArguments(f"{to_rule.text} does not fit tensor {tensor.label}: {tensor.refusal}")
    dst = _destination(tensor, src, to_rule, data_type)
    return ConversionStep(tensor, src, dst, entry_of(tensor.name, dst))


def _copy_step(tensor: StoredTensor, src: MemoryDesc | None) -> ConversionStep:
    """The tensor as it is. Memory of a format that only `from_` knows keeps that format as its descriptor."""
    if src is None or src == tensor.desc:
        entry = Entry(tensor.name, tensor.stored_type, tensor.shape, tensor.nbytes)
        return ConversionStep(tensor, None, tensor.desc, entry)
    return ConversionStep(tensor, src, src, entry_of(tensor.name, src))


def _destination(tensor: StoredTensor, src: MemoryDesc, rule: FormatRule, data_type: DataTypeLike | None) -> MemoryDesc:
    src_type = src.require_layout(rule.text)[1]
    dst_type = src_type if data_type is None else as_data_type(data_type)
    if rule.tag is None:
        return row_major(src.dims, dst_type)
    if rule.tag.ndims != src.ndims:
        raise InvalidArguments(
            f"{rule.text} does not fit tensor {tensor.label}: {rule.tag} has {rule.tag.ndims} letters, dims {src.dims} "
            f"are {src.ndims}; name the tensors it is for, as in 'conv*=TAG'"
        )
    return MemoryDesc(src.dims, dst_type, rule.tag)


def source_descriptor(tensor: StoredTensor, rule: FormatRule, dims: Dims | None = None) -> MemoryDesc | None:
    """The descriptor of a tensor of which the file only has the memory, in the format of `rule`.

    The shape in the file is as the tag reads: one entry per letter (its blocks, where it is blocked), then one per
    inner block; or it has one axis and `dims` are given.

    Raises:
        InvalidArguments: the shape does not fit the tag or `dims`, the file already has a descriptor, or none can be
            made of the tensor.
    """
    if rule.tag is None:
        return tensor.desc
    if tensor.is_packed:
        raise InvalidArguments(f"tensor {tensor.label} already has the descriptor {tensor.desc}: leave out {rule.text}")
    desc = tensor.desc
    if desc is None:
        raise InvalidArguments(f"{rule.text} does not fit tensor {tensor.label}: {tensor.refusal}")
    if not is_row_major(desc):
        raise InvalidArguments(f"{rule.text} does not fit tensor {tensor.label}: it is column-major; save it row-major")
    logical = dims if dims is not None else _logical_dims(tensor, rule.tag)
    src = MemoryDesc(logical, desc.data_type, rule.tag)
    shape, flat = _memory_shape(src, rule.tag), (prod(src.padded_dims),)
    if tensor.shape not in (shape, flat):
        raise InvalidArguments(
            f"tensor {tensor.label} has the shape {tensor.shape}: {rule.text} of dims {src.dims} needs {shape} "
            f"or {flat}"
        )
    return src


def _memory_shape(desc: MemoryDesc, tag: FormatTag) -> Dims:
    """The shape of the memory of `desc` as its tag reads."""
    outer = (desc.padded_dims[axis] // tag.blocks(axis) for axis in tag.order)
    return (*outer, *(size for _, size in tag.inner_blocks))


def _logical_dims(tensor: StoredTensor, tag: FormatTag) -> Dims:
    """The dims, padding included, of memory whose shape is as `tag` reads."""
    n, inner = tag.ndims, tuple(size for _, size in tag.inner_blocks)
    if len(tensor.shape) != n + len(inner) or tensor.shape[n:] != inner:
        blocks = f" and then {inner}" if inner else ""
        raise InvalidArguments(
            f"tensor {tensor.label} has the shape {tensor.shape}: memory in format {tag} has {n} entries{blocks}; "
            "give the dims of the tensor (--dims) if its memory is one axis"
        )
    dims = [0] * n
    for axis, count in zip(tag.order, tensor.shape, strict=False):
        dims[axis] = count * tag.blocks(axis)
    return tuple(dims)


def _plan_npy(plan: ConversionPlan) -> ConversionPlan:
    if len(plan.steps) != 1:
        raise FileError(
            f"cannot write {plan.target}: a .npy file holds one array, {plan.source.path} has {len(plan.steps)} "
            "tensors; write a .safetensors file instead"
        )
    tensor, dst = plan.steps[0].tensor, plan.steps[0].dst
    if dst is None:
        raise InvalidArguments(f"{plan.target} cannot hold tensor {tensor.label}: {tensor.refusal}")
    if not is_row_major(dst):
        raise FileError(
            f"cannot write {plan.target}: a .npy file keeps only row-major tensors, not {dst}; "
            "write a .safetensors file instead"
        )
    npy_header(dst)
    return plan


def _plan_safetensors(plan: ConversionPlan) -> ConversionPlan:
    require_names(step.entry.name for step in plan.steps)
    descs = {step.tensor.name: step.dst for step in plan.steps if step.dst is not None}
    for step in plan.steps:
        if step.dst is None and plan.source.path.suffix == ".npy":
            raise InvalidArguments(f"{plan.target} cannot hold tensor {step.tensor.label}: {step.tensor.refusal}")
    metadata = {**plan.source.metadata, **metadata_of(descs)}
    return ConversionPlan(plan.source, plan.target, plan.steps, metadata)


# The executor


def convert(
    plan: ConversionPlan, progress: Progress | None = None, *, allow_loss: bool = False
) -> tuple[ConversionLoss, ...]:
    """Carry out `plan`, telling `progress` the bytes written as they are; return what tensors lost by their new type.

    Listed are the tensors of which elements became zero or saturated, in the order in which they were written.

    Post-conditions:
        The target holds every tensor of the plan. When this raises, the target is as it was before and nothing else
        has appeared beside it. Memory is bounded by the largest tensor and its result.

    Raises:
        InvalidArguments: over 0.1 % of the non-zero elements of a tensor would become zero or saturate, and
            `allow_loss` is false.
        FileError: the source became shorter or was rewritten meanwhile, or the target cannot be written.
        OutOfMemory: there is no room for a tensor.
    """
    losses: list[ConversionLoss] = []

    def keep(loss: ConversionLoss) -> None:
        if not allow_loss:
            require_little_loss(loss)
        if loss.share:
            losses.append(loss)

    with StoreReader(plan.source) as reader:
        _write(plan, lambda step: _pieces(reader, step, keep), progress)
    return tuple(losses)


def _write(
    plan: ConversionPlan, pieces: Callable[[ConversionStep], Iterator[Bytes]], progress: Progress | None
) -> None:
    if plan.target.suffix == ".npy":
        step = plan.steps[0]
        assert step.dst is not None
        write_npy(plan.target, step.dst, pieces(step), progress)
        return
    by_name = {step.entry.name: step for step in plan.steps}
    entries = [step.entry for step in plan.steps]
    write_safetensors(plan.target, entries, plan.metadata, lambda entry: pieces(by_name[entry.name]), progress)


def _pieces(reader: StoreReader, step: ConversionStep, keep: Callable[[ConversionLoss], None]) -> Iterator[Bytes]:
    """The bytes of one tensor of the new file; what it loses is then told to `keep`."""
    if step.src is None or step.dst is None or step.is_copy:
        yield from reader.pieces(step.tensor)
        yield np.zeros(step.entry.nbytes - step.tensor.nbytes, np.uint8)
    else:
        src_type, dst_type = (desc.require_layout(step.entry.name)[1] for desc in (step.src, step.dst))
        counter = LossCounter(step.entry.name, src_type, dst_type)
        yield from converted_pieces(reader, step.tensor, step.src, step.dst, step.entry.nbytes, counter)
        keep(counter.loss)
    reader.require_unchanged()


def converted_pieces(
    reader: StoreReader, tensor: StoredTensor, src: MemoryDesc, dst: MemoryDesc, nbytes: int, counter: LossCounter
) -> Iterator[Bytes]:
    """The `nbytes` bytes of a tensor in the format `dst`, in order; `counter` is told all that is read.

    A piece may be overwritten by the next. Bytes that `dst` places nothing at are zero.

    Raises:
        FileError: the file cannot be read, or became shorter.
        OutOfMemory: there is no room.
    """
    slabs = cut_into_slabs(src, dst)
    if len(slabs) < 2:
        memory = Memory(src, reader.read(tensor))
        counter.add(memory)
        out = allocate(nbytes)
        reorder(memory, dst, out=Memory(dst, out))
        yield out
        return
    data = allocate(max(slab.src_nbytes for slab in slabs))
    is_ordered = _outermost_axis(dst) == _outermost_axis(src)
    out = allocate(max(_reached(slab.dst) for slab in slabs) if is_ordered else nbytes)
    for slab in slabs:
        part = data[: slab.src_nbytes]
        reader.read_part(tensor, slab.src_begin, part)
        memory = Memory(slab.src, part)
        counter.add(memory)
        reorder(memory, slab.dst, out=Memory(slab.dst, out if is_ordered else out[slab.dst_begin :]))
        if is_ordered:
            yield out[: _reached(slab.dst)]
    yield np.zeros(nbytes - _reached(dst), np.uint8) if is_ordered else out


# Slabs


_SLAB = 1 << 20
"""Bytes of a slab, about: in the second-level cache while it is counted and reordered."""


@dataclass(frozen=True, slots=True)
class Slab:
    """A part of a tensor on both sides of a conversion."""

    src: MemoryDesc
    """What is read."""
    dst: MemoryDesc
    """What is written."""
    src_begin: int
    """The byte of the source at which its memory begins."""
    dst_begin: int
    """The byte of the result at which its memory begins."""

    @property
    def src_nbytes(self) -> int:
        """How many bytes are read."""
        return _reached(self.src)


def cut_into_slabs(src: MemoryDesc, dst: MemoryDesc) -> list[Slab]:
    """The slabs of a tensor in order, none where it is not to be cut.

    >>> wide = MemoryDesc((1 << 20, 8), "f32", "ab")
    >>> slabs = cut_into_slabs(wide, MemoryDesc((1 << 20, 8), "bf16", "ba"))
    >>> len(slabs), slabs[1].src, slabs[1].src_begin, slabs[1].dst_begin
    (32, MemoryDesc((32768, 8), 'f32', 'ab'), 1048576, 65536)
    """
    axis = _outermost_axis(src)
    if axis is None or not _has_whole_bytes(dst):
        return []
    src_axis, dst_axis = (desc.require_layout("a slab")[0].axes[axis] for desc in (src, dst))
    unit = lcm(src_axis.block, dst_axis.block)
    rows = max(_SLAB * src.dims[axis] // _reached(src) // unit, 1) * unit
    slabs = []
    for begin in range(0, src.dims[axis], rows):
        end = min(begin + rows, src.dims[axis])
        starts = (begin // one.block * one.stride * _itemsize(desc) for one, desc in ((src_axis, src), (dst_axis, dst)))
        slabs.append(Slab(_range_of(src, axis, begin, end), _range_of(dst, axis, begin, end), *starts))
    return slabs


def _outermost_axis(desc: MemoryDesc) -> int | None:
    """The axis whose ranges are ranges of the memory, which has no gap; None if there is none."""
    if not _has_whole_bytes(desc):
        return None
    layout, _ = desc.require_layout("a slab")
    count = prod(layout.dims)
    if not count or layout.span != (0, count):
        return None
    outermost = (i for i, n in enumerate(layout.dims) if layout.axes[i].stride * n == count * layout.axes[i].block)
    return next((i for i in outermost if layout.dims[i] > layout.axes[i].block), None)


def _has_whole_bytes(desc: MemoryDesc) -> bool:
    data_type = desc.data_type
    is_plain = desc.offset0 == 0 and desc.extras == NO_EXTRAS
    return is_plain and data_type is not None and not data_type.is_sub_byte


def _itemsize(desc: MemoryDesc) -> int:
    return desc.require_layout("a slab")[1].itemsize


def _reached(desc: MemoryDesc) -> int:
    """The bytes from the first element to the last."""
    return desc.require_layout("a slab")[0].span[1] * _itemsize(desc)


def _range_of(desc: MemoryDesc, axis: int, begin: int, end: int) -> MemoryDesc:
    """The descriptor of coordinates `begin` to `end` of an axis, of memory that begins there."""
    layout, data_type = desc.require_layout("a slab")
    block = layout.axes[axis].block
    stored = layout.dims[axis] - begin if end == desc.dims[axis] else -(-(end - begin) // block) * block
    dims, padded = list(desc.dims), list(layout.dims)
    dims[axis], padded[axis] = end - begin, stored
    return MemoryDesc.from_layout(Layout(tuple(padded), layout.axes), data_type, dims=tuple(dims))
