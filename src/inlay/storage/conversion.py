"""Conversion of all tensors of a file: planning, and execution.

    plan = plan_conversion("resnet50.safetensors", "packed.safetensors", ["conv*.weight=OIhw16i16o"])
    print(plan)
    convert(plan)

`plan_conversion` reads only headers. The plan lists every tensor with its source and destination descriptor, and errors
are raised before a byte is written. `convert` processes one tensor at a time: it reads, reorders and appends its bytes
to a temporary file, slab by slab, and renames the file at the end. It counts the elements that the new data type cannot
represent, and raises an error if there are too many.

A **slab** is a range of the outermost axis of the source, so its bytes are one range of the file. A slab has about
1 MiB, so it stays in the cache while it is read, counted and reordered. All slabs except the last have equal
descriptors and use the same compiled reorder. If the axis is also the outermost of the destination, each slab is one
range of the result, and only one slab is in memory. Otherwise the whole result is assembled in memory:

    source, ab     slab 0 | slab 1 | slab 2            read one after the other into one buffer
    result, ba     every slab is a range of each row

A tensor is converted as a whole if its format has no such axis, or if its elements have 4 bits.
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
from inlay.notation import Notation, parse_notation
from inlay.notation.format_tag import FormatTag
from inlay.safetensors_header import TensorEntry
from inlay.storage.loss import ConversionLoss, LossCounter, require_little_loss
from inlay.storage.npy import npy_header, write_npy
from inlay.storage.packed import is_row_major, make_entry, metadata_of, open_store, require_suffix
from inlay.storage.safetensors_file import require_names, write_safetensors
from inlay.storage.store import Store, StoredTensor, StoreReader, row_major

# Rules


PLAIN = "plain"
"""Name that stands for row-major in place of a tag, for any number of dims."""


@dataclass(frozen=True, slots=True)
class FormatRule:
    """A format for tensors by name: `conv*.weight=OIhw16i16o`, or a format alone for every tensor."""

    pattern: str | None
    """Shell pattern for tensor names (`*`, `?`, `[abc]`); None matches every tensor."""
    tag: Notation | None
    """Format in any notation; None means row-major, written `plain`."""
    text: str
    """Text from which the rule was parsed."""

    def matches(self, name: str) -> bool:
        """Return True if the rule applies to the tensor `name`."""
        return self.pattern is None or fnmatchcase(name, self.pattern)


def parse_rule(text: str) -> FormatRule:
    """Parse `TAG` or `PATTERN=TAG`; the tag may be any text of `parse_notation`, or `plain` for row-major.

    Raises:
        InvalidArguments: the pattern is empty.
        FormatTagError, PatternError, NotationError: TAG is no format tag, nor of another notation.

    >>> rule = parse_rule("conv*.weight=OIhw16i16o")
    >>> rule.matches("conv1.weight"), rule.matches("fc.weight"), str(rule.tag)
    (True, False, 'ABcd16b16a')
    """
    pattern, equals, tag = text.rpartition("=")
    if equals and not pattern:
        raise InvalidArguments(
            f"the name pattern before '=' in {text!r} is empty: write *{text} for every tensor, or the tag alone"
        )
    return FormatRule(pattern if equals else None, None if tag == PLAIN else parse_notation(tag), text)


# Plans


@dataclass(frozen=True, slots=True)
class ConversionStep:
    """The conversion of one tensor."""

    tensor: StoredTensor
    """The tensor in the source file."""
    src: MemoryDesc | None
    """Descriptor of the source; None if the bytes are copied unchanged."""
    dst: MemoryDesc | None
    """Descriptor of the result; None if the tensor has none, as a scalar."""
    entry: TensorEntry
    """Header entry in the new file."""

    @property
    def is_copy(self) -> bool:
        """True if the bytes are copied unchanged."""
        return self.src is None or self.src == self.dst

    def __str__(self) -> str:
        """Return one line of text: name, source, destination."""
        if self.src is None or self.is_copy:
            shape = "x".join(map(str, self.tensor.shape))
            return f"{self.tensor.label}: {self.tensor.stored_type} {shape}, copied, {self.entry.nbytes} bytes"
        dims = "x".join(map(str, self.src.dims))
        sizes = f"{self.tensor.nbytes} -> {self.entry.nbytes} bytes"
        return f"{self.tensor.label}: {dims}, {self.src} -> {self.dst}, {sizes}"


@dataclass(frozen=True, slots=True)
class ConversionPlan:
    """The plan of a conversion of one file into another, for `convert`."""

    source: Store
    """The file to read."""
    target: Path
    """The file to write."""
    steps: tuple[ConversionStep, ...]
    """One step for each tensor of the new file."""
    metadata: Mapping[str, str]
    """Metadata of the new file: that of the source, and the descriptors."""

    @property
    def nbytes(self) -> int:
        """Size of all tensor data to write, in bytes."""
        return sum(step.entry.nbytes for step in self.steps)

    @property
    def converted(self) -> int:
        """Number of tensors that are not copied unchanged."""
        return sum(not step.is_copy for step in self.steps)

    def __str__(self) -> str:
        """Return one line of text for each tensor."""
        return "\n".join(map(str, self.steps))


def plan_conversion(
    source: str | Path,
    target: str | Path,
    to: Sequence[str],
    from_: Sequence[str] = (),
    data_type: DataTypeLike | None = None,
    dims: Dims | None = None,
) -> ConversionPlan:
    """Plan the conversion of the tensors of `source` that a rule of `to` matches; other tensors are copied unchanged.

    The first matching rule of `to` defines the format of a tensor, and `data_type`, if not None, its data type. A rule
    of `from_` defines the format of a tensor that the file stores without a descriptor. The shape in the file is then
    one entry for each letter of the tag and one for each inner block; or a single entry, and `dims` are the logical
    dims.

    Raises:
        InvalidArguments: a rule matches no tensor, has another number of letters than a tensor that it matches, or
            matches a tensor without a descriptor; or `target` cannot store the name of a tensor. (The name of the
            tensor in a .npy file is the stem of the file name.)
        FormatTagError, PatternError, NotationError: a rule has no valid format.
        Unimplemented: no conversion exists from the type of a tensor to `data_type`.
        FileError: `source` cannot be read, or `target` is the same file or cannot store the result.
    """
    source, target = Path(source), Path(target)
    require_suffix(source)
    require_suffix(target)
    to_rules, from_rules = [parse_rule(text) for text in to], [parse_rule(text) for text in from_]
    if dims is not None and not from_rules:
        raise InvalidArguments("dims are for memory that the file does not describe: give its format too (--from)")
    store = open_store(source)
    require_unused(target, source)
    for rule in (*to_rules, *from_rules):
        _require_match(rule, store)
    target_type = None if data_type is None else as_data_type(data_type)
    steps = []
    for tensor in store.tensors:
        to_rule = next((rule for rule in to_rules if rule.matches(tensor.name)), None)
        from_rule = next((rule for rule in from_rules if rule.matches(tensor.name)), None)
        steps.append(_plan_step(tensor, to_rule, from_rule, target_type, dims))
    plan = ConversionPlan(store, target, tuple(steps), {})
    return _plan_npy(plan) if target.suffix == ".npy" else _plan_safetensors(plan)


def _require_match(rule: FormatRule, store: Store) -> None:
    """Check that the rule matches a tensor of the store."""
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
    """Return the step of one tensor, for the rules that match it."""
    src = tensor.desc if from_rule is None else source_descriptor(tensor, from_rule, dims)
    # A tensor without a descriptor, such as a scalar, is row-major already.
    is_only_row_major = to_rule is not None and to_rule.tag is None and data_type is None
    if to_rule is None or (src is None and is_only_row_major):
        return _copy_step(tensor, src)
    if src is None:
        raise InvalidArguments(f"{to_rule.text} does not fit tensor {tensor.label}: {tensor.refusal}")
    dst = _destination_desc(tensor, src, to_rule, data_type)
    return ConversionStep(tensor, src, dst, make_entry(tensor.name, dst))


def _copy_step(tensor: StoredTensor, src: MemoryDesc | None) -> ConversionStep:
    """Return the step that copies a tensor unchanged.

    `src` is its descriptor, None if it has none. If the caller described the tensor differently from the file, the new
    file stores the caller's descriptor.
    """
    if src is None or src == tensor.desc:
        entry = TensorEntry(tensor.name, tensor.stored_type, tensor.shape, tensor.nbytes)
        return ConversionStep(tensor, None, tensor.desc, entry)
    return ConversionStep(tensor, src, src, make_entry(tensor.name, src))


def _destination_desc(
    tensor: StoredTensor, src: MemoryDesc, rule: FormatRule, data_type: DataTypeLike | None
) -> MemoryDesc:
    """Return the descriptor of the result for a rule of `to`."""
    src_type = src.require_layout(rule.text)[1]
    dst_type = src_type if data_type is None else as_data_type(data_type)
    if rule.tag is None:
        return row_major(src.dims, dst_type)
    if rule.tag.ndims != src.ndims:
        raise InvalidArguments(
            f"{rule.text} does not fit tensor {tensor.label}: {_places(rule.tag)}, dims {src.dims} "
            f"are {src.ndims}; name the tensors it is for, as in 'conv*=TAG'"
        )
    return MemoryDesc(src.dims, dst_type, rule.tag)


def _places(notation: Notation) -> str:
    """Return the text that says how many axes a format places."""
    if isinstance(notation, FormatTag):
        return f"{notation} has {notation.ndims} letters"
    return f"it has {notation.ndims} axes"


def source_descriptor(tensor: StoredTensor, rule: FormatRule, dims: Dims | None = None) -> MemoryDesc | None:
    """Return the descriptor, in the format of `rule`, of a tensor that the file stores without a descriptor.

    The shape in the file has one entry for each letter of the tag (the number of blocks if the axis is blocked), then
    one for each inner block. Or it has a single entry, and `dims` are the logical dims. For another notation than a
    tag, `dims` are the logical dims, and the shape has any number of entries.

    Raises:
        InvalidArguments: the shape does not fit the tag or `dims`, the file has a descriptor of the tensor, or no
            descriptor has its type or number of dims.
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
    if not isinstance(rule.tag, FormatTag):
        return _source_of_notation(tensor, rule, desc, rule.tag, dims)
    logical = dims if dims is not None else _logical_dims(tensor, rule.tag)
    src = MemoryDesc(logical, desc.data_type, rule.tag)
    shape, flat = _memory_shape(src, rule.tag), (prod(src.padded_dims),)
    if tensor.shape not in (shape, flat):
        raise InvalidArguments(
            f"tensor {tensor.label} has the shape {tensor.shape}: {rule.text} of dims {src.dims} needs {shape} "
            f"or {flat}"
        )
    return src


