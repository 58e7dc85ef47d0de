"""Plans of conversions: a value that lists every tensor, every box and every byte, before anything is written.

    plan = inlay.storage.plan("resnet50.safetensors", "packed.safetensors", ["conv*=OIhw16i16o"], memory="256 MB")
    print(plan)

A plan consists of independent tasks: each reads one box of one tensor, converts it, and writes it where no other task
writes. So tasks may run in any order and in any process. `planning` makes plans.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from math import prod
from typing import TYPE_CHECKING, Any

from inlay.descriptor import MemoryDesc
from inlay.errors import printable
from inlay.layout import Dims
from inlay.storage.box import Box, box_at, count_boxes, iterate_boxes
from inlay.storage.operation import BoxOperation
from inlay.storage.store import Store, StoredTensor
from inlay.storage.target import NewTensor, Target
from inlay.storage.traffic import ConversionTraffic, count_traffic, total_traffic

if TYPE_CHECKING:
    from dask.delayed import Delayed


_SHOWN_READS = 1.005
"""Average number of reads of a byte from which it is printed."""


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
    """Operation on each box."""
    extents: Dims
    """Extents of the boxes of `src`."""
    beside: tuple[NewTensor, ...] = ()
    """Tensors that the target is to have beside `new`, such as scales."""
    reads: float | None = None
    """Number of times that each byte is read, on average, if parts of chunks are read; None if whole chunks are."""

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
        return count_traffic(self.tensor, self.src, self.extents, self.operation, self.reads)

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
        if self.reads is not None and self.reads > _SHOWN_READS:
            boxes += f", read {self.reads:.2f} times"
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
    """The store that is read."""
    target: Target
    """The files or arrays that are written."""
    tensors: tuple[TensorConversion, ...]
    """One conversion for each tensor of the source, in the order of its bytes, without scales that become a factor."""
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
        return sum(each.nbytes for each in self.tensors)

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

    @property
    def traffic(self) -> ConversionTraffic:
        """Bytes that the conversion reads and writes in all its passes, and the greatest memory of a task."""
        first = () if self.first_pass is None else (self.first_pass.traffic,)
        return total_traffic([*first, self._traffic_of_tensors])

    @property
    def _traffic_of_tensors(self) -> ConversionTraffic:
        """Traffic without that of a first pass."""
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
            "first_pass": None if self.first_pass is None else self.first_pass.to_json(),
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
        """Return one line of text for each tensor, of the first of two passes too, and one for the traffic of all."""
        lines = list(map(str, self.tensors))
        if self.first_pass is None:
            return "\n".join([*lines, str(self.traffic)])
        first = map(str, self.first_pass.tensors)
        header = f"pass 1 of 2, to intermediate arrays: {self.first_pass.traffic}"
        second = f"pass 2 of 2: {self._traffic_of_tensors}"
        return "\n".join([header, *first, second, *lines, f"both passes: {self.traffic}"])
