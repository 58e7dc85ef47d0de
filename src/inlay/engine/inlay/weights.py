"""Weights of a Winograd convolution: an opaque format, and the reorder that leads to it.

For example:

    desc = weights_desc(64, 32, registers)          inlay-winograd-4x3-64: 36 matrices in panels of 64 columns
    transforming(reorder_operation).bind({"src": weights, "dst": Memory(desc)})()
"""

import json
from collections.abc import Callable, Mapping

import numpy as np

from inlay.descriptor import MemoryDesc, Opaque
from inlay.engine.inlay.tiles import KERNEL, POINTS, transformed
from inlay.engine.inlay.vectors import Registers
from inlay.errors import Unimplemented
from inlay.memory import Memory
from inlay.primitives.attributes import PLAIN
from inlay.primitives.operation import Operation, PlainImplementation

_PREFIX = "inlay-winograd-4x3-"


def weights_desc(oc: int, ic: int, registers: Registers) -> MemoryDesc:
    """The format of weights for the machine code of such registers."""
    head = {"inlay": "memory_desc", "version": 1, "kind": "opaque", "data_type": "f32"}
    named = {"dims": (oc, ic, KERNEL, KERNEL), "name": f"{_PREFIX}{registers.columns}", "nbytes": 4 * POINTS * oc * ic}
    return MemoryDesc.from_json(json.dumps({**head, **named}))


def is_transformed(desc: MemoryDesc) -> bool:
    """Whether a descriptor is that of weights for a Winograd convolution."""
    return isinstance(desc.layout, Opaque) and desc.layout.name.startswith(_PREFIX)


def transforming(operation: Operation) -> PlainImplementation:
    """What brings weights of any layout to the format of a Winograd convolution.

    Raises:
        Unimplemented: the destination is no such format, the source has no layout or is not f32, or there are
            attributes.
    """
    src, dst = operation.descs["src"], operation.descs["dst"]
    if not is_transformed(dst) or src.kind not in ("blocked", "digits") or str(src.data_type) != "f32":
        raise Unimplemented(f"weights of a Winograd convolution are made of f32 in a layout: no reorder from {src!r}")
    if operation.attributes != PLAIN:
        raise Unimplemented("weights of a Winograd convolution are made without attributes")
    return PlainImplementation(operation, operation.descs, "winograd:weights", _bind)


def _bind(memories: Mapping[str, Memory]) -> Callable[[], None]:
    """What transforms once."""
    src, dst = memories["src"], memories["dst"]
    assert isinstance(dst.desc.layout, Opaque)
    panel = int(dst.desc.layout.name.removeprefix(_PREFIX))

    def run() -> None:
        found = transformed(src.unpack(), panel)
        dst.buffer[: found.nbytes] = found.view(np.uint8)

    return run
