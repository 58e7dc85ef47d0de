"""Everybody who is measured: Inlay, oneDNN, NumPy, PyTorch. Whoever is not installed is reported as missing.

A peer turns a pair of descriptors and a pair of buffers into a call that does the whole reorder, as its user would
write it once everything that can be prepared is prepared. Nobody allocates in a timed call: NumPy's and PyTorch's
results go into the destination everybody writes, which is faster than `ascontiguousarray` and `contiguous`, that make
a new one.
"""

import importlib.util
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

import inlay
from benchmarks.buffers import Bytes, huge_buffer
from benchmarks.eager import TORCH_NAMES, eager_reorder
from benchmarks.onednn import OneDNN, Refused
from benchmarks.passes import Passes, strided_passes
from benchmarks.values import values_of
from inlay import __version__
from inlay.bench.report import TORCH_BY_SIZE
from inlay.data_type import DataType
from inlay.descriptor import MemoryDesc
from inlay.measure.interleaved import Call
from inlay.reordering import compile_reorder
from inlay.reordering.attributes import PLAIN, Attributes


class Peer(Protocol):
    """Somebody who can reorder."""

    name: str
    """How the tables call it."""
    version: str
    """Its version."""

    def prepare(
        self, src: MemoryDesc, src_buffer: Bytes, dst: MemoryDesc, dst_buffer: Bytes, attributes: Attributes = PLAIN
    ) -> Call:
        """The reorder as a call without arguments, with `values_of` its attributes."""


@dataclass(frozen=True, slots=True)
class Missing:
    """A peer that is not measured."""

    name: str
    """How the tables would call it."""
    reason: str
    """Why it is not there, and what would bring it."""


class Inlay:
    """Inlay's compiled reorder."""

    name = "Inlay"
    version = __version__

    def prepare(
        self, src: MemoryDesc, src_buffer: Bytes, dst: MemoryDesc, dst_buffer: Bytes, attributes: Attributes = PLAIN
    ) -> Call:
        """The compiled reorder between the two addresses."""
        src_address, dst_address = src_buffer.ctypes.data, dst_buffer.ctypes.data
        reorder = compile_reorder(src, dst, attributes)
        if reorder.block is None:
            return partial(reorder.run, src_address, dst_address)
        return partial(reorder.run, src_address, dst_address, values_of(attributes, src.dims))


def sources_of_inlay() -> str:
    """A digest of Inlay's sources: runs of the same version and digest measured the same code."""
    root = Path(inlay.__file__).parent
    digest = sha256()
    for path in sorted(root.rglob("*.py")):
        digest.update(str(path.relative_to(root)).encode() + path.read_bytes())
    return digest.hexdigest()[:8]


class NumPy:
    """Strided `numpy.copyto`; what keeps its type moves as integers, which are copied as fast or faster."""

    name = "NumPy"
    version = np.__version__

    def prepare(
        self, src: MemoryDesc, src_buffer: Bytes, dst: MemoryDesc, dst_buffer: Bytes, attributes: Attributes = PLAIN
    ) -> Call:
        """One `copyto` per pass.

        Raises:
            Refused: it has no such operation, or converts otherwise than Inlay.
        """
        if dst.extras or attributes != PLAIN:
            raise Refused("NumPy has no operation that quantizes")
        src_type, dst_type = _types_converted_alike(src, dst)
        if src_type == dst_type:
            of_type = to_type = np.dtype(f"u{src_type.itemsize}")
        else:
            of_type, to_type = src_type.dtype, dst_type.dtype

        def view(buffer: Bytes, is_dst: bool, shape: tuple[int, ...], strides: tuple[int, ...]) -> npt.NDArray[Any]:
            item = to_type if is_dst else of_type
            in_bytes = [step * item.itemsize for step in strides]
            return np.ndarray(shape, item, buffer, strides=in_bytes)

        pairs = _views(strided_passes(src, dst), src_buffer, dst_buffer, dst_type.itemsize, view)
        return _in_a_row([partial(np.copyto, to, of, casting="unsafe") for to, of in pairs])


