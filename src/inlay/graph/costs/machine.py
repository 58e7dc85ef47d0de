"""What bounds an operation: the arithmetic and bytes that it cannot do without, and how fast a processor is at both.

>>> image, weights = MemoryDesc((1, 64, 56, 56), "f32", "nhwc"), MemoryDesc((256, 64, 1, 1), "f32", "any")
>>> descs = {"src": image, "weights": weights, "dst": MemoryDesc((1, 256, 56, 56), "f32", "nhwc")}
>>> least = work(Operation("convolution", "forward_inference", descs))
>>> least
Work(flops=102760448, warm=4014080, cold=65536)
>>> machine = Machine("AVX2", threads=2, peak=100.0, near=100.0, far=20.0, last=1 << 25)
>>> f"{machine.roofline(least, 'f32'):.2f} ms"
'1.03 ms'
"""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from math import prod
from typing import Any

import numpy as np

from inlay.descriptor import MemoryDesc
from inlay.errors import InvalidArguments
from inlay.graph.algorithms import algorithm_of
from inlay.machine import cache_hierarchy, reported_caches
from inlay.measure.interleaved import Call, clock, fastest_call
from inlay.measure.timing_database import TimingTable
from inlay.memory import Memory
from inlay.memory.buffers import allocate
from inlay.memory.pack_reorder import Reorder
from inlay.primitives.attributes import BinaryPostOp, PReLUPostOp, SumPostOp
from inlay.primitives.engine import Operation
from inlay.primitives.rules import WEIGHTED
from inlay.reordering.memory_levels import memory_model
from inlay.reordering.target import host_target
from inlay.reordering.threads import get_num_threads


@dataclass(frozen=True, slots=True)
class Work:
    """The least that an operation has to do."""

    flops: int
    """Additions, multiplications and what takes as long; transcendental functions count as the 10 to 30 they take."""
    warm: int
    """Bytes of activations, read and written: what the operation before has left in the caches."""
    cold: int
    """Bytes of weights, which come from memory in a network whose weights do not fit in the caches."""

    @property
    def nbytes(self) -> int:
        """All bytes."""
        return self.warm + self.cold


def work(operation: Operation) -> Work:
    """What `operation` has to do, in the formats that it has; `any` counts as dense."""
    sizes = {name: nbytes(desc) for name, desc in operation.descs.items()}
    cold = sum(size for name, size in sizes.items() if is_weights(name, operation))
    warm = sum(sizes.values()) - cold
    dst = operation.descs.get("dst") or operation.descs.get("dst_layer")
    for post_op in operation.attributes.post_ops:
        match post_op:
            case BinaryPostOp(src_1=src_1):
                warm += nbytes(src_1)
            case PReLUPostOp():
                warm += 4
            case SumPostOp() if dst is not None:
                warm += nbytes(dst)
    return Work(_flops(operation), warm, cold)


def is_weights(name: str, operation: Operation) -> bool:
    """Whether an argument is constant from run to run: weights, unless they are a batch of matrices, and statistics."""
    if name in ("mean", "variance", "scale", "shift", "bias"):
        return True
    if not name.startswith("weights"):
        return False
    return not (operation.kind == "matmul" and prod(operation.descs[name].dims[:-2]) > 1)


