"""`ReferenceEngine`, which answers an operation with formats, and runs its formula on the memories it is bound to."""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from inspect import signature
from typing import Any

import numpy as np

from inlay.descriptor import MemoryDesc
from inlay.engine.reference import post_ops
from inlay.engine.reference.arrays import Array
from inlay.engine.reference.formats import settled
from inlay.engine.reference.sparse_products import SparseArray, real_sparse
from inlay.engine.reference.table import SPARSE, TABLE
from inlay.engine.reference.values import Memories, read, real, write
from inlay.errors import Unimplemented
from inlay.memory import reorder
from inlay.primitives.attributes import reorder_attributes
from inlay.primitives.operation import Engine, Operation, PlainImplementation

_NUMBERED = re.compile(r"src_(\d+)")


def _bind_reorder(operation: Operation, memories: Memories) -> Callable[[], None]:
    """What moves these memories by Inlay's own reorder; values of attributes are read each time."""
    attributes = reorder_attributes(operation.attributes)
    src, dst = memories["src"], memories["dst"]

    def run() -> None:
        values = {name: memories[name].unpack() for name in attributes.names}
        reorder(src, dst.desc, attributes=attributes, out=dst, **values)

    return run


@dataclass(frozen=True, slots=True)
class _Formula:
    """A formula and the format of each argument."""

    operation: Operation
    """What was asked."""
    descs: Mapping[str, MemoryDesc]
    """The descriptor of each argument that is read or written."""

    def bind(self, memories: Memories) -> Callable[[], None]:
        """What reads these memories, computes once, and writes what the formula gives and a memory is given for."""
        return partial(self._run, dict(memories))

    def _run(self, memories: Memories) -> None:
        key = self.operation.kind, self.operation.direction
        formula = SPARSE[key] if self._is_sparse else TABLE[key]
        offered = self._offered(memories)
        # What overflows, or divides by zero, does so by the rules of IEEE 754, without a word.
        with np.errstate(all="ignore"):
            results = dict(formula(**{name: offered[name] for name in signature(formula).parameters & offered.keys()}))
            if self.operation.direction == "forward" and "dst" in results:
                results["dst"] = post_ops.applied(self.operation, results["dst"], memories)
        for name, array in results.items():
            if name in memories:
                write(array, memories[name])

    def _offered(self, memories: Memories) -> dict[str, Any]:
        """What a formula may name: arguments, parameters, and what is known of all arguments."""
        arrays = {name: self._read(name, memories) for name in memories if self._is_read(name)}
        numbered = sorted((int(found[1]), name) for name in arrays if (found := _NUMBERED.fullmatch(name)))
        src = self.descs.get("src")
        return {
            **self.operation.parameters,
            **arrays,
            "sources": tuple(arrays[name] for _, name in numbered),
            # Before a depthwise convolution, the destination is that of the primitive itself.
            "shapes": {name: desc.dims for name, desc in {**self.descs, **self.operation.descs}.items()},
            "operation": self.operation,
            "arguments": arrays,
            "held": lambda name: read(memories[name]),
            "lowest": src.data_type.lowest if src is not None and src.data_type is not None else None,
        }

    @property
    def _is_sparse(self) -> bool:
        return any(desc.kind == "sparse" for desc in self.descs.values())

    def _is_read(self, name: str) -> bool:
        return name in self.operation.signature.reads or _NUMBERED.fullmatch(name) is not None

    def _read(self, name: str, memories: Memories) -> Array | SparseArray:
        if memories[name].desc.kind == "sparse":
            return real_sparse(name, memories[name], self.operation.attributes, memories)
        return real(name, read(memories[name]), self.operation.attributes, memories)


class ReferenceEngine(Engine):
    """Computes every primitive in f64, in any format.

    >>> ReferenceEngine().name
    'reference'
    """

    name = "reference"

    def supports(self, operation: Operation) -> bool:
        """Whether there is a formula."""
        return operation.kind == "reorder" or (operation.kind, operation.direction) in TABLE

    def create(self, operation: Operation) -> PlainImplementation:
        """Choose the formats that are `any`, as `formats` says.

        Raises:
            InvalidArguments: a workspace is needed and the hint has none.
            Unimplemented: there is no formula, an argument has RUNTIME dims or no layout, or a reorder has attributes
                that Inlay's has not.
        """
        if not self.supports(operation):
            raise Unimplemented(f"the reference engine does not compute {operation.kind} {operation.direction}")
        if operation.kind == "reorder":
            reorder_attributes(operation.attributes)
            bind = partial(_bind_reorder, operation)
            return PlainImplementation(operation, settled(operation), "numpy:f64", bind, "numpy")
        formula = _Formula(operation, settled(operation))
        return PlainImplementation(operation, formula.descs, "numpy:f64", formula.bind, "numpy")
