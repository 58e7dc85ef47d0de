"""The first pass of operations that need numbers of whole tensors, such as the greatest magnitude for a scale."""

from dataclasses import replace

from inlay.storage.box import iterate_boxes
from inlay.storage.conversion_plan import ConversionPlan, TensorConversion
from inlay.storage.operation import greatest_scan
from inlay.storage.store import StoreReader


def scan_tensors(plan: ConversionPlan, reader: StoreReader) -> ConversionPlan:
    """Return the plan whose operations have the results of their scans.

    Raises:
        InvalidArguments: an element cannot be converted, such as NaN.
        FileError: the source cannot be read or has changed.
        OutOfMemory: the operating system cannot provide the bytes of a box.
    """
    if not any(each.operation.needs_scan for each in plan.tensors):
        return plan
    scanned = tuple(_scan_tensor(each, reader) if each.operation.needs_scan else each for each in plan.tensors)
    reader.require_unchanged()
    return replace(plan, tensors=scanned)


def _scan_tensor(each: TensorConversion, reader: StoreReader) -> TensorConversion:
    """Return the conversion of a tensor whose operation has the result of its scan."""
    boxes = iterate_boxes(each.src.dims, each.extents)
    results = (each.operation.scan(reader.read_box(each.tensor, each.src, box)) for box in boxes)
    return replace(each, operation=each.operation.with_scan(greatest_scan(results)))
