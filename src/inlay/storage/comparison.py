"""Comparison of two stores by logical elements and by format.

    found = compare_stores(open_store("w.safetensors"), open_store("packed.safetensors"))
    print(found)

Two tensors of one name have equal elements if each coordinate has the same value in both, whatever their layouts are.
Values of one data type are equal if their bits are; values of two types if the numbers are, or both are NaN. Padding is
not compared. All elements are read, box by box, by the coordinate map of the layouts (`element_reading`).
"""

from collections.abc import Iterator
from dataclasses import dataclass
from math import isnan, prod
from typing import Any

import numpy as np
import numpy.typing as npt

from inlay.data_type import DataType
from inlay.descriptor import MemoryDesc
from inlay.errors import InvalidArguments, printable
from inlay.files import Progress
from inlay.layout import Dims
from inlay.memory.buffers import decode_elements
from inlay.storage.box import Box, iterate_boxes
from inlay.storage.contents import format_of
from inlay.storage.cutting import cut_extents
from inlay.storage.element_reading import Codes, find_differences, read_codes
from inlay.storage.store import Store, StoredTensor, StoreReader, raw_bytes, row_major

_BOX_NBYTES = 32 << 20
"""Greatest size of a box of both tensors, in bytes, if their layouts allow it."""


@dataclass(frozen=True, slots=True)
class TensorComparison:
    """The comparison of two tensors of one name."""

    name: str
    """Name of both tensors."""
    formats: tuple[str, str]
    """Data type and format of each tensor."""
    obstacle: str = ""
    """Reason why the elements cannot be compared, such as other dims; empty if they were compared."""
    count: int = 0
    """Number of elements."""
    different: int = 0
    """Number of elements that differ."""
    first: Dims | None = None
    """First coordinate that differs; None if there is none."""
    greatest: float = 0.0
    """Greatest difference of two finite numbers; 0 for types that are no numbers."""

    @property
    def has_equal_elements(self) -> bool:
        """True if all elements are equal."""
        return not self.obstacle and not self.different

    @property
    def has_equal_formats(self) -> bool:
        """True if data types and formats are equal."""
        return self.formats[0] == self.formats[1]

    def to_json(self) -> dict[str, Any]:
        """Return the comparison as a JSON object."""
        return {
            "name": self.name,
            "formats": list(self.formats),
            "equal_elements": self.has_equal_elements,
            "equal_formats": self.has_equal_formats,
            "obstacle": self.obstacle or None,
            "elements": self.count,
            "different": self.different,
            "first": None if self.first is None else list(self.first),
            "greatest_difference": self.greatest,
        }

    def __str__(self) -> str:
        """Return one line of text."""
        formats = self.formats[0] if self.has_equal_formats else " and ".join(self.formats)
        label = printable(self.name)
        if self.obstacle:
            return f"{label}: {self.obstacle}"
        if not self.different:
            return f"{label}: equal elements, {formats}"
        by = f" by up to {self.greatest:.6g}" if self.greatest else ""
        at = ",".join(map(str, self.first or ()))
        return f"{label}: {self.different} of {self.count} elements differ{by}, the first at {at}; {formats}"


@dataclass(frozen=True, slots=True)
class StoreComparison:
    """The comparison of two stores."""

    tensors: tuple[TensorComparison, ...]
    """Tensors that both stores have, in the order of the first one."""
    only_first: tuple[str, ...]
    """Names of tensors that only the first store has."""
    only_second: tuple[str, ...]
    """Names of tensors that only the second store has."""

    @property
    def has_equal_elements(self) -> bool:
        """True if both stores have the same names, and equal elements under each."""
        return not self.only_first and not self.only_second and all(each.has_equal_elements for each in self.tensors)

    @property
    def has_equal_formats(self) -> bool:
        """True if tensors of one name have the same data type and format."""
        return all(each.has_equal_formats for each in self.tensors)

    def to_json(self) -> dict[str, Any]:
        """Return the comparison as a JSON object."""
        return {
            "equal_elements": self.has_equal_elements,
            "equal_formats": self.has_equal_formats,
            "only_first": list(self.only_first),
            "only_second": list(self.only_second),
            "tensors": [each.to_json() for each in self.tensors],
        }

    def __str__(self) -> str:
        """Return one line of text for each tensor that differs in elements or format, and one for all others."""
        lines = [str(each) for each in self.tensors if not (each.has_equal_elements and each.has_equal_formats)]
        lines += [f"{printable(name)}: only in the first" for name in self.only_first]
        lines += [f"{printable(name)}: only in the second" for name in self.only_second]
        equal = sum(each.has_equal_elements and each.has_equal_formats for each in self.tensors)
        if equal or not lines:
            lines.append(f"{equal} tensor{'s' * (equal != 1)} of equal elements and format")
        return "\n".join(lines)


