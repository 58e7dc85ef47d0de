"""Products of few rows with a constant matrix, whose weights are read at the speed of memory.

    implementation = create_matvec(operation, team, threads=2)
    implementation.descs["weights"]         a blocked format, in panels of columns
    implementation.bind(memories)()

oneDNN 3.2 has no product of f32 with integers of 4 or 8 bits. This one reads them as they are stored, and converts them
in registers. Weights of f32 and bf16 are computed if they are in panels (`primitives.panel_weights`): if they come from
memory, oneDNN reads them slower for few rows. It runs on the OpenMP threads of another engine.
"""

from collections.abc import Iterable, Mapping, Sequence
from functools import cache, partial
from pathlib import Path
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from inlay.descriptor import MemoryDesc
from inlay.engines.inlay.matvec_code import (
    ENTRY,
    OPERANDS,
    STEP,
    MatvecCode,
    MatvecWord,
    build_module,
    weights_tag,
)
from inlay.engines.inlay.matvec_post_ops import find_operands, is_matrix_operand, parse_post_ops
from inlay.engines.inlay.matvec_rounding import MOST_GROUP, can_round, rounded_nbytes
from inlay.engines.inlay.team_code import load_entry
from inlay.engines.inlay.winograd_code import Registers
from inlay.errors import InvalidArguments, Unimplemented
from inlay.layout import Layout
from inlay.memory import Memory
from inlay.memory.buffers import address_of
from inlay.primitives.engine import MachineCall, Operation, PlainImplementation, ThreadTeam
from inlay.primitives.panel_weights import MOST_ROWS, has_panel_weights, panel_tag
from inlay.reordering.attributes import Scales, ZeroPoints
from inlay.reordering.target import TargetMachine, digest_of, host_target

_INTEGERS = ("s4", "u4", "s8", "u8")
_FLOATS = (("f32", "f32", "f32"), ("bf16", "bf16", "bf16"), ("bf16", "bf16", "f32"))
"""Types of source, weights and destination without integers."""
_PANEL = 4  # registers in a row of a panel of the weights
_FLOAT = 4  # bytes
_LINE = 64  # bytes of a cache line
_Words: TypeAlias = npt.NDArray[np.int64]


def requests_matvec(operation: Operation) -> bool:
    """Return whether an operation is a product with weights in panels, or of f32 with integers that are used as f32."""
    if operation.kind != "matmul" or operation.prop_kind != "forward_inference":
        return has_panel_weights(operation)
    descs = operation.descs
    is_mixed = str(descs["src"].data_type) == "f32" and str(descs["weights"].data_type) in _INTEGERS
    is_integer = is_mixed and operation.attributes.fpmath_integers and descs["weights"].ndims == 2
    return is_integer or has_panel_weights(operation)


