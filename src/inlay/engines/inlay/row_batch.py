"""Batches of products of few rows with matrices as they are in memory, on the threads of another engine.

    implementation = create_row_batch(operation, team, threads=2)
    implementation.bind(memories)()

See `primitives.row_batches` for the operations that this is meant for.
"""

from collections.abc import Mapping, Sequence
from functools import cache, partial
from math import prod
from pathlib import Path
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from inlay.descriptor import MemoryDesc
from inlay.engines.inlay.matvec_post_ops import find_operands, parse_post_ops
from inlay.engines.inlay.row_batch_code import ENTRY, TENSORS, RowBatchCode, RowBatchWord, build_module
from inlay.engines.inlay.team_code import load_entry
from inlay.errors import InvalidArguments, Unimplemented
from inlay.layout import Dims
from inlay.memory import Memory
from inlay.memory.buffers import address_of
from inlay.primitives.engine import MachineCall, Operation, PlainImplementation, ThreadTeam
from inlay.primitives.row_batches import find_features, has_contiguous_rows
from inlay.reordering.target import TargetMachine, digest_of, host_target

_Words: TypeAlias = npt.NDArray[np.int64]
_FLOAT = 4
_LEAST_NBYTES = 1 << 15  # weights per thread; waking a thread takes as long as to read so many bytes


def requests_row_batch(operation: Operation) -> bool:
    """Return whether an operation is a batch of products that the machine code is meant for."""
    return find_features(operation) is not None


def create_row_batch(
    operation: Operation, team: ThreadTeam, threads: int, target: TargetMachine | None = None
) -> PlainImplementation:
    """Create a batch of products that runs on `threads` threads of `team`; a destination of `any` is row-major.

    Raises:
        Unimplemented: it is not such a batch, or it has scales, zero points, or another post-operation than functions
            and operations with a second operand of f32 that `matvec_post_ops` has.
        InvalidArguments: dims do not fit, so that the machine code would read beyond a memory.
    """
    target = target or host_target()
    lanes = target.vector_bytes // _FLOAT
    features, attributes = find_features(operation, lanes), operation.attributes
    if features is None or attributes.scales or attributes.zero_points:
        raise Unimplemented("a batch of products of few rows has f32 with contiguous features, without scales")
    descs = _resolve_result(operation)
    _require_fitting_dims(descs)
    operands = find_operands(operation.attributes.post_ops)
    if attributes.scratchpad_mode == "user":
        descs["scratchpad"] = MemoryDesc((0,), "u8", "a", allow_empty=True)
    codes = parse_post_ops(attributes.post_ops, descs["dst"], _is_operand)
    if any(code.algorithm == "sum" for code in codes):
        raise Unimplemented("a batch of products of few rows adds nothing to its destination")
    count = descs["weights"].dims[-2 if features == "summed" else -1]
    is_single = tuple(desc.dims[-1] == 1 for desc in operands.values())
    kernel = RowBatchCode(features, count, lanes, codes, is_single)
    table = _make_table(kernel, descs, tuple(operands.values()), team)
    useful = descs["weights"].size // _LEAST_NBYTES
    most = max(1, min(threads, useful, int(table[RowBatchWord.PRODUCTS])))
    bind = partial(_bind, kernel, target, table, tuple(operands), most)
    return PlainImplementation(operation, descs | operands, "matvec:batch", bind, is_batched=True)


def _resolve_result(operation: Operation) -> dict[str, MemoryDesc]:
    """Return the descriptors of the matrices; a destination of `any` is row-major."""
    descs = {name: operation.descs[name] for name in ("src", "weights", "dst")}
    if descs["dst"].kind == "any":
        descs["dst"] = MemoryDesc(descs["dst"].dims, "f32")
    return descs


def _require_fitting_dims(descs: Mapping[str, MemoryDesc]) -> None:
    """Check that the dims of the matrices are those of products; axes of the batch may have extent 1 in sources.

    Raises:
        InvalidArguments: they are not.
    """
    src, weights, dst = (descs[name].dims for name in ("src", "weights", "dst"))
    is_product = (src[-2], weights[-1], src[-1]) == (dst[-2], dst[-1], weights[-2])
    if not is_product or not all(_can_broadcast(dims[:-2], dst[:-2]) for dims in (src, weights)):
        raise InvalidArguments(f"products of {src} and {weights} have no results {dst}: give dims that fit")


def _can_broadcast(dims: Dims, result: Dims) -> bool:
    """Return whether each extent is that of the result, or 1."""
    return all(n in (1, whole) for n, whole in zip(dims, result, strict=True))


def _is_operand(desc: MemoryDesc, dst: MemoryDesc) -> bool:
    """Return whether a second operand is plain f32 that broadcasts to the result, with contiguous rows."""
    if str(desc.data_type) != "f32" or desc.ndims != dst.ndims:
        return False
    return has_contiguous_rows(desc) and _can_broadcast(desc.dims, dst.dims)


def _make_table(
    kernel: RowBatchCode, descs: Mapping[str, MemoryDesc], operands: Sequence[MemoryDesc], team: ThreadTeam
) -> _Words:
    """Return the call table; the words of addresses contain offsets, to which `_bind` adds the addresses."""
    weights, dst = descs["weights"], descs["dst"]
    table = np.zeros(len(TENSORS) * 4 + 7, np.int64)
    for word, desc in zip(TENSORS, (descs["src"], weights, dst, *operands), strict=False):
        axis = -1 if word == RowBatchWord.WEIGHTS and kernel.features == "summed" else -2
        batch = [_find_stride(desc, one) for one in range(desc.ndims - 2)]
        table[word : word + 4] = desc.offset0, *([0] * (2 - len(batch))), *batch, _find_stride(desc, axis)
        table[word : word + 4] *= _FLOAT
    extents = (1, *dst.dims[:-2])[-2:]
    keys = weights.dims[-1 if kernel.features == "summed" else -2]
    table[RowBatchWord.ROWS :] = (
        *(dst.dims[-2], keys, extents[-1], prod(extents)),
        *(team.parallel, team.thread_num, team.num_threads),
    )
    return table


def _find_stride(desc: MemoryDesc, axis: int) -> int:
    """Return the elements between neighbors along an axis; 0 for extent 1."""
    return int(desc.strides[axis]) if desc.dims[axis] > 1 else 0


_EMITTER = digest_of(
    [
        Path(__file__).with_name(name)
        for name in ("row_batch_code.py", "matvec_post_ops.py", "winograd_code.py", "team_code.py")
    ]
)
"""Digest of the source files that write the module; empty if they cannot be read, as in a zip archive."""


@cache
def _compile_entry(kernel: RowBatchCode, target: TargetMachine) -> int:
    """Return the address of the compiled function; the first call compiles or loads it."""
    return load_entry(_EMITTER, kernel, partial(build_module, kernel, target.attributes), target, ENTRY)


def _bind(
    kernel: RowBatchCode,
    target: TargetMachine,
    offsets: _Words,
    operands: Sequence[str],
    threads: int,
    memories: Mapping[str, Memory],
) -> MachineCall:
    """Return the call that multiplies once with these memories, and keeps them alive."""
    table = offsets.copy()
    for word, name in zip(TENSORS, ("src", "weights", "dst", *operands), strict=False):
        table[word] += memories[name].address
    return MachineCall(_compile_entry(kernel, target), address_of(table), threads, (table, dict(memories)))