@lru_cache(maxsize=8192)
def nbytes(desc: MemoryDesc) -> int:
    """Bytes of a tensor: with padding where it has a format, dense where it is `any`."""
    if desc.kind == "any":
        assert desc.data_type is not None
        return -(-prod(desc.dims) * desc.data_type.bits // 8)
    return desc.size


def elements(operation: Operation) -> int:
    """Elements of the largest tensor."""
    return max((prod(desc.dims) for desc in operation.descs.values()), default=0)


_EXPENSIVE = frozenset(
    ("tanh", "elu", "soft_relu", "logistic", "mish", "exp", "gelu_tanh", "swish", "log", "pow", "gelu_erf")
)
_EACH = {
    "softmax": 30,
    "lrn": 30,
    "layer_normalization": 8,
    "batch_normalization": 2,
    "group_normalization": 8,
    "resampling": 4,
    "reduction": 1,
    "prelu": 2,
    "binary": 1,
}
_FUNCTION = {True: 20, False: 1}
_GATES = {"lstm": 4, "gru": 3, "lbr_gru": 3, "augru": 3, "lbr_augru": 3, "vanilla_rnn": 1}


def _flops(operation: Operation) -> int:
    kind, descs = operation.kind, operation.descs
    extra = sum(_post(post_op) for post_op in operation.attributes.post_ops)
    if kind in WEIGHTED:
        return multiplications(operation) * 2 + extra * prod(descs["dst"].dims)
    if kind in _GATES:
        return 2 * multiplications(operation)
    if kind == "pooling":
        return taps(operation.parameters) * prod(descs["dst"].dims)
    if kind == "eltwise":
        return _FUNCTION[operation.parameters["algorithm"] in _EXPENSIVE] * elements(operation)
    if kind == "sum":
        return (len(descs) - 1) * elements(operation)
    return (_EACH.get(kind, 0) + extra) * elements(operation)


def _post(post_op: object) -> int:
    algorithm = getattr(post_op, "algorithm", "")
    return _FUNCTION[algorithm in _EXPENSIVE]


def multiplications(operation: Operation) -> int:
    """Products that are added up."""
    kind, descs = operation.kind, operation.descs
    if kind in _GATES:
        steps, batch = descs["src_layer"].dims[:2]
        return steps * batch * sum(prod(desc.dims) for name, desc in descs.items() if name.startswith("weights"))
    if kind == "matmul":
        return prod(descs["dst"].dims) * descs["src"].dims[-1]
    if kind == "deconvolution":  # every source element meets every weight of its group
        weights, src = descs["weights"].dims, descs["src"].dims
        is_grouped = len(weights) > len(src)
        return prod(src) * prod(weights) // (weights[0] * weights[2] if is_grouped else weights[1])
    weights, dst = descs["weights"].dims, descs["dst"].dims
    if (algorithm := algorithm_of(operation)) is not None:
        return algorithm.multiplications(operation)
    return prod(dst) * prod(weights) // max(1, dst[1])


def taps(parameters: Mapping[str, object]) -> int:
    """Elements of the window of a pooling."""
    kernel = parameters["kernel"]
    assert isinstance(kernel, tuple)
    return prod(kernel)


ISAS = (
    "SSE41",
    "AVX",
    "AVX2",
    "AVX2_VNNI",
    "AVX2_VNNI_2",
    "AVX512_CORE",
    "AVX512_CORE_VNNI",
    "AVX512_CORE_BF16",
    "AVX512_CORE_FP16",
    "AVX512_CORE_AMX",
    "AVX512_CORE_AMX_FP16",
)
"""Instruction sets that a library can be limited to, from the least on, as ONEDNN_MAX_CPU_ISA names them."""

_NEEDS = (
    ("AVX512_CORE_AMX_FP16", "+amx-fp16"),
    ("AVX512_CORE_AMX", "+amx-int8"),
    ("AVX512_CORE_FP16", "+avx512fp16"),
    ("AVX512_CORE_BF16", "+avx512bf16"),
    ("AVX512_CORE_VNNI", "+avx512vnni"),
    ("AVX512_CORE", "+avx512bw"),
    ("AVX2_VNNI_2", "+avxneconvert"),
    ("AVX2_VNNI", "+avxvnni"),
    ("AVX2", "+avx2"),
    ("AVX", "+avx"),
)


@dataclass(frozen=True, slots=True)
class Machine:
    """What bounds a kernel."""

    isa: str
    """One of `ISAS`."""
    threads: int
    """How many threads compute."""
    peak: float
    """Of all threads in f32, in 10^9 operations in a second."""
    near: float
    """Of all threads on data in the caches, in 10^9 bytes in a second, read and written."""
    far: float
    """Of all threads on data in memory, likewise."""
    last: int
    """Bytes of the largest cache."""

    def roofline(self, work: Work, data_type: str) -> float:
        """The least that `work` takes, in milliseconds."""
        return max(self.computing(work.flops, data_type), self.moving(work))

    def computing(self, flops: int, data_type: str) -> float:
        """What the arithmetic takes at the peak, in milliseconds."""
        return flops / (self.peak * rate(data_type, self.isa)) / 1e6

    def moving(self, work: Work) -> float:
        """What the bytes take, in milliseconds."""
        warm = self.near if work.nbytes <= self.last // 2 else self.far
        return (work.warm / warm + work.cold / self.far) / 1e6


def rate(data_type: str, isa: str) -> float:
    """How many times as fast as in f32 an instruction set computes in another type."""
    level = isa_level(isa)
    if data_type == "f64":
        return 0.5
    if data_type == "bf16":
        return 8.0 if "AMX" in isa else 2.0 if level >= isa_level("AVX512_CORE_BF16") else 0.5
    if data_type == "f16":
        return 2.0 if level >= isa_level("AVX512_CORE_FP16") else 0.5
    if data_type in ("s8", "u8"):
        return 16.0 if "AMX" in isa else 4.0 if "VNNI" in isa or level > isa_level("AVX512_CORE") else 2.0
    return 1.0


def isa_level(isa: str) -> int:
    """The place of an instruction set in `ISAS`.

    Raises:
        InvalidArguments: there is none of this name.
    """
    try:
        return ISAS.index(isa.upper())
    except ValueError:
        raise InvalidArguments(f"there is no instruction set {isa!r}: give one of {', '.join(ISAS)}") from None


@lru_cache(maxsize=1)
def host_isa() -> str:
    """The most that the processor of this process can do."""
    features = host_target().features.split(",")
    return next((isa for isa, feature in _NEEDS if feature in features), "SSE41")


def allowed_isa() -> str:
    """What the library of oneDNN may use: the processor's, or less if ONEDNN_MAX_CPU_ISA says so."""
    named = (os.environ.get("ONEDNN_MAX_CPU_ISA") or os.environ.get("DNNL_MAX_CPU_ISA") or "").upper()
    return min(host_isa(), named, key=ISAS.index) if named in ISAS else host_isa()


def this_machine(isa: str | None = None, threads: int | None = None) -> Machine:
    """This machine on so many threads, as if its instruction set were `isa`: measured once, then read from the cache.

    Raises:
        InvalidArguments: there is no such instruction set, or fewer than one thread.
    """
    isa = (isa or allowed_isa()).upper()
    isa_level(isa)
    threads = get_num_threads() if threads is None else threads
    if threads < 1:
        raise InvalidArguments(f"threads is {threads}: give at least 1")
    peak, near, far = _figures()
    share = threads / get_num_threads()
    limit = _width(isa) / _width(host_isa())
    return Machine(isa, threads, peak * share * limit, near * share, far * min(1.0, share), memory_model().last_level)


def _width(isa: str) -> float:
    """Arithmetic of an instruction set, up to a factor: operations of f32 in an instruction, and whether these fuse."""
    level = isa_level(isa)
    if level < isa_level("AVX2"):
        return 4.0
    if level < isa_level("AVX512_CORE") or host_target().cpu in _HALVED:
        return 16.0
    return 32.0


_HALVED = ("znver4",)
"""Processors whose registers are twice as wide as what computes."""


_VERSION, _FIGURES = "6", "figures"
_TRIES = 4
_SECONDS = 0.06  # of each figure


@lru_cache(maxsize=1)
def _figures() -> tuple[float, float, float]:
    """Peak and bandwidths of this machine with all threads, from the cache or measured.

    The first processes each measure and the best counts: a busy machine is slower than it is, and never faster.
    """
    table = TimingTable("machine", _VERSION, *processor_facts(), str(get_num_threads()))
    tries, known = read_figures(table.get(_FIGURES))
    if tries >= _TRIES:
        return known
    # Copies at their best, as all prices are; those of the machine model are medians of shorter ones.
    measured = (_peak(), _copying(2 << 20), _copying(max(2 * memory_model().last_level, 32 << 20)))
    best = tuple(map(max, measured, known))
    table.put(_FIGURES, [tries + 1, *best])
    table.save()
    return best[0], best[1], best[2]


def processor_facts() -> tuple[str, str, str]:
    """What remembered times hang on and what does not change from one start of the machine to the next.

    The measured capacity of the caches is left out: it differs each time. What follows from it is computed from the
    machine model where it is used.
    """
    target = host_target()
    return target.cpu, target.features, cache_hierarchy(reported_caches())


def read_figures(value: Any) -> tuple[int, tuple[float, float, float]]:
    """How often figures were measured, and the best of each; never and zeros where `value` says nothing sensible.

    >>> read_figures([2, 230.0, 150.0, 40.0]), read_figures([2, 230.0, float("nan"), 40.0])
    ((2, (230.0, 150.0, 40.0)), (0, (0.0, 0.0, 0.0)))
    """
    match value:
        case [int(tries), float(peak), float(near), float(far)] if tries >= 1:
            if all(0 < figure < 1e7 for figure in (peak, near, far)):
                return tries, (peak, near, far)
    return 0, (0.0, 0.0, 0.0)


def _peak() -> float:
    """10^9 operations in a second of NumPy's product of matrices, also of small ones, each thread for itself."""
    return max(_multiplying(768), _multiplying(96) * get_num_threads())


def _multiplying(n: int) -> float:
    a = np.full((n, n), 0.5, np.float32)
    out = np.empty_like(a)
    return 2 * n**3 / fastest_call(lambda: np.matmul(a, a, out=out), clock() + _SECONDS) / 1e9


def _copying(nbytes: int) -> float:
    """10^9 bytes read and written in a second by a copy of so many: by a team, or by one thread if that is faster.

    Where another process has a processor, the team waits for its slowest member.
    """
    desc = MemoryDesc((nbytes,), "u8", "a")
    one, other = allocate(nbytes), allocate(nbytes)
    # Pages that nobody has written are all one, which stays in the cache.
    one[:] = other[:] = 1
    src, dst, reorder = Memory(desc, one), Memory(desc, other), Reorder(desc, desc)
    calls: tuple[Call, ...] = (lambda: reorder(src, dst), lambda: np.copyto(other, one))
    return 2 * nbytes / min(fastest_call(call, clock() + _SECONDS) for call in calls) / 1e9