def create_matvec(
    operation: Operation, team: ThreadTeam, threads: int, target: TargetMachine | None = None
) -> PlainImplementation:
    """Create a product that runs on `threads` threads of `team`.

    Source and destination are row-major, with any stride of rows. Results are those of f32 arithmetic;
    if the operation allows it, those of at most `MOST_ROWS` rows by integers of 4 bits are of a rounded source.

    Raises:
        Unimplemented: the operation has other types or formats, the rows of its weights or of their groups are no
            multiple of 8, it has attributes other than scales and zero points of integer weights in groups, or a
            post-operation that `matvec_post_ops` lacks.
        InvalidArguments: dims do not fit, so that the machine code would read beyond a memory.
    """
    _require_fitting_dims(operation)
    target = target or host_target()
    registers = Registers(target.vector_bytes // _FLOAT, _PANEL)
    descs = _resolve_formats(operation, registers)
    rows, inner, columns = *descs["src"].dims, descs["dst"].dims[1]
    group = _find_group(operation, inner)
    kernel = MatvecCode(
        str(descs["weights"].data_type),
        min(rows, MOST_ROWS),
        rows % MOST_ROWS if rows > MOST_ROWS else 0,
        "weights" in operation.attributes.scales,
        "weights" in operation.attributes.zero_points,
        "bias" in descs,
        str(descs["src"].data_type),
        str(descs["dst"].data_type),
        parse_post_ops(operation.attributes.post_ops, descs["dst"], is_matrix_operand),
        registers,
        _rounds_source(operation, group, target),
    )
    operands = find_operands(operation.attributes.post_ops)
    descs |= operands
    table = _table(kernel, descs, group, team)
    _add_operands(table, operands.values())
    bind = partial(_bind, kernel, target, table, tuple(operands), threads)
    impl = f"matvec:{kernel.weights}{':rounded' if kernel.rounds_source else ''}"
    values = inner // group * columns
    if kernel.has_scales:
        descs["weights_scales"] = MemoryDesc((values,), "f32", "a")
    if kernel.has_zero_points:
        descs["weights_zero_points"] = MemoryDesc((values,), "s32", "a")
    if operation.attributes.scratchpad_mode == "user":
        descs["scratchpad"] = MemoryDesc((0,), "u8", "a", allow_empty=True)
    return PlainImplementation(operation, descs, impl, bind, is_batched=True)


def _rounds_source(operation: Operation, group: int, target: TargetMachine) -> bool:
    """Return whether the source of a product is rounded to integers: it may be, and the target can do it."""
    is_few = operation.descs["src"].dims[0] <= MOST_ROWS and group <= MOST_GROUP
    is_packed = str(operation.descs["weights"].data_type) in ("s4", "u4")
    return operation.attributes.rounds_source and is_few and is_packed and can_round(target)


def _add_operands(table: _Words, operands: Iterable[MemoryDesc]) -> None:
    """Write the offset of each second operand, and the stride of its rows, into the call table."""
    for (word, stride), desc in zip(OPERANDS, operands, strict=False):
        width = 2 if str(desc.data_type) == "bf16" else _FLOAT
        table[word] = desc.offset0 * width
        table[stride] = int(desc.strides[0]) * width if desc.dims[0] > 1 else 0


def _resolve_formats(operation: Operation, registers: Registers) -> dict[str, MemoryDesc]:
    """Return the descriptor of each argument.

    Raises:
        Unimplemented: the machine code cannot access one.
    """
    given = operation.descs
    src, weights, dst = (given[name] for name in ("src", "weights", "dst"))
    types = tuple(str(given[name].data_type) for name in ("src", "weights", "dst"))
    if not (types in _FLOATS or (types[::2] == ("f32", "f32") and types[1] in _INTEGERS)):
        raise Unimplemented(f"a product of few rows has no {' by '.join(types[:2])} to {types[2]}")
    if any(desc.ndims > 2 or 0 in desc.dims or desc.has_runtime for desc in given.values()):
        raise Unimplemented("a product of few rows has matrices with dims that are known and not 0")
    tag = panel_tag(operation.kind, types[1], registers.columns) or weights_tag(types[1], registers.columns)
    packed = MemoryDesc(weights.dims, weights.data_type, tag)
    if weights.kind != "any" and weights != packed:
        raise Unimplemented(f"a product of few rows has no weights {weights}: leave them any")
    descs = {"src": _row_major("src", src), "weights": packed, "dst": _row_major("dst", dst)}
    if "bias" in given:
        descs["bias"] = _resolve_bias(given["bias"], dst.dims[1])
    return descs


def _resolve_bias(bias: MemoryDesc, columns: int) -> MemoryDesc:
    """Return the descriptor of the bias, which has a number for each column.

    Raises:
        Unimplemented: it has other dims, or another type than f32.
    """
    if str(bias.data_type) != "f32" or bias.dims not in ((1, columns), (columns,)):
        raise Unimplemented("a product of few rows has a bias of f32 with one row")
    return MemoryDesc(bias.dims, "f32") if bias.ndims == 1 else _row_major("bias", bias)


def _row_major(name: str, desc: MemoryDesc) -> MemoryDesc:
    """Return the descriptor of a matrix whose rows are contiguous; `any` becomes dense."""
    if desc.kind == "any":
        return MemoryDesc(desc.dims, desc.data_type, "ab")
    layout = desc.layout
    is_plain = isinstance(layout, Layout) and not any(axis.inner for axis in layout.axes)
    if not is_plain or desc.padded_dims != desc.dims or desc.strides[1] != 1:
        raise Unimplemented(f"a product of few rows has no {name} {desc}: give row-major ab")
    return desc


def _require_fitting_dims(operation: Operation) -> None:
    """Check that the dims of the matrices are those of a product.

    Raises:
        InvalidArguments: they are not.
    """
    src, weights, dst = (operation.descs[name].dims for name in ("src", "weights", "dst"))
    matrix = weights if operation.kind == "matmul" else weights[::-1]
    if (*src[:-1], *matrix) != (*dst[:-1], src[-1], dst[-1]):
        raise InvalidArguments(f"a product of {src} and {weights} has no result {dst}: give dims that fit")


def _find_group(operation: Operation, inner: int) -> int:
    """Return the rows of the weights that share a scale; all `inner` without scales.

    Raises:
        Unimplemented: the machine code does not support the attributes.
    """
    attributes = operation.attributes
    entries: list[Scales | ZeroPoints] = [*attributes.scales.values(), *attributes.zero_points.values()]
    if str(operation.descs["weights"].data_type) not in _INTEGERS:
        return _require_steps(inner, entries)
    names = {*attributes.scales, *attributes.zero_points}
    groups = {entry.groups for entry in entries}
    types = [entry.data_type for entry in entries]
    is_usual = attributes.scales and names == {"weights"} and len(groups) == 1
    if not is_usual or any(entry.mask != 3 for entry in entries) or types != ["f32", "s32"][: len(types)]:
        raise Unimplemented("a product of few rows has scales and zero points of integer weights in groups")
    (group,) = groups
    if len(group) != 2 or group[1] != 1 or group[0] % STEP:
        raise Unimplemented(f"a product of few rows has groups of multiples of {STEP} rows")
    return int(group[0])


def _require_steps(inner: int, entries: Sequence[Scales | ZeroPoints]) -> int:
    """Return the number of rows of floating-point weights, which have no scales.

    Raises:
        Unimplemented: they have, or the number is no multiple of `STEP`.
    """
    if entries or inner % STEP:
        raise Unimplemented(f"a product of few rows has weights with a multiple of {STEP} rows, floats without scales")
    return inner


def _table(kernel: MatvecCode, descs: Mapping[str, MemoryDesc], group: int, team: ThreadTeam) -> _Words:
    """Return the call table without addresses: the words of addresses contain offsets, to which `_bind` adds them."""
    src, dst = descs["src"], descs["dst"]
    (rows, inner), columns = src.dims, dst.dims[1]
    src_width = 2 if kernel.src == "bf16" else 4
    strip = kernel.width * kernel.registers.lanes
    rounded = rows * rounded_nbytes(inner, group) if kernel.rounds_source else 0
    words = {
        MatvecWord.SRC: src.offset0 * src_width,
        MatvecWord.DST: dst.offset0 * kernel.dst_width,
        MatvecWord.BIAS: descs["bias"].offset0 * _FLOAT if "bias" in descs else 0,
        MatvecWord.SRC_STRIDE: int(src.strides[0]) * src_width,
        MatvecWord.DST_STRIDE: int(dst.strides[0]) * kernel.dst_width,
        MatvecWord.ROUNDED_STRIDE: -(-rounded // _LINE) * _LINE,
        MatvecWord.VALUES_STRIDE: columns * _FLOAT,
        MatvecWord.PANEL_STRIDE: inner // STEP * kernel.step_nbytes,
        MatvecWord.BLOCKS: -(-rows // MOST_ROWS),
        MatvecWord.COLUMNS: columns,
        MatvecWord.STRIPS: -(-columns // strip),
        MatvecWord.GROUPS: inner // group,
        MatvecWord.STEPS: group // STEP,
        MatvecWord.PARALLEL: team.parallel,
        MatvecWord.THREAD_NUM: team.thread_num,
        MatvecWord.NUM_THREADS: team.num_threads,
    }
    table = np.zeros(len(MatvecWord), np.int64)
    table[list(words)] = list(words.values())
    return table


_EMITTER = digest_of(
    [
        Path(__file__).with_name(name)
        for name in ("matvec_code.py", "matvec_rounding.py", "matvec_post_ops.py", "winograd_code.py", "team_code.py")
    ]
)
"""Digest of the source files that write the module; empty if they cannot be read, as in a zip archive."""


@cache
def _compile_entry(kernel: MatvecCode, target: TargetMachine) -> int:
    """Return the address of the compiled function; the first call compiles or loads it."""
    return load_entry(_EMITTER, kernel, partial(build_module, kernel, target.attributes), target, ENTRY)


_ARGUMENTS = {
    MatvecWord.SRC: "src",
    MatvecWord.WEIGHTS: "weights",
    MatvecWord.SCALES: "weights_scales",
    MatvecWord.ZERO_POINTS: "weights_zero_points",
    MatvecWord.BIAS: "bias",
    MatvecWord.DST: "dst",
}


def _bind(
    kernel: MatvecCode,
    target: TargetMachine,
    offsets: _Words,
    operands: Sequence[str],
    threads: int,
    memories: Mapping[str, Memory],
) -> MachineCall:
    """Return the call that multiplies once with these memories, and keeps them alive."""
    table = offsets.copy()
    for (word, _), name in zip(OPERANDS, operands, strict=False):
        table[word] += memories[name].address
    for word, name in _ARGUMENTS.items():
        if name in memories:
            table[word] += memories[name].address
    rounded = np.empty(threads * int(table[MatvecWord.ROUNDED_STRIDE]) + _LINE, np.uint8)
    table[MatvecWord.ROUNDED] = -(-address_of(rounded) // _LINE) * _LINE
    return MachineCall(_compile_entry(kernel, target), address_of(table), threads, (table, rounded, dict(memories)))