def _source_of_notation(
    tensor: StoredTensor, rule: FormatRule, stored: MemoryDesc, notation: Notation, dims: Dims | None
) -> MemoryDesc:
    """Return the descriptor of a tensor whose format is in another notation than a tag."""
    if dims is None:
        raise InvalidArguments(f"{rule.text} needs the dims of tensor {tensor.label}: give them (--dims)")
    src = MemoryDesc(dims, stored.data_type, notation)
    if prod(tensor.shape) != prod(src.padded_dims):
        raise InvalidArguments(
            f"tensor {tensor.label} has the shape {tensor.shape}: {rule.text} of dims {src.dims} needs "
            f"{prod(src.padded_dims)} elements"
        )
    return src


def _memory_shape(desc: MemoryDesc, tag: FormatTag) -> Dims:
    """Return the shape of the memory of `desc`: outer axes in the order of the tag, then inner blocks."""
    outer = (desc.padded_dims[axis] // tag.blocks(axis) for axis in tag.order)
    return (*outer, *(size for _, size in tag.inner_blocks))


def _logical_dims(tensor: StoredTensor, tag: FormatTag) -> Dims:
    """Return the padded dims of a tensor whose shape in the file is outer axes in the order of `tag`, then blocks."""
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
    """Check that a .npy file can store the result, and return the plan."""
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
            f"cannot write {plan.target}: a .npy file stores only row-major tensors, not {dst}; "
            "write a .safetensors file instead"
        )
    npy_header(dst)
    return plan


