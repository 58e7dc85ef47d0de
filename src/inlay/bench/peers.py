"""Who takes part: oneDNN, NumPy and PyTorch, where they are installed and can do the reorder.

Each is a call between the same two memories, as its user would write it once everything is prepared. NumPy and PyTorch
copy one strided view into another, of the loops that both layouts share; where a side has padding, or a loop has no
stride, one copy does not do it, and they are left out. Who leaves other bytes than Inlay is left out too: conversions
differ in rounding and saturation.
"""

from collections.abc import Callable
from importlib import import_module
from typing import Any

import numpy as np
import numpy.typing as npt

from inlay.engine.onednn import make_engine
from inlay.errors import InlayError, Unimplemented
from inlay.measure.interleaved import Call
from inlay.memory import Memory
from inlay.primitives.operation import Operation
from inlay.reordering.nest import loop_nest
from inlay.reordering.problem import reorder_problem
from inlay.reordering.processors import get_num_threads

Peer = Callable[[Memory, Memory], Call]
_LEFTOVER = 0xA5
TORCH_BY_SIZE = {1: "uint8", 2: "bfloat16", 4: "float32", 8: "float64"}
"""By bytes of an element, the type of PyTorch as which it moves."""
_TORCH = {"f32": "float32", "bf16": "bfloat16", "f16": "float16", "f64": "float64", "s32": "int32", "s8": "int8"}


def onednn(src: Memory, dst: Memory) -> Call:
    """oneDNN's reorder primitive.

    Raises:
        InlayError: the library is not there, or has no such reorder.
    """
    operation = Operation("reorder", "forward_inference", {"src": src.desc, "dst": dst.desc})
    return make_engine().create(operation).bind({"src": src, "dst": dst})


def numpy(src: Memory, dst: Memory) -> Call:
    """One `numpy.copyto`; what keeps its type moves as integers.

    Raises:
        Unimplemented: one strided copy does not do it.
    """
    shape, strides = _one_copy(src, dst)
    views = []
    for memory, steps in zip((src, dst), strides, strict=True):
        kind = _numpy_type(memory, src.desc.data_type == dst.desc.data_type)
        elements = _elements(memory, kind)
        views.append(np.lib.stride_tricks.as_strided(elements, shape, [step * kind.itemsize for step in steps]))
    return lambda: np.copyto(views[1], views[0], casting="unsafe")


def torch(src: Memory, dst: Memory) -> Call:
    """One `copy_` of PyTorch, on as many threads as Inlay may use.

    Raises:
        Unimplemented: PyTorch is not installed or lacks a type, or one strided copy does not do it.
    """
    shape, strides = _one_copy(src, dst)
    library = require_installed("torch")
    library.set_num_threads(get_num_threads())
    moves = src.desc.data_type == dst.desc.data_type
    views = []
    for memory, steps in zip((src, dst), strides, strict=True):
        item = _numpy_type(memory, True).itemsize
        name = TORCH_BY_SIZE[item] if moves else _TORCH.get(str(memory.desc.data_type))
        if name is None:
            raise Unimplemented(f"has no {memory.desc.data_type}")
        elements = library.from_numpy(_elements(memory, np.dtype(np.uint8))).view(getattr(library, name))
        views.append(elements.as_strided(shape, steps))
    return lambda: views[1].copy_(views[0])


def require_installed(package: str) -> Any:
    """Return the package of a peer.

    Raises:
        Unimplemented: it is not installed.
    """
    try:
        return import_module(package)
    except ImportError:
        raise Unimplemented(f"not installed (pip install {package})") from None


PEERS: dict[str, Peer] = {"oneDNN": onednn, "NumPy": numpy, "torch": torch}
"""Everybody, by name."""


def agreeing(inlay: Call, src: Memory, dst: Memory) -> tuple[dict[str, Call], dict[str, str]]:
    """The calls of those peers that leave the bytes in `dst` that `inlay` does, and why the others are left out.

    Post-condition: `dst` holds what `inlay` leaves in it.
    """
    dst.buffer.fill(_LEFTOVER)
    inlay()
    expected = dst.buffer.copy()
    calls: dict[str, Call] = {}
    absent: dict[str, str] = {}
    for name, peer in PEERS.items():
        try:
            call = peer(src, dst)
            dst.buffer.fill(_LEFTOVER)
            call()
        except InlayError as reason:
            absent[name] = str(reason)
            continue
        if np.array_equal(dst.buffer, expected):
            calls[name] = call
        else:
            absent[name] = "its bytes differ from Inlay's"
    dst.buffer[:] = expected
    return calls, absent


def _one_copy(src: Memory, dst: Memory) -> tuple[tuple[int, ...], tuple[tuple[int, ...], tuple[int, ...]]]:
    """The shape of one strided copy that does the reorder, and the strides of both sides in elements.

    Raises:
        Unimplemented: there is none.
    """
    problem = reorder_problem(src.desc, dst.desc)
    if problem.src_type.is_sub_byte or problem.dst_type.is_sub_byte:
        raise Unimplemented("has no views of elements of 4 bits")
    nest = loop_nest(problem)
    if nest.guards or not all(loop.is_affine for loop in nest.loops):
        raise Unimplemented("takes more than one copy")
    loops: Any = sorted(nest.loops, key=lambda loop: loop.dst, reverse=True)
    strides = tuple(loop.src for loop in loops), tuple(loop.dst for loop in loops)
    return tuple(loop.extent for loop in loops), strides


def _numpy_type(memory: Memory, moves: bool) -> np.dtype[Any]:
    _, data_type = memory.desc.require_layout("bench")
    return np.dtype(f"u{data_type.itemsize}") if moves else data_type.dtype


def _elements(memory: Memory, kind: np.dtype[Any]) -> npt.NDArray[Any]:
    """The elements from the coordinate of all zeros on."""
    _, data_type = memory.desc.require_layout("bench")
    return memory.buffer[memory.desc.offset0 * data_type.itemsize :].view(kind)