def compare_stores(first: Store, second: Store, progress: Progress | None = None) -> StoreComparison:
    """Compare the tensors of two stores; two stores of one tensor each are compared whatever the names are.

    `progress` is called with the number of bytes of the first store after each box.

    Raises:
        FileError: a file cannot be read, or changed.
        OutOfMemory: the operating system cannot provide the bytes of a box.

    >>> import tempfile
    >>> from inlay.storage import convert, open_store, plan
    >>> folder = tempfile.TemporaryDirectory()
    >>> np.save(f"{folder.name}/a.npy", np.arange(34, dtype=np.float32).reshape(2, 17))
    >>> losses = convert(plan(f"{folder.name}/a.npy", f"{folder.name}/b.safetensors", ["aB8b"]))
    >>> print(compare_stores(open_store(f"{folder.name}/a.npy"), open_store(f"{folder.name}/b.safetensors")))
    a: equal elements, f32 row-major and f32 aB8b
    >>> folder.cleanup()
    """
    names = {tensor.name: tensor for tensor in second.tensors}
    if len(first.tensors) == len(second.tensors) == 1:
        names = {first.tensors[0].name: second.tensors[0]}
    found = []
    with first.open() as reader, second.open() as other:
        for tensor in first.tensors:
            if tensor.name in names:
                found.append(_compare(reader, tensor, other, names[tensor.name], progress))
        reader.require_unchanged()
        other.require_unchanged()
    own = {tensor.name for tensor in first.tensors}
    missing = tuple(tensor.name for tensor in first.tensors if tensor.name not in names)
    return StoreComparison(tuple(found), missing, tuple(name for name in names if name not in own))


