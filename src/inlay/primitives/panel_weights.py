"""Weights in panels of columns: the format of products of few rows, whose time is that of reading the weights.

A panel has as many columns as four vector registers of this machine have floats, 64 with AVX-512. It is stored row
after row; weights of 16 bits in pairs of rows. Only Inlay's own machine code reads this format fast, so a product that
has it is meant for that code. A planner compares both forms of a product by their costs.

>>> from inlay.primitives.engine import Operation
>>> row, weights = MemoryDesc((1, 768), "f32", "ab"), MemoryDesc((768, 768), "f32", "any")
>>> product = Operation("matmul", "forward_inference", {"src": row, "weights": weights, "dst": row})
>>> has_panel_weights(product), has_panel_weights(panel_variant(product))
(False, True)
"""

from dataclasses import replace

from inlay.descriptor import MemoryDesc
from inlay.errors import Unimplemented
from inlay.primitives.engine import Operation
from inlay.reordering.target import host_target

MOST_ROWS = 8
"""Largest number of rows of the source for which weights are read once."""
_TAGS = {
    ("matmul", "f32"): "Ba{0}b",
    ("matmul", "bf16"): "BA{0}b2a",
    ("inner_product", "f32"): "Ab{0}a",
    ("inner_product", "bf16"): "AB{0}a2b",
}
"""The tag for each kind and type of weights; {0} stands for the columns of a panel."""
_COLUMNS = (16, 32, 64)
"""Columns of a panel: four registers of 16, 32 or 64 bytes."""


def panel_tag(kind: str, data_type: str, columns: int) -> str | None:
    """Return the tag of weights in panels of so many columns; None if there is none for a kind and type.

    >>> panel_tag("matmul", "f32", 64), panel_tag("inner_product", "bf16", 32), panel_tag("matmul", "s8", 64)
    ('Ba64b', 'AB32a2b', None)
    """
    tag = _TAGS.get((kind, data_type))
    return None if tag is None else tag.format(columns)


def has_panel_weights(operation: Operation) -> bool:
    """Return whether the weights of an operation are in panels, for registers of this machine or of another one."""
    if operation.kind not in ("matmul", "inner_product") or operation.prop_kind != "forward_inference":
        return False
    weights = operation.descs["weights"]
    if weights.kind != "blocked" or weights.ndims != 2:
        return False
    tags = [panel_tag(operation.kind, str(weights.data_type), columns) for columns in _COLUMNS]
    return weights.tag is not None and weights.tag in tags


def panel_variant(operation: Operation) -> Operation | None:
    """Return a product of few rows with its weights in panels; None if it has many, or its weights have a format."""
    if operation.kind not in ("matmul", "inner_product") or operation.prop_kind != "forward_inference":
        return None
    src, weights = operation.descs["src"], operation.descs["weights"]
    if weights.kind != "any" or weights.ndims != 2 or weights.has_runtime or src.dims[0] not in range(1, MOST_ROWS + 1):
        return None
    columns = _find_columns()
    tag = panel_tag(operation.kind, str(weights.data_type), columns)
    if tag is None or 0 in weights.dims or not columns:
        return None
    panels = MemoryDesc(weights.dims, weights.data_type, tag)
    return replace(operation, descs={**operation.descs, "weights": panels})


def with_any_weights(operation: Operation) -> Operation:
    """Return an operation with weights of format `any`."""
    weights = operation.descs["weights"]
    free = MemoryDesc(weights.dims, weights.data_type, "any")
    return replace(operation, descs={**operation.descs, "weights": free})


def _find_columns() -> int:
    """Return the columns of a panel for the registers of this machine; 0 if there is no code for it."""
    try:
        return host_target().vector_bytes
    except Unimplemented:
        return 0
