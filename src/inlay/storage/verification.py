"""Verification of a conversion: the target is read back, and each of its elements is compared with the source.

    plan = inlay.storage.plan("w.safetensors", "packed.safetensors", ["conv*=OIhw16i16o"])
    inlay.storage.convert(plan)
    inlay.storage.verify(plan)

Both sides are read by the coordinate map of their layouts (`element_reading`), and converted between data types by the
arithmetic of `inlay.reordering.reference`. Neither shares code with the conversion. All elements are compared, and all
padding has to be zero. What another operation than a reorder made, such as quantized blocks, is made again from the
source and compared.
"""

from collections.abc import Iterator, Mapping
from types import TracebackType

import numpy as np

from inlay.data_type import DataType
from inlay.descriptor import MemoryDesc
from inlay.errors import FileError, printable
from inlay.files import Progress
from inlay.memory import Memory
from inlay.reordering.reference import convert as convert_codes
from inlay.reordering.reference import read_codes as read_memory_codes
from inlay.storage.box import Box
from inlay.storage.box_bytes import require_place
from inlay.storage.conversion_plan import ConversionPlan, TensorConversion
from inlay.storage.element_reading import Codes, find_differences, read_codes
from inlay.storage.formats import open_written
from inlay.storage.operation import BoxOperation, InputOperation, ReorderOperation, greatest_scan
from inlay.storage.staged_store import StagedStore
from inlay.storage.store import Store, StoredTensor, StoreReader, row_major
from inlay.storage.target import NewTensor, TargetTensor

_PIECE = 1 << 16
"""Elements that are converted at once, so that they stay in the cache."""

_EXACT_CASTS = {("f32", "bf16"), ("f32", "f16"), ("bf16", "f32"), ("f16", "f32"), ("f32", "f64"), ("f64", "f32")}
"""Types between which NumPy and ml_dtypes round as a reorder does, and much faster than the reference does."""


