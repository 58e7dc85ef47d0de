"""Contenders of a reorder: Inlay, oneDNN, NumPy and PyTorch, each as a call between the same two memories.

Each call is what a user of that library writes once everything is prepared; none allocates when it is called. NumPy
and PyTorch copy one strided view into another: the loops of both views are those that the two layouts share. Where a
side has padding, or a loop has no stride, one copy cannot do the reorder.
"""

from collections.abc import Callable, Mapping
from functools import partial
from importlib import import_module
from typing import Any, TypeAlias

import numpy as np

from inlay.data_type import DataType
from inlay.descriptor import MemoryDesc
from inlay.engines.onednn import OnednnEngine, make_engine
from inlay.errors import InlayError, Unimplemented
from inlay.measure.interleaved import Call
from inlay.memory import Memory, pack
from inlay.primitives.attributes import PrimitiveAttributes, SumPostOp
from inlay.primitives.engine import Operation
from inlay.reordering import CompiledReorder
from inlay.reordering.attributes import PLAIN, Attributes, Operands, Scales, ZeroPoints
from inlay.reordering.nest import build_loop_nest
from inlay.reordering.problem import build_reorder_problem
from inlay.reordering.threads import get_num_threads

Contender: TypeAlias = Callable[[Memory, Memory], Call]
"""Prepares the reorder from one memory to another; raises an `InlayError` if it cannot do it."""
TORCH_TYPES: Mapping[str, str] = {
    "f64": "float64",
    "f32": "float32",
    "f16": "float16",
    "bf16": "bfloat16",
    "s32": "int32",
    "s8": "int8",
    "u8": "uint8",
    "f8_e4m3": "float8_e4m3fn",
    "f8_e5m2": "float8_e5m2",
}
"""PyTorch's name of each data type that it has."""
_TORCH_TYPE_OF_SIZE = {1: "u8", 2: "bf16", 4: "f32", 8: "f64"}  # by bytes: as which type elements move unchanged
DIFFERS = "its bytes differ from Inlay's"
"""The beginning of the reason why a contender with wrong results is absent."""
_SPOILED = 0xA5


def inlay_call(reorder: CompiledReorder, src: Memory, dst: Memory, values: Operands | None = None) -> Call:
    """Return a call of the compiled reorder; `values` are those of its attributes."""
    operands: list[Any] = [] if reorder.block is None else [values or {}]
    return partial(reorder.run, src.address, dst.address, *operands)


def onednn(src: Memory, dst: Memory) -> Call:
    """Return a call of oneDNN's reorder primitive.

    Raises:
        InlayError: the library is not installed, or has no such reorder.
    """
    return onednn_call(make_engine(), src, dst)


def onednn_call(
    engine: OnednnEngine, src: Memory, dst: Memory, attributes: Attributes = PLAIN, values: Operands | None = None
) -> Call:
    """Return a call of the reorder primitive of one oneDNN library.

    Raises:
        InlayError: the library has no such reorder.
    """
    entries = {name: attributes.entry(name) for name in attributes.names}
    scales = {name[:3]: entry for name, entry in entries.items() if isinstance(entry, Scales)}
    points = {name[:3]: entry for name, entry in entries.items() if isinstance(entry, ZeroPoints)}
    post_ops = () if attributes.sum is None else (SumPostOp(attributes.sum),)
    descs = {"src": src.desc, "dst": dst.desc}
    operation = Operation(
        "reorder", "forward_inference", descs, attributes=PrimitiveAttributes(scales, points, post_ops)
    )
    operands = {
        name: pack(array.ravel(), MemoryDesc((array.size,), entries[name].type, "a"))
        for name, array in (values or {}).items()
    }
    return engine.create(operation).bind({"src": src, "dst": dst, **operands})


def numpy(src: Memory, dst: Memory) -> Call:
    """Return one `numpy.copyto`; elements that keep their type move as integers.

    Raises:
        Unimplemented: one strided copy cannot do the reorder.
    """
    shape, strides = _one_copy(src, dst)
    views, keeps_type = [], _type_of(src) == _type_of(dst)
    for memory, steps in zip((src, dst), strides, strict=True):
        item = np.dtype(f"u{_type_of(memory).itemsize}") if keeps_type else _type_of(memory).dtype
        first = memory.desc.offset0 * item.itemsize
        views.append(np.ndarray(shape, item, memory.buffer, first, [step * item.itemsize for step in steps]))
    return lambda: np.copyto(views[1], views[0], casting="unsafe")


