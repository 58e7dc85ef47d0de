"""Contenders of the benchmark: Inlay, two versions of oneDNN, NumPy and PyTorch; one that is not installed is missing.

The calls are those of `inlay.bench.contenders`. Beyond these, NumPy and PyTorch take two passes where one strided copy
cannot do a reorder, and PyTorch computes attributes by one operator per step:

    f32 -> s8     torch.mul(x, scales, out=y); y.add_(points).round_().clamp_(-128, 127); q.copy_(y)
    s8 -> f32     torch.mul(q, scales, out=x)

Results go to the destination that all contenders write: `ascontiguousarray` and `contiguous`, which allocate one, are
slower, and so are PyTorch's quantized tensors.
"""

import importlib.util
import re
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

import inlay
from benchmarks.buffers import huge_buffer
from inlay.bench import contenders
from inlay.bench.contenders import Contender, inlay_call, onednn_call, torch_view
from inlay.descriptor import MemoryDesc
from inlay.engines.onednn import Library, OnednnEngine
from inlay.errors import InlayError, Unimplemented
from inlay.measure.interleaved import Call
from inlay.memory import Memory
from inlay.reordering import compile_reorder
from inlay.reordering.attributes import PLAIN, Attributes, Operands

Prepare: TypeAlias = Callable[[Memory, Memory, Attributes, Operands], Call]
"""Prepares a reorder with attributes and their values; raises an `InlayError` if it cannot do it."""


@dataclass(frozen=True, slots=True)
class Peer:
    """A contender that is installed."""

    name: str
    version: str
    prepare: Prepare

    def prepare_plain(self, src: Memory, dst: Memory) -> Call:
        """Return a reorder without attributes."""
        return self.prepare(src, dst, PLAIN, {})


def sources_of_inlay() -> str:
    """Return a digest of Inlay's sources: runs of the same version and digest measured the same code."""
    root = Path(inlay.__file__).parent
    sources = (str(path.relative_to(root)).encode() + path.read_bytes() for path in sorted(root.rglob("*.py")))
    return sha256(b"".join(sources)).hexdigest()[:8]


def _find_onednn(name: str, folder: Path, remedy: str) -> Peer | str:
    path = folder / "lib" / "libdnnl.so.3"
    if not path.exists():
        return remedy
    try:
        library = Library(str(path))
    except InlayError as error:
        return str(error)
    version = ".".join(map(str, library.version))
    return Peer(name, version, partial(_onednn, OnednnEngine(library), version))


def _onednn(
    engine: OnednnEngine, version: str, src: Memory, dst: Memory, attributes: Attributes, values: Operands
) -> Call:
    if attributes.src_zero_points is not None and version.startswith("3.2."):
        raise Unimplemented("3.2 leaves the zero points of a source out, in some sizes")
    try:
        return onednn_call(engine, src, dst, attributes, values)
    except InlayError as error:  # the descriptors in the text differ from case to case
        raise Unimplemented(re.split(r", src |: MemoryDesc", str(error))[0]) from None


def _inlay(src: Memory, dst: Memory, attributes: Attributes, values: Operands) -> Call:
    return inlay_call(compile_reorder(src.desc, dst.desc, attributes), src, dst, values)


def _find_torch(threads: int) -> Peer | str:
    if importlib.util.find_spec("torch") is None:
        return "pip install torch==2.13.0"
    try:
        import torch
    except (ImportError, OSError) as error:
        return f"cannot be loaded: {error}"
    torch.set_num_threads(threads)
    return Peer("torch", str(torch.__version__), partial(_torch, torch))


def _numpy(src: Memory, dst: Memory, attributes: Attributes, _: Operands) -> Call:
    if dst.desc.extras or attributes != PLAIN:
        raise Unimplemented("NumPy has no operation that quantizes")
    return in_passes(contenders.numpy, src, dst)


def _torch(torch: Any, src: Memory, dst: Memory, attributes: Attributes, values: Operands) -> Call:
    if dst.desc.extras or attributes != PLAIN:
        return eager_reorder(torch, src, dst, attributes, values)
    return in_passes(contenders.torch, src, dst)


def in_passes(copy: Contender, src: Memory, dst: Memory) -> Call:
    """Return the reorder as one strided copy, or as two by way of a dense array of the padded dims.

    The first copy converts: the array has the type of the destination, and zeros where the source has no elements.
    Raises `Unimplemented` where the types are converted otherwise than by Inlay, or have 4 bits.
    """
    _require_equal_conversion(src.desc, dst.desc)
    is_padded = any(memory.desc.padded_dims != memory.desc.dims for memory in (src, dst))
    try:
        if not is_padded:
            return copy(src, dst)
    except Unimplemented as reason:
        if "more than one copy" not in str(reason):
            raise
    dense = MemoryDesc(tuple(map(max, src.desc.padded_dims, dst.desc.padded_dims)), dst.desc.data_type)
    between, start = huge_buffer(dense.size), (0,) * dense.ndims
    descs = [MemoryDesc(m.desc.padded_dims, m.desc.data_type, m.desc.tag) for m in (src, dst)]  # padding as elements
    of, to = Memory(descs[0], src.buffer), Memory(descs[1], dst.buffer)
    first, second = (Memory(dense.submemory(desc.dims, start), between) for desc in descs)
    calls = copy(of, first), copy(second, to)
    return lambda: [call() for call in calls]