def verify(plan: ConversionPlan, progress: Progress | None = None) -> None:
    """Check that the target of an executed `plan` has the elements of the source, in the formats of the plan.

    `progress` is called with the number of bytes of the target after each box. Memory use is some times that of a task.

    Raises:
        FileError: an element, the padding or the format of a tensor differs; or a file cannot be read or has changed.

    >>> import tempfile
    >>> from inlay.storage import convert, plan
    >>> folder = tempfile.TemporaryDirectory()
    >>> np.save(f"{folder.name}/a.npy", np.arange(34, dtype=np.float32).reshape(2, 17))
    >>> made = plan(f"{folder.name}/a.npy", f"{folder.name}/a.safetensors", ["aB8b"])
    >>> losses = convert(made)
    >>> verify(made)
    >>> folder.cleanup()
    """
    target = open_written(plan.target, [each.new for each in plan.tensors])
    found = {name: _find_tensor(target, plan, name) for name in plan.target.tensors}
    # Intermediate arrays of two passes are gone, and would only show what the second pass made of the first.
    source = plan.source.source if isinstance(plan.source, StagedStore) else plan.source
    with source.open() as reader, target.open() as result:
        for each in plan.tensors:
            for new in (each.new, *each.beside):
                _require_format(plan, new, found[new.name])
            mismatches = _Mismatches()
            comparison = _ComparingWriter(result, found, mismatches)
            for box in _compare_boxes(plan, each, reader, comparison):
                if progress is not None:
                    progress(box.size * each.nbytes // each.size)
            mismatches.require_none(plan, each)
            reader.require_unchanged()
            result.require_unchanged()


def _find_tensor(store: Store, plan: ConversionPlan, name: str) -> StoredTensor:
    """Return the tensor of the target with a name; a file without names has a single tensor."""
    by_name = {tensor.name: tensor for tensor in store.tensors}
    if len(by_name) == len(plan.target.tensors) == 1:
        return store.tensors[0]
    if name not in by_name:
        raise FileError(f"{store.location} is not the result of this conversion: tensor {printable(name)} is missing")
    return by_name[name]


def _require_format(plan: ConversionPlan, new: NewTensor, stored: StoredTensor) -> None:
    """Check that a tensor of the target has the descriptor that the plan gave it."""
    if new.compound is None and stored.desc != new.desc:
        raise FileError(
            f"{plan.target.location} is not the result of this conversion: tensor {stored.label} is {stored.desc} and "
            f"not {new.desc}"
        )


def _compare_boxes(
    plan: ConversionPlan, each: TensorConversion, reader: StoreReader, comparison: "_ComparingWriter"
) -> Iterator[Box]:
    """Compare the boxes of one tensor, and yield each."""
    operation = _scanned(each, reader) if each.operation.needs_scan else each.operation
    for box in each.boxes():
        if isinstance(operation, ReorderOperation):
            codes = read_codes(reader, each.tensor, each.src, box)
            dst_type = operation.target.desc.require_layout(each.new.name)[1]
            comparison.compare(operation.target, box, _convert(codes, operation.src_type, dst_type))
        else:
            bound = operation.with_inputs(reader, box) if isinstance(operation, InputOperation) else operation
            bound.apply(_read_memory(each, reader, box), box, comparison)
        yield box


def _scanned(each: TensorConversion, reader: StoreReader) -> BoxOperation:
    """Return the operation that knows the greatest numbers of all boxes of the source."""
    results = (each.operation.scan(_read_memory(each, reader, box)) for box in each.boxes())
    return each.operation.with_scan(greatest_scan(results))


def _read_memory(each: TensorConversion, reader: StoreReader, box: Box) -> Memory:
    """Return the elements of a box of the source: row-major, but of 4 bits as they are stored.

    Row-major rows of 4-bit elements may be no whole bytes.
    """
    data_type = each.src.require_layout(each.tensor.label)[1]
    if data_type.is_sub_byte:
        return reader.read_box(each.tensor, each.src, box)
    codes = read_codes(reader, each.tensor, each.src, box)
    return Memory(row_major(box.dims, data_type), codes.reshape(-1).view(np.uint8))


def _convert(codes: Codes, src: DataType, dst: DataType) -> Codes:
    """Return the codes in another data type."""
    if src == dst:
        return codes
    if (src.name, dst.name) in _EXACT_CASTS:
        return _cast(codes, src, dst)
    flat = codes.reshape(-1)
    pieces = [convert_codes(flat[i : i + _PIECE], src, dst) for i in range(0, flat.size, _PIECE)]
    return np.concatenate(pieces).reshape(codes.shape) if pieces else np.empty(codes.shape, f"u{dst.itemsize}")


def _cast(codes: Codes, src: DataType, dst: DataType) -> Codes:
    """Return the codes in another float type, by NumPy; those of NaN by the reference, which keeps their bits."""
    values = np.ascontiguousarray(codes).view(src.dtype)
    with np.errstate(all="ignore"):
        result: Codes = values.astype(dst.dtype).view(f"u{dst.itemsize}")
    is_nan = np.isnan(values)
    if is_nan.any():
        result[is_nan] = convert_codes(codes[is_nan], src, dst)
    return result


class _Mismatches:
    """The elements of one tensor that differ from what they should be."""

    def __init__(self) -> None:
        self.count = 0
        self.padding = 0
        self.first = ""

    def add(self, box: Box, expected: Codes, stored: Codes) -> None:
        """Count the elements of a box that differ; those beyond its dims are padding."""
        differs = find_differences(expected, stored)
        if not differs.any():
            return
        data = tuple(map(slice, box.dims))
        count = int(np.count_nonzero(differs[data]))
        self.padding += int(np.count_nonzero(differs)) - count
        if count and not self.first:
            place = tuple(int(along[0]) for along in np.nonzero(differs[data]))
            at = ",".join(str(b + x) for b, x in zip(box.begin, place, strict=True))
            bits = (codes[data][place].tobytes()[::-1].hex() for codes in (stored, expected))
            self.first = "the first at {}: 0x{} in place of 0x{}".format(at, *bits)
        self.count += count

    def require_none(self, plan: ConversionPlan, each: TensorConversion) -> None:
        """Check that nothing differs."""
        if not self.count and not self.padding:
            return
        noun = "byte" if each.is_copy else "element"
        what = f"1 {noun} differs, {self.first}" if self.count == 1 else f"{self.count} {noun}s differ, {self.first}"
        if not self.count:
            what = f"padding is not 0 in {self.padding} of its elements"
        raise FileError(
            f"{plan.target.location} differs from its source {plan.source.location}: tensor {each.tensor.label}, "
            f"{what}; convert it again"
        )


def _with_padding(desc: MemoryDesc, box: Box) -> Box:
    """Return a box with the padding at the end of each axis that it reaches."""
    sides = zip(box.end, desc.dims, desc.padded_dims, strict=True)
    return Box(box.begin, tuple(padded if end == n else end for end, n, padded in sides))


class _ComparingWriter:
    """A `TargetWriter` that compares what it is to write with what the target has."""

    def __init__(self, reader: StoreReader, tensors: Mapping[str, StoredTensor], mismatches: _Mismatches) -> None:
        self._reader, self._tensors, self._mismatches = reader, tensors, mismatches

    def box_desc(self, tensor: TargetTensor, box: Box) -> MemoryDesc:
        """Return the descriptor that the memory of a box has to have; its elements are read by their coordinates."""
        return require_place(tensor.desc, box).desc

    def write_box(self, tensor: TargetTensor, box: Box, memory: Memory) -> None:
        """Compare the elements of a box."""
        self.compare(tensor, box, read_memory_codes(memory.desc, memory.buffer))

    def compare(self, tensor: TargetTensor, box: Box, expected: Codes) -> None:
        """Compare the elements of a box, and the padding beside them, with the codes that they should have."""
        found = self._tensors[tensor.name]
        whole = _with_padding(tensor.desc, box) if found.chunks is None else box
        stored = read_codes(self._reader, found, tensor.desc, whole)
        if whole != box:
            padded: Codes = np.zeros(whole.dims, expected.dtype)
            padded[tuple(map(slice, box.dims))] = expected
            expected = padded
        self._mismatches.add(box, expected, stored)

    def sync(self) -> None:
        """Do nothing."""

    def __enter__(self) -> "_ComparingWriter":
        """Return the writer."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Do nothing."""