def torch(src: Memory, dst: Memory) -> Call:
    """Return one `copy_` of PyTorch, on as many threads as Inlay may use.

    Raises:
        Unimplemented: PyTorch is not installed or lacks a type, or one strided copy cannot do the reorder.
    """
    shape, strides = _one_copy(src, dst)
    library = require_installed("torch")
    library.set_num_threads(get_num_threads())
    types = [_type_of(memory) for memory in (src, dst)]
    names = [_TORCH_TYPE_OF_SIZE[t.itemsize] if types[0] == types[1] else t.name for t in types]
    of, to = (torch_view(library, *view) for view in zip((src, dst), names, (shape, shape), strides, strict=True))
    return lambda: to.copy_(of)


def torch_view(library: Any, memory: Memory, name: str, shape: tuple[int, ...], strides: tuple[int, ...]) -> Any:
    """Return a tensor of PyTorch in the memory; `name` is the data type, strides count elements.

    Raises:
        Unimplemented: PyTorch lacks the type.
    """
    if name not in TORCH_TYPES:
        raise Unimplemented(f"has no {name}")
    first = memory.desc.offset0 * _type_of(memory).itemsize
    elements = library.from_numpy(memory.buffer[first:]).view(getattr(library, TORCH_TYPES[name]))
    return elements.as_strided(shape, strides)


def require_installed(package: str) -> Any:
    """Return a package.

    Raises:
        Unimplemented: it is not installed.
    """
    try:
        return import_module(package)
    except ImportError:
        raise Unimplemented(f"not installed (pip install {package})") from None


def _type_of(memory: Memory) -> DataType:
    return memory.desc.require_layout("bench")[1]


def _one_copy(src: Memory, dst: Memory) -> tuple[tuple[int, ...], tuple[tuple[int, ...], tuple[int, ...]]]:
    """Return the shape of one strided copy that does the reorder, and the strides of both sides in elements.

    The axes are ordered by the destination's strides, so that the destination is written in memory order.

    Raises:
        Unimplemented: there is no such copy.
    """
    problem = build_reorder_problem(src.desc, dst.desc)
    if problem.src_type.is_sub_byte or problem.dst_type.is_sub_byte:
        raise Unimplemented("has no views of elements of 4 bits")
    nest = build_loop_nest(problem)
    if nest.guards or not all(loop.is_affine for loop in nest.loops):
        raise Unimplemented("takes more than one copy")
    loops: Any = sorted(nest.loops, key=lambda loop: loop.dst, reverse=True)
    strides = tuple(loop.src for loop in loops), tuple(loop.dst for loop in loops)
    return tuple(loop.extent for loop in loops), strides


CONTENDERS: dict[str, Contender] = {"oneDNN": onednn, "NumPy": numpy, "torch": torch}
"""All contenders but Inlay, by name."""


def agreeing_calls(
    prepare: Mapping[str, Callable[[], Call]], src: MemoryDesc, dst: Memory
) -> tuple[dict[str, Call], dict[str, str]]:
    """Prepare each contender, run it once, and compare the bytes that it leaves in `dst` with the first one's.

    Post-condition: the calls with equal bytes, and for each other contender the reason of its absence. `dst` holds the
    bytes of the first contender.
    """
    calls: dict[str, Call] = {}
    absent: dict[str, str] = {}
    expected = None
    for name, make in prepare.items():
        try:
            call = make()
            dst.buffer.fill(_SPOILED)
            call()
        except InlayError as reason:
            if expected is None:
                raise
            absent[name] = str(reason)
            continue
        if expected is None:
            expected = dst.buffer.copy()
        wrong = first_difference(dst.buffer, expected, src, dst.desc)
        if wrong is None:
            calls[name] = call
        else:
            absent[name] = f"{DIFFERS} from byte {wrong} on"
    assert expected is not None, "there is a contender"
    dst.buffer[:] = expected
    return calls, absent


def first_difference(found: Any, expected: Any, src: MemoryDesc, dst: MemoryDesc) -> int | None:
    """Return the first byte that differs from the expected one; None if none does.

    Where a type is converted to f8 (each element is a byte) the next f8 is accepted: oneDNN rounds to f16 first and
    then once more.
    """
    if np.array_equal(found, expected):
        return None
    wrong = found != expected
    if src.data_type != dst.data_type and str(dst.data_type).startswith("f8"):
        codes = [np.where(side & 0x80, -(side & 0x7F).astype(np.int16), side) for side in (found, expected)]
        wrong = abs(codes[0] - codes[1]) > 1
    return int(np.argmax(wrong)) if wrong.any() else None


def flat_copies(contenders: Mapping[str, Contender], src: Any, dst: Any, nbytes: int) -> dict[str, Call]:
    """Return a call of each contender that copies the first `nbytes` bytes of one buffer to another."""
    flat = MemoryDesc((nbytes,), "u8", "a")
    one, two = Memory(flat, src[:nbytes]), Memory(flat, dst[:nbytes])
    return {name: contender(one, two) for name, contender in contenders.items()}