def _compare(
    reader: StoreReader, first: StoredTensor, other: StoreReader, second: StoredTensor, progress: Progress | None
) -> TensorComparison:
    """Compare two tensors."""
    formats = (_type_and_format(first), _type_and_format(second))
    descs = (_elements_of(first), _elements_of(second))
    if None in descs and first.stored_type == second.stored_type and first.shape == second.shape:
        descs = (raw_bytes(first.nbytes), raw_bytes(second.nbytes))
    obstacle = _obstacle(first, second, *descs)
    if obstacle or descs[0] is None or descs[1] is None:
        return TensorComparison(first.name, formats, obstacle)
    size = prod(descs[0].dims)
    if descs[0] == descs[1] and _have_equal_bytes(reader, first, other, second, progress):
        return TensorComparison(first.name, formats, "", size)
    differences = _Differences(*(desc.require_layout("a tensor")[1] for desc in (descs[0], descs[1])))
    for box in _iterate_common_boxes(descs[0], descs[1]):
        differences.add(box, read_codes(reader, first, descs[0], box), read_codes(other, second, descs[1], box))
        if progress is not None:
            progress(first.nbytes * box.size // size)
    return TensorComparison(first.name, formats, "", size, differences.count, differences.first, differences.greatest)


def _elements_of(tensor: StoredTensor) -> MemoryDesc | None:
    """Return the descriptor of the elements of a tensor, of a scalar as of one element; None for unknown types."""
    if tensor.desc is None and not tensor.shape and tensor.data_type is not None:
        return row_major((1,), tensor.data_type)
    return tensor.desc


def _have_equal_bytes(
    reader: StoreReader, first: StoredTensor, other: StoreReader, second: StoredTensor, progress: Progress | None
) -> bool:
    """Return True if neither tensor is stored in chunks, and all bytes are equal."""
    if first.chunks is not None or second.chunks is not None or first.nbytes != second.nbytes:
        return False
    desc, done = raw_bytes(first.nbytes), 0
    for box in _iterate_common_boxes(desc, desc):
        if not np.array_equal(read_codes(reader, first, desc, box), read_codes(other, second, desc, box)):
            if progress is not None:
                progress(-done)
            return False
        done += box.size
        if progress is not None:
            progress(box.size)
    return True


def _type_and_format(tensor: StoredTensor) -> str:
    """Return the data type and the format of a tensor."""
    if tensor.desc is None:
        return tensor.data_type or tensor.stored_type
    return f"{tensor.desc.data_type} {format_of(tensor.desc)}"


def _obstacle(first: StoredTensor, second: StoredTensor, a: MemoryDesc | None, b: MemoryDesc | None) -> str:
    """Return the reason why two tensors cannot be compared; empty if they can."""
    dims = [tensor.shape if desc is None else desc.dims for tensor, desc in ((first, a), (second, b))]
    types = [tensor.stored_type if desc is None else desc.data_type for tensor, desc in ((first, a), (second, b))]
    if dims[0] != dims[1]:
        return f"dims {' and '.join('x'.join(map(str, n)) or 'of a scalar' for n in dims)}"
    if a is None or b is None:
        return f"types {types[0]} and {types[1]}, of which one has no numbers that Inlay reads"
    are_numbers = all(desc.data_type is not None and desc.data_type.is_number for desc in (a, b))
    if a.data_type != b.data_type and not are_numbers:
        return f"types {types[0]} and {types[1]}, which cannot be compared"
    return ""


def _iterate_common_boxes(a: MemoryDesc, b: MemoryDesc) -> Iterator[Box]:
    """Yield boxes of both tensors that cover them."""
    try:
        extents = cut_extents(a, b, _BOX_NBYTES)
    except InvalidArguments:  # elements overlap, so the tensor is one box
        extents = tuple(max(n, 1) for n in a.dims)
    return iterate_boxes(a.dims, extents)


class _Differences:
    """The differences of two tensors, counted box by box."""

    def __init__(self, first: DataType, second: DataType) -> None:
        self.count = 0
        self.first: Dims | None = None
        self.greatest = 0.0
        self._types = (first, second)

    def add(self, box: Box, first: Codes, second: Codes) -> None:
        """Count the elements of a box that differ."""
        differs = self._compare(first, second)
        if not differs.any():
            return
        if self.first is None:
            place = (int(along[0]) for along in np.nonzero(differs))
            self.first = tuple(begin + x for begin, x in zip(box.begin, place, strict=True))
        self.count += int(np.count_nonzero(differs))
        if all(data_type.is_number for data_type in self._types):
            chosen = zip((first[differs], second[differs]), self._types, strict=True)
            numbers = [_numbers(codes, data_type).astype(np.float64) for codes, data_type in chosen]
            with np.errstate(all="ignore"):
                distances = np.abs(numbers[0] - numbers[1])
            greatest = float(np.max(distances, initial=0.0, where=np.isfinite(distances)))
            self.greatest = max(self.greatest, 0.0 if isnan(greatest) else greatest)

    def _compare(self, first: Codes, second: Codes) -> npt.NDArray[np.bool_]:
        """Return True for each element that differs."""
        if self._types[0] == self._types[1]:
            return find_differences(first, second)
        numbers = [_numbers(codes, data_type) for codes, data_type in zip((first, second), self._types, strict=True)]
        has_floats = "f" in [number.dtype.kind for number in numbers]
        first, second = (number.astype(np.float64) for number in numbers) if has_floats else numbers
        differs: npt.NDArray[np.bool_] = first != second
        return differs & ~(np.isnan(first) & np.isnan(second)) if has_floats else differs


def _numbers(codes: Codes, data_type: DataType) -> npt.NDArray[Any]:
    """Return the numbers of codes, in a type of NumPy itself."""
    numbers = decode_elements(codes, data_type)
    if data_type.kind == "float" and data_type.bits < 32:
        return numbers.astype(np.float32)
    return numbers.astype(np.int16) if data_type.is_sub_byte else numbers