def _plan_safetensors(plan: ConversionPlan) -> ConversionPlan:
    """Check that a safetensors file can store the result, and return the plan with the metadata of the file."""
    require_names(step.entry.name for step in plan.steps)
    descs = {step.tensor.name: step.dst for step in plan.steps if step.dst is not None}
    for step in plan.steps:
        if step.dst is None and plan.source.path.suffix == ".npy":
            raise InvalidArguments(f"{plan.target} cannot hold tensor {step.tensor.label}: {step.tensor.refusal}")
    metadata = {**plan.source.metadata, **metadata_of(descs)}
    return ConversionPlan(plan.source, plan.target, plan.steps, metadata)


# Execution


def convert(
    plan: ConversionPlan, progress: Progress | None = None, *, allow_loss: bool = False
) -> tuple[ConversionLoss, ...]:
    """Execute `plan`, and return the loss of each tensor in which elements became zero or saturated.

    `progress` is called with the number of bytes after each write. Losses are in the order in which tensors are
    written.

    Post-conditions:
        The target contains every tensor of the plan. If an exception is raised, the target is unchanged and no new file
        is in its directory. Memory use is at most that of the largest tensor and its result.

    Raises:
        InvalidArguments: over 0.1 % of the nonzero elements of a tensor would become zero or saturate, and `allow_loss`
            is False.
        FileError: the source became shorter or was modified during the conversion, or the target cannot be written.
        OutOfMemory: the operating system cannot provide the bytes of a tensor.
    """
    losses: list[ConversionLoss] = []

    def record(loss: ConversionLoss) -> None:
        """Check the loss of one tensor, and add it to the result if it is not 0."""
        if not allow_loss:
            require_little_loss(loss)
        if loss.share:
            losses.append(loss)

    with StoreReader(plan.source) as reader:
        _write(plan, lambda step: _convert_tensor(reader, step, record), progress)
    return tuple(losses)


