"""The minimal work of an operation, and the machine that executes it: inputs of the roofline model.

>>> image, weights = MemoryDesc((1, 64, 56, 56), "f32", "nhwc"), MemoryDesc((256, 64, 1, 1), "f32", "any")
>>> descs = {"src": image, "weights": weights, "dst": MemoryDesc((1, 256, 56, 56), "f32", "nhwc")}
>>> least = workload(Operation("convolution", "forward_inference", descs))
>>> least
Workload(flops=102760448, activation_bytes=4014080, weight_bytes=65536)
>>> machine = Machine("AVX2", threads=2, peak=100.0, cache_bandwidth=100.0, memory_bandwidth=20.0, cache_bytes=1 << 25)
>>> f"{machine.roofline(least, 'f32'):.2f} ms"
'1.03 ms'
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from math import prod
from typing import Any

import numpy as np

from inlay.descriptor import MemoryDesc
from inlay.errors import InvalidArguments
from inlay.graph.algorithms import algorithm_of
from inlay.graph.costs.instruction_sets import allowed_isa, host_isa, isa_level
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
from inlay.reordering.threads import available_threads, get_num_threads


@dataclass(frozen=True, slots=True)
class Workload:
    """The arithmetic and memory traffic that any implementation of an operation needs."""

    flops: int
    """Number of additions, multiplications and operations of similar cost. A transcendental function counts as 20."""
    activation_bytes: int
    """Bytes of activations, read and written. The operation before has left them in the caches if they fit."""
    weight_bytes: int
    """Bytes of weights. They are read from memory where the network's weights exceed the caches."""

    @property
    def nbytes(self) -> int:
        """Bytes of activations and weights."""
        return self.activation_bytes + self.weight_bytes


def workload(operation: Operation) -> Workload:
    """Compute the workload of `operation`; a tensor of format `any` counts as dense."""
    sizes = {name: nbytes(desc) for name, desc in operation.descs.items()}
    if operation.kind == "cache_write":
        sizes["dst"] = sizes["src"]  # the rest of it is kept
    weight_bytes = sum(size for name, size in sizes.items() if is_weights(name, operation))
    activation_bytes = sum(sizes.values()) - weight_bytes
    dst = operation.descs.get("dst") or operation.descs.get("dst_layer")
    for post_op in operation.attributes.post_ops:
        match post_op:
            case BinaryPostOp(src_1=src_1):
                activation_bytes += nbytes(src_1)
            case PReLUPostOp():
                activation_bytes += 4
            case SumPostOp() if dst is not None:
                activation_bytes += nbytes(dst)
    return Workload(_flops(operation), activation_bytes, weight_bytes)


def is_weights(name: str, operation: Operation) -> bool:
    """Return whether an argument keeps its value from run to run: weights, biases, scales and statistics.

    The second operand of a batched matrix product counts as an activation, and so do its scales and zero points.
    """
    if name in ("mean", "variance", "scale", "shift", "bias"):
        return name in operation.signature.reads
    if not name.startswith("weights"):
        return False
    return not (operation.kind == "matmul" and prod(operation.descs["weights"].dims[:-2]) > 1)