class Torch:
    """PyTorch's `copy_` into a tensor of the destination's shape and memory order."""

    name = "torch"

    def __init__(self, threads: int) -> None:
        """Use so many threads.

        Raises:
            ImportError: PyTorch is not installed, or cannot be loaded.
        """
        import torch

        torch.set_num_threads(threads)
        self.version = str(torch.__version__)
        self._torch = torch

    def prepare(
        self, src: MemoryDesc, src_buffer: Bytes, dst: MemoryDesc, dst_buffer: Bytes, attributes: Attributes = PLAIN
    ) -> Call:
        """One `copy_` per pass; with attributes one operator per step.

        Raises:
            Refused: it has no such operation, or converts otherwise than Inlay.
        """
        torch = self._torch
        if dst.extras or attributes != PLAIN:
            return eager_reorder(torch, src, src_buffer, dst, dst_buffer, attributes)
        src_type, dst_type = _types_converted_alike(src, dst)
        if src_type == dst_type:
            of_type = to_type = getattr(torch, TORCH_BY_SIZE[src_type.itemsize])
        else:
            of_type, to_type = (getattr(torch, TORCH_NAMES[t.name]) for t in (src_type, dst_type))

        def view(buffer: Bytes, is_dst: bool, shape: tuple[int, ...], strides: tuple[int, ...]) -> Any:
            return torch.from_numpy(buffer).view(to_type if is_dst else of_type).as_strided(shape, strides)

        pairs = _views(strided_passes(src, dst), src_buffer, dst_buffer, dst_type.itemsize, view)
        return _in_a_row([partial(to.copy_, of) for to, of in pairs])


def _types_converted_alike(src: MemoryDesc, dst: MemoryDesc) -> tuple[DataType, DataType]:
    """The types of both sides, where NumPy and PyTorch mean by a conversion what oneDNN and Inlay mean.

    Raises:
        Refused: they do not.
    """
    of, to = src.data_type, dst.data_type
    if of is None or to is None:
        raise Refused("a descriptor without a type")
    if of.is_sub_byte or to.is_sub_byte:
        raise Refused("NumPy and PyTorch keep no two elements in one byte")
    if of != to and to.kind != "float":
        if of.kind == "float":
            raise Refused(f"{of} -> {to} rounds toward zero and wraps around, in place of nearest and saturated")
        if not (to.lowest <= of.lowest and of.highest <= to.highest):
            raise Refused(f"{of} -> {to} wraps around, in place of saturated")
    return of, to


def _in_a_row(calls: list[Call]) -> Call:
    """All calls as one."""
    if len(calls) == 1:
        return calls[0]

    def run() -> None:
        for call in calls:
            call()

    return run


def _views(
    plan: Passes,
    src_buffer: Bytes,
    dst_buffer: Bytes,
    dst_itemsize: int,
    view: Callable[[Bytes, bool, tuple[int, ...], tuple[int, ...]], Any],
) -> list[tuple[Any, Any]]:
    """Destination and source of each pass. The first one converts: what lies between is of the destination's type."""
    buffers = [(src_buffer, False), (dst_buffer, True)]
    if plan.intermediate:
        buffers.insert(1, (huge_buffer(plan.intermediate * dst_itemsize), True))
    return [
        (view(*to, one.shape, one.dst_strides), view(*of, one.shape, one.src_strides))
        for one, of, to in zip(plan.passes, buffers, buffers[1:], strict=False)
    ]


def _find_onednn(prefix: Path, name: str, remedy: str) -> Peer | Missing:
    path = prefix / "lib" / "libdnnl.so.3"
    if not path.exists():
        return Missing(name, remedy)
    try:
        return OneDNN(path, name)
    except OSError as error:
        return Missing(name, f"{path.name} cannot be loaded: {error}")


def _find_torch(threads: int) -> Peer | Missing:
    if importlib.util.find_spec("torch") is None:
        return Missing("torch", "pip install torch==2.13.0")
    try:
        return Torch(threads)
    except (ImportError, OSError) as error:
        return Missing("torch", f"cannot be loaded: {error}")


_PREFIX = Path(sys.prefix)
_SECOND = "pip install --ignore-installed --prefix FOLDER 'onednn==2026.1.*', with onednn-3.13 in sys.prefix as FOLDER"

FINDERS: Mapping[str, Callable[[int], Peer | Missing]] = {
    "Inlay": lambda _: Inlay(),
    "oneDNN": lambda _: _find_onednn(_PREFIX, "oneDNN", "pip install onednn-cpu-gomp"),
    "oneDNN 3.13": lambda _: _find_onednn(_PREFIX / "onednn-3.13", "oneDNN 3.13", _SECOND),
    "NumPy": lambda _: NumPy(),
    "torch": _find_torch,
}
"""How each peer is found, given the threads it may use; Inlay first. Two oneDNN wheels cannot share one prefix."""


def find_peers(threads: int) -> tuple[list[Peer], list[Missing]]:
    """Everybody who is here, Inlay first, and everybody who is not."""
    found = [find(threads) for find in FINDERS.values()]
    missing = [peer for peer in found if isinstance(peer, Missing)]
    return [peer for peer in found if not isinstance(peer, Missing)], missing