def _write(
    plan: ConversionPlan, pieces: Callable[[ConversionStep], Iterator[Bytes]], progress: Progress | None
) -> None:
    """Write the target; `pieces` yields the bytes of the result of a step."""
    if plan.target.suffix == ".npy":
        step = plan.steps[0]
        assert step.dst is not None
        write_npy(plan.target, step.dst, pieces(step), progress)
        return
    by_name = {step.entry.name: step for step in plan.steps}
    entries = [step.entry for step in plan.steps]
    write_safetensors(plan.target, entries, plan.metadata, lambda entry: pieces(by_name[entry.name]), progress)


def _convert_tensor(
    reader: StoreReader, step: ConversionStep, record: Callable[[ConversionLoss], None]
) -> Iterator[Bytes]:
    """Yield the bytes of the result of one step, then call `record` with its loss."""
    if step.src is None or step.dst is None or step.is_copy:
        yield from reader.pieces(step.tensor)
        yield np.zeros(step.entry.nbytes - step.tensor.nbytes, np.uint8)
    else:
        src_type, dst_type = (desc.require_layout(step.entry.name)[1] for desc in (step.src, step.dst))
        counter = LossCounter(step.entry.name, src_type, dst_type)
        yield from convert_in_slabs(reader, step.tensor, step.src, step.dst, step.entry.nbytes, counter)
        record(counter.loss)
    reader.require_unchanged()