@lru_cache(maxsize=8192)
def nbytes(desc: MemoryDesc) -> int:
    """Return the size of a tensor in bytes, padding included; a tensor of format `any` counts as dense."""
    if desc.kind == "any":
        assert desc.data_type is not None
        return -(-prod(desc.dims) * desc.data_type.bits // 8)
    return desc.size


def elements(operation: Operation) -> int:
    """Return the number of elements of the operation's largest tensor."""
    return max((prod(desc.dims) for desc in operation.descs.values()), default=0)


_EXPENSIVE = frozenset(
    ("tanh", "elu", "soft_relu", "logistic", "mish", "exp", "gelu_tanh", "swish", "log", "pow", "gelu_erf")
)
_FLOPS_PER_ELEMENT = {
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
_FUNCTION_FLOPS = {True: 20, False: 1}
_GATES = {"lstm": 4, "gru": 3, "lbr_gru": 3, "augru": 3, "lbr_augru": 3, "vanilla_rnn": 1}


def _flops(operation: Operation) -> int:
    """Return the number of arithmetic operations, with post-operations for the kinds that support all of them."""
    kind, descs = operation.kind, operation.descs
    extra = sum(_post_op_flops(post_op) for post_op in operation.attributes.post_ops)
    if kind in WEIGHTED:
        return multiplications(operation) * 2 + extra * prod(descs["dst"].dims)
    if kind in _GATES:
        return 2 * multiplications(operation)
    if kind == "pooling":
        return taps(operation.parameters) * prod(descs["dst"].dims)
    if kind == "eltwise":
        return _FUNCTION_FLOPS[operation.parameters["algorithm"] in _EXPENSIVE] * elements(operation)
    if kind == "sum":
        return (len(descs) - 1) * elements(operation)
    return (_FLOPS_PER_ELEMENT.get(kind, 0) + extra) * elements(operation)


def _post_op_flops(post_op: object) -> int:
    """Return the arithmetic operations that a post-operation adds for each element."""
    algorithm = getattr(post_op, "algorithm", "")
    return _FUNCTION_FLOPS[algorithm in _EXPENSIVE]


def multiplications(operation: Operation) -> int:
    """Return the number of multiply-add pairs of an operation with weights."""
    kind, descs = operation.kind, operation.descs
    if kind in _GATES:
        steps, batch = descs["src_layer"].dims[:2]
        return steps * batch * sum(prod(desc.dims) for name, desc in descs.items() if name.startswith("weights"))
    if kind == "matmul":
        return prod(descs["dst"].dims) * descs["src"].dims[-1]
    if kind == "deconvolution":  # every source element is multiplied by every weight of its group
        weights, src = descs["weights"].dims, descs["src"].dims
        is_grouped = len(weights) > len(src)
        return prod(src) * prod(weights) // (weights[0] * weights[2] if is_grouped else weights[1])
    weights, dst = descs["weights"].dims, descs["dst"].dims
    if (algorithm := algorithm_of(operation)) is not None:
        return algorithm.multiplications(operation)
    return prod(dst) * prod(weights) // max(1, dst[1])


def taps(parameters: Mapping[str, object]) -> int:
    """Return the number of elements in the window of a pooling."""
    kernel = parameters["kernel"]
    assert isinstance(kernel, tuple)
    return prod(kernel)


@dataclass(frozen=True, slots=True)
class Machine:
    """The figures of a machine that bound the run time of kernels."""

    isa: str
    """Instruction set, one of `ISAS`."""
    threads: int
    """Number of threads that kernels run on."""
    peak: float
    """Peak f32 arithmetic of all threads, in 10^9 operations a second."""
    cache_bandwidth: float
    """Bandwidth of all threads on data in the caches, in 10^9 bytes a second, read and written bytes added."""
    memory_bandwidth: float
    """Bandwidth of all threads on data in memory, in 10^9 bytes a second, read and written bytes added."""
    cache_bytes: int
    """Size of the last-level cache in bytes."""

    def roofline(self, work: Workload, data_type: str) -> float:
        """Return the lower bound of the run time of `work`, in milliseconds."""
        return max(self.compute_ms(work.flops, data_type), self.transfer_ms(work))

    def compute_ms(self, flops: int, data_type: str) -> float:
        """Return the milliseconds that `flops` operations take at the peak."""
        return flops / (self.peak * relative_rate(data_type, self.isa)) / 1e6

    def transfer_ms(self, work: Workload) -> float:
        """Return the milliseconds that the memory traffic takes.

        Activations count at cache bandwidth if all tensors fit in half of the last-level cache; weights always come
        from memory.
        """
        bandwidth = self.cache_bandwidth if work.nbytes <= self.cache_bytes // 2 else self.memory_bandwidth
        return (work.activation_bytes / bandwidth + work.weight_bytes / self.memory_bandwidth) / 1e6


def relative_rate(data_type: str, isa: str) -> float:
    """Return the peak of an instruction set in a data type, relative to its peak in f32."""
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


def this_machine(isa: str | None = None, threads: int | None = None) -> Machine:
    """Return the figures of this machine for so many threads, as if its instruction set were `isa`.

    Peak and bandwidths are measured once and then read from the cache directory. `threads` defaults to Inlay's threads.

    Raises:
        InvalidArguments: there is no such instruction set, or fewer than one thread.
    """
    isa = (isa or allowed_isa()).upper()
    isa_level(isa)
    threads = get_num_threads() if threads is None else threads
    if threads < 1:
        raise InvalidArguments(f"threads is {threads}: give at least 1")
    peak, cache_bandwidth, memory_bandwidth = _machine_figures(get_num_threads())
    share = threads / get_num_threads()
    return Machine(
        isa,
        threads,
        peak * share * (_flops_per_instruction(isa) / _flops_per_instruction(host_isa())),
        cache_bandwidth * share,
        memory_bandwidth * min(1.0, share),
        memory_model().last_level,
    )


def _flops_per_instruction(isa: str) -> float:
    """Return the f32 operations of one vector instruction, doubled for fused multiply-add.

    Only ratios of this figure are used.
    """
    level = isa_level(isa)
    if level < isa_level("AVX2"):
        return 4.0
    if level < isa_level("AVX512_CORE") or host_target().cpu in _HALF_WIDTH_CPUS:
        return 16.0
    return 32.0


_HALF_WIDTH_CPUS = ("znver4",)
"""Processors that execute an AVX-512 instruction as two halves: their AVX-512 peak equals that of AVX2."""


_VERSION, _FIGURES = "7", "figures"
_TRIES = 4
_SECONDS = 0.06  # time for measuring each figure


@lru_cache(maxsize=8)
def _machine_figures(threads: int) -> tuple[float, float, float]:
    """Return peak, cache bandwidth and memory bandwidth of this machine with `threads` threads, Inlay's number now.

    They are read from the cache directory, or measured if no process has stored them there.
    """
    tries, known = read_figures(_figures_table().get(_FIGURES))
    return _with_fast_caches(*(known if tries else _measure_figures(threads)))


def measure_figures() -> tuple[float, float, float]:
    """Measure the figures once in this process for Inlay's number of threads, and store and return the best so far."""
    return _measure_figures(get_num_threads())


@lru_cache(maxsize=8)
def _measure_figures(threads: int) -> tuple[float, float, float]:
    """Measure the figures for `threads` threads, Inlay's number now; store and return the best of all processes.

    Other load makes a measurement slower, never faster, so `_TRIES` processes measure; later ones return what is
    stored.
    """
    table = _figures_table()
    tries, known = read_figures(table.get(_FIGURES))
    if tries >= _TRIES:
        return known
    # The best copies, as kernel times are of the processor at its best; the memory model has medians of shorter copies.
    measured = (_peak_rate(), _copy_bandwidth(2 << 20), _copy_bandwidth(max(2 * memory_model().last_level, 32 << 20)))
    peak, cache, memory = map(max, measured, known)
    table.put(_FIGURES, [tries + 1, peak, cache, memory])
    table.save()
    return peak, cache, memory


def _figures_table() -> TimingTable:
    """Open the table with the figures of this processor and number of threads."""
    return TimingTable("machine", _VERSION, *processor_facts(), str(get_num_threads()))


def _with_fast_caches(peak: float, cache: float, memory: float) -> tuple[float, float, float]:
    """Return the figures with caches at least as fast as memory, whatever a disturbed measurement found."""
    return peak, max(cache, memory), memory


def processor_facts() -> tuple[str, str, str]:
    """Return the properties of the processor that identify stored times and stay equal when the machine restarts.

    The measured capacity of the caches is not among them, since it differs at each start. Figures that depend on it are
    computed from the memory model when they are used.
    """
    target = host_target()
    return target.cpu, target.features, cache_hierarchy(reported_caches())


def read_figures(value: Any) -> tuple[int, tuple[float, float, float]]:
    """Parse stored figures: how many times they were measured, and the best of each.

    Zero times and zeros are returned for a value that is not valid.

    >>> read_figures([2, 230.0, 150.0, 40.0]), read_figures([2, 230.0, float("nan"), 40.0])
    ((2, (230.0, 150.0, 40.0)), (0, (0.0, 0.0, 0.0)))
    """
    match value:
        case [int(tries), float(peak), float(cache), float(memory)] if tries >= 1:
            if all(0 < figure < 1e7 for figure in (peak, cache, memory)):
                return tries, (peak, cache, memory)
    return 0, (0.0, 0.0, 0.0)


def _peak_rate() -> float:
    """Measure the peak in 10^9 operations a second.

    It is the rate of NumPy's product of large matrices, which uses all processors, in proportion to the threads; or
    that of small ones on one thread, times the threads.
    """
    threads = get_num_threads()
    return max(_matmul_rate(768) * threads / available_threads(), _matmul_rate(96) * threads)


def _matmul_rate(n: int) -> float:
    """Measure NumPy's product of two matrices of n x n floats, in 10^9 operations a second."""
    a = np.full((n, n), 0.5, np.float32)
    out = np.empty_like(a)
    return 2 * n**3 / fastest_call(lambda: np.matmul(a, a, out=out), clock() + _SECONDS) / 1e9


def _copy_bandwidth(nbytes: int) -> float:
    """Measure the bandwidth of a copy of `nbytes` bytes, in 10^9 bytes read and written a second.

    The faster of two copies counts: Inlay's on all threads, and NumPy's on one. If another process occupies a
    processor, the copy on all threads waits for its slowest thread.
    """
    desc = MemoryDesc((nbytes,), "u8", "a")
    one, other = allocate(nbytes), allocate(nbytes)
    # Linux maps all pages that were never written to one page of zeros, which would stay in the cache.
    one[:] = other[:] = 1
    src, dst, reorder = Memory(desc, one), Memory(desc, other), Reorder(desc, desc)
    calls: tuple[Call, ...] = (lambda: reorder(src, dst), lambda: np.copyto(other, one))
    return 2 * nbytes / min(fastest_call(call, clock() + _SECONDS) for call in calls) / 1e9