def _require_equal_conversion(src: MemoryDesc, dst: MemoryDesc) -> None:
    of, to = src.data_type, dst.data_type
    assert of is not None, "a case has types"
    assert to is not None, "a case has types"
    if of.is_sub_byte or to.is_sub_byte:
        raise Unimplemented("NumPy and PyTorch keep no two elements in one byte")
    if of == to or to.kind == "float":
        return
    if of.kind == "float":
        raise Unimplemented(f"{of} -> {to} rounds toward zero and wraps around, in place of nearest and saturated")
    if not (to.lowest <= of.lowest and of.highest <= to.highest):
        raise Unimplemented(f"{of} -> {to} wraps around, in place of saturated")


def eager_reorder(torch: Any, src: Memory, dst: Memory, attributes: Attributes, values: Operands) -> Call:
    """Return a reorder with attributes as operators of PyTorch on tensors of the logical dims.

    Raises `Unimplemented` where a side is blocked or of 4 bits, values are in groups, or the destination has extras.
    """
    _require_operators(src.desc, dst.desc, attributes)
    x, out = _tensor(torch, src), _tensor(torch, dst)
    floats = {name: torch.from_numpy(array.astype(np.float32)) for name, array in values.items()}
    src_scales, dst_scales = (floats.get(f"{side}_scales", torch.ones(())) for side in ("src", "dst"))
    src_points, dst_points = (floats.get(f"{side}_zero_points") for side in ("src", "dst"))
    beta, to = attributes.sum, dst.desc.data_type
    assert to is not None, "a case has types"
    is_float = to.name == "f32"
    result = out
    if not is_float or beta is not None:
        plain = MemoryDesc(dst.desc.dims, "f32", strides=dst.desc.strides)
        result = _tensor(torch, Memory(plain, huge_buffer(plain.size)))

    def run() -> None:
        if src_points is None:
            torch.mul(x, src_scales, out=result)
        else:
            torch.sub(x, src_points, out=result)
            result.mul_(src_scales)
        if beta is not None:
            result.add_(out, alpha=beta)
        if "dst_scales" in floats:
            result.div_(dst_scales)
        if dst_points is not None:
            result.add_(dst_points)
        if not is_float:
            result.round_().clamp_(to.lowest, to.highest)
        if result is not out:
            out.copy_(result)

    return run


def _require_operators(src: MemoryDesc, dst: MemoryDesc, attributes: Attributes) -> None:
    if dst.extras:
        raise Unimplemented("PyTorch and NumPy keep no sums behind weights")
    if any(attributes.entry(name).groups for name in attributes.names):
        raise Unimplemented("PyTorch has no operator with values in groups")
    for desc in (src, dst):
        if desc.data_type is None or desc.data_type.name not in ("f32", "s8", "u8", "s32"):
            raise Unimplemented(f"PyTorch has no such steps for {desc.data_type}")
        if desc.inner_blocks:
            raise Unimplemented("PyTorch has no operator that quantizes into blocks or out of them")


def _tensor(torch: Any, memory: Memory) -> Any:
    return torch_view(torch, memory, str(memory.desc.data_type), memory.desc.dims, memory.desc.strides)


_PREFIX = Path(sys.prefix)
_SECOND = "pip install --ignore-installed --prefix FOLDER 'onednn==2026.1.*', with onednn-3.13 in sys.prefix as FOLDER"

FINDERS: Mapping[str, Callable[[int], Peer | str]] = {
    "Inlay": lambda _: Peer("Inlay", inlay.__version__, _inlay),
    "oneDNN": lambda _: _find_onednn("oneDNN", _PREFIX, "pip install onednn-cpu-gomp"),
    "oneDNN 3.13": lambda _: _find_onednn("oneDNN 3.13", _PREFIX / "onednn-3.13", _SECOND),
    "NumPy": lambda _: Peer("NumPy", np.__version__, _numpy),
    "torch": _find_torch,
}
"""Functions of the number of threads that return a contender, or what to install; two oneDNNs need two prefixes."""


def find_peers(threads: int, prefix: str = "") -> tuple[list[Peer], dict[str, str]]:
    """Return the contenders that are installed, Inlay first, and what to install for each other one."""
    found = {name: find(threads) for name, find in FINDERS.items() if name.startswith(prefix)}
    missing = {name: peer for name, peer in found.items() if isinstance(peer, str)}
    return [peer for peer in found.values() if isinstance(peer, Peer)], missing