def convert_in_slabs(
    reader: StoreReader, tensor: StoredTensor, src: MemoryDesc, dst: MemoryDesc, nbytes: int, counter: LossCounter
) -> Iterator[Bytes]:
    """Yield the `nbytes` bytes of a tensor converted from `src` to `dst`; `counter` counts the loss.

    The next piece may overwrite the previous one. Bytes that contain no element are zero.

    Raises:
        FileError: the file cannot be read, or became shorter.
        OutOfMemory: the operating system cannot provide the bytes of the tensor or its result.
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
    out = allocate(max(_byte_extent(slab.dst) for slab in slabs) if is_ordered else nbytes)
    for slab in slabs:
        part = data[: slab.src_nbytes]
        reader.read_part(tensor, slab.src_begin, part)
        memory = Memory(slab.src, part)
        counter.add(memory)
        reorder(memory, slab.dst, out=Memory(slab.dst, out if is_ordered else out[slab.dst_begin :]))
        if is_ordered:
            yield out[: _byte_extent(slab.dst)]
    yield np.zeros(nbytes - _byte_extent(dst), np.uint8) if is_ordered else out


# Slabs


_SLAB = 1 << 20
"""Approximate size of a slab of the source, in bytes, so that it fits in the second-level cache."""


@dataclass(frozen=True, slots=True)
class Slab:
    """A range of one axis of a tensor, in the source and in the result of a conversion."""

    src: MemoryDesc
    """Descriptor of the range in the source."""
    dst: MemoryDesc
    """Descriptor of the range in the result."""
    src_begin: int
    """Offset of the range in the source, in bytes."""
    dst_begin: int
    """Offset of the range in the result, in bytes."""

    @property
    def src_nbytes(self) -> int:
        """Size of the range in the source, in bytes."""
        return _byte_extent(self.src)


def cut_into_slabs(src: MemoryDesc, dst: MemoryDesc) -> list[Slab]:
    """Return the slabs of a tensor in order; none if it must be converted as a whole.

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
    rows = max(_SLAB * src.dims[axis] // _byte_extent(src) // unit, 1) * unit
    slabs = []
    for begin in range(0, src.dims[axis], rows):
        end = min(begin + rows, src.dims[axis])
        sides = ((src_axis, src), (dst_axis, dst))
        starts = (begin // side.block * side.stride * _itemsize(desc) for side, desc in sides)
        slabs.append(Slab(_range_desc(src, axis, begin, end), _range_desc(dst, axis, begin, end), *starts))
    return slabs


def _outermost_axis(desc: MemoryDesc) -> int | None:
    """Return the axis whose ranges are contiguous ranges of memory, or None if there is none or memory has gaps."""
    if not _has_whole_bytes(desc):
        return None
    layout, _ = desc.require_layout("a slab")
    count = prod(layout.dims)
    if not count or layout.span != (0, count):
        return None
    outermost = (i for i, n in enumerate(layout.dims) if layout.axes[i].stride * n == count * layout.axes[i].block)
    return next((i for i in outermost if layout.dims[i] > layout.axes[i].block), None)


def _has_whole_bytes(desc: MemoryDesc) -> bool:
    """Return True if elements are whole bytes, the first is at offset 0, and there are no extras."""
    data_type = desc.data_type
    is_plain = desc.offset0 == 0 and desc.extras == NO_EXTRAS
    return is_plain and data_type is not None and not data_type.is_sub_byte


def _itemsize(desc: MemoryDesc) -> int:
    return desc.require_layout("a slab")[1].itemsize


def _byte_extent(desc: MemoryDesc) -> int:
    """Return the number of bytes from offset 0 to the end of the last element."""
    return desc.require_layout("a slab")[0].span[1] * _itemsize(desc)


def _range_desc(desc: MemoryDesc, axis: int, begin: int, end: int) -> MemoryDesc:
    """Return the descriptor of the range `begin` to `end` of an axis, for memory that begins with the range."""
    layout, data_type = desc.require_layout("a slab")
    block = layout.axes[axis].block
    is_last = end == desc.dims[axis]
    padded_dim = layout.dims[axis] - begin if is_last else -(-(end - begin) // block) * block
    dims, padded = list(desc.dims), list(layout.dims)
    dims[axis], padded[axis] = end - begin, padded_dim
    return MemoryDesc.from_layout(Layout(tuple(padded), layout.axes), data_type, dims=tuple(dims))
