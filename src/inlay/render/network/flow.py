"""The data flow of a plan as marks and wires, with their texts.

A `Mark` is a box of the picture, a `Wire` an edge between two boxes. Inputs, outputs and steps are marks. A view, or a
concatenation without a copy, is no step but has a mark too, so that the picture shows the whole network. Marks are in
topological order. A title fits in its box; the tooltip (`about`) has the details.

>>> dims_text((1, 64, 56, 56))
'1x64x56x56'
>>> format_name(MemoryDesc((1, 64, 56, 56), "f32", "nChw16c")), format_name(MemoryDesc((2, 3), "f32", "ab"))
('aBcd16b', 'plain')
>>> format_name(MemoryDesc((1, 64, 56, 56), "bf16", "nhwc"))
'bf16 acdb'
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

import numpy as np

from inlay.descriptor import MemoryDesc
from inlay.graph.network import Subgraph, Tensor
from inlay.graph.op_graph import BroadcastView, Op, PermuteView, SubmemoryView
from inlay.graph.planned_program import PlannedProgram
from inlay.graph.program import Buffer, Step
from inlay.graph.step_texts import prepend_type
from inlay.layout import Dims
from inlay.layout.axis import LETTERS

ROW_MAJOR = "plain"
"""The format of tensors that are row-major, whatever the number of axes."""


def dims_text(dims: Dims) -> str:
    """Return dims as text; a scalar has none."""
    return "x".join(map(str, dims)) or "scalar"


def _extents_text(tensor: Tensor) -> str:
    """Return the dims of a tensor as text, with `?` for each that depends on the data of a run."""
    return "x".join(str(n or "?") for n in tensor.dims) if tensor.is_dynamic else dims_text(tensor.dims)


def format_name(desc: MemoryDesc | None) -> str:
    """Return the format as a tag, after the type if that is not f32.

    A part of a concatenation, whose strides are those of the whole, has the tag of the whole.
    """
    if desc is None or desc.ndims == 0:
        return ROW_MAJOR
    tag = desc.tag or _tag_of_part(desc)
    return prepend_type(desc, ROW_MAJOR if tag == LETTERS[: desc.ndims] else tag)


def _tag_of_part(desc: MemoryDesc) -> str:
    """The tag that a tensor of these strides would have if nothing else lay between its elements."""
    if desc.kind != "blocked":
        return "opaque"
    blocked = {axis for axis, _ in desc.inner_blocks}
    order = sorted(range(desc.ndims), key=lambda axis: (-desc.strides[axis], axis))
    outer = "".join(LETTERS[axis].upper() if axis in blocked else LETTERS[axis] for axis in order)
    return outer + "".join(f"{block}{LETTERS[axis]}" for axis, block in desc.inner_blocks)


def step_title(plan: PlannedProgram, step: Step) -> str:
    """Return the title of a step: `convolution 3x3 + sum + relu`."""
    if isinstance(step.node, Subgraph):
        return _subgraph_title(step.node)
    if step.node is not None and step.kind == "reference":
        return step.node.operator
    ops = {op.name: op for op in plan.graph.ops}
    found = [ops[name] for name in step.ops if name in ops]
    return " + ".join([_head(step), *map(_follower, found[1:])])


_MOST_NAMED = 3  # operators in a title


def _subgraph_title(subgraph: Subgraph) -> str:
    """Return the operators of a subgraph, each once: `Loop + NonZero`."""
    operators = list(dict.fromkeys(node.operator for node in subgraph.nodes))
    more = ["\N{HORIZONTAL ELLIPSIS}"] if len(operators) > _MOST_NAMED else []
    return " + ".join([*operators[:_MOST_NAMED], *more])


def _head(step: Step) -> str:
    """Return the kind of a step, with its window or algorithm."""
    operation = step.operation
    if operation is None:
        return step.kind.replace("_", " ")
    algorithm = str(operation.parameters.get("algorithm", ""))
    match step.kind:
        case "convolution" | "deconvolution":
            weights = operation.descs["weights"].dims
            return f"{step.kind} {dims_text(weights[2 - len(operation.descs['src'].dims) :])}"
        case "pooling":
            return f"{algorithm.split('_')[0]} pooling {_window(operation.parameters.get('kernel'))}".rstrip()
        case "eltwise" | "binary" | "reduction":
            return algorithm.replace("_", " ")
        case kind:
            return kind.replace("_", " ")


def _window(kernel: object) -> str:
    """Return the extents of a window as text."""
    return dims_text(kernel) if isinstance(kernel, tuple) else ""


def _follower(op: Op) -> str:
    """Return the name of a fused operation."""
    name = op.parameters.get("algorithm", op.kind) if op.kind in ("eltwise", "binary") else op.kind
    return str(name).replace("_", " ")


def about_step(plan: PlannedProgram, step: Step) -> str:
    """Return the details of a step, a line for each."""
    return "\n".join(_about_step(plan, step))


def _about_step(plan: PlannedProgram, step: Step) -> Iterator[str]:
    """Yield the lines of the tooltip of a step."""
    yield step_title(plan, step) if step.kind != "reorder" else step.name
    if step.ops:
        yield " + ".join(step.ops)
    yield f"{step.impl or step.kind}, {step.ms:.3f} ms, {step.nbytes / 1e6:.2f} MB"
    for argument, name in (*step.reads.items(), *step.writes.items()):
        yield f"{argument}: {about_buffer(plan, name)}"
    if step.why:
        yield step.why
    if step.without is not None:
        yield f"without it the best plan takes {step.without:.3f} ms more"


def about_buffer(plan: PlannedProgram, name: str) -> str:
    """A tensor, its dims and its format."""
    buffer = plan.program.buffers[name]
    tensor = plan.graph.tensors[buffer.tensor]
    form = "row-major" if buffer.desc is None else buffer.desc.tag or f"{format_name(buffer.desc)} in a larger one"
    if tensor.dtype == np.float32 and buffer.desc is not None and buffer.desc.tag:
        form = prepend_type(buffer.desc, form)  # the plan stores it in another type than its own
    return f"{buffer.tensor}, {_extents_text(tensor)} of {tensor.dtype}, {form}"


Shape: TypeAlias = Literal["input", "output", "step", "reference", "reorder", "view"]


@dataclass(frozen=True, slots=True)
class Mark:
    """Something to draw."""

    shape: Shape
    """Shape of the mark."""
    title: str
    """Its first line."""
    note: str
    """Its second line, quieter."""
    about: str
    """All there is to say, for those who point at it."""
    ms: float | None = None
    """Run time in milliseconds; None if the mark is no step."""
    formats: tuple[str, str] | None = None
    """Source and destination format of a reorder."""


@dataclass(frozen=True, slots=True)
class Wire:
    """A tensor in one format, from the mark that makes it to those that read it."""

    source: int
    """Mark at which the link begins: an index of `Flow.marks`."""
    targets: tuple[int, ...]
    """Marks at which it ends: indices of `Flow.marks`, each once and greater than `source`."""
    format: str
    """Its format, as the legend calls it."""
    about: str
    """All there is to say."""
    buffer: str
    """Name of the buffer that flows there."""


@dataclass(frozen=True, slots=True)
class Flow:
    """Marks and wires."""

    marks: tuple[Mark, ...]
    """Each after those that lead to it."""
    wires: tuple[Wire, ...]
    """One for each buffer that is read."""
    formats: Mapping[str, int]
    """Each format, and how many wires have it, the most frequent first."""


def flow_of(plan: PlannedProgram) -> Flow:
    """Return the data flow of `plan`.

    Post-condition: every step is one mark, and each buffer that it reads is a wire to it.
    """
    tracing = _Tracing(plan)
    program = plan.program
    for tensor, name in program.inputs.items():
        its = plan.graph.tensors[tensor]
        mark = Mark("input", _input_title(its), "", about_buffer(plan, name))
        tracing.made[name] = tracing.add(mark, ())
    for step in program.steps:
        target = tracing.add(_step_mark(plan, step), step.reads.values())
        tracing.made.update(dict.fromkeys(step.writes.values(), target))
    for tensor, name in program.outputs.items():
        tracing.add(Mark("output", _input_title(plan.graph.tensors[tensor]), "", about_buffer(plan, name)), (name,))
    wires = tuple(tracing.wires())
    counts = Counter(wire.format for wire in wires)
    formats = dict(sorted(counts.items(), key=lambda pair: (-pair[1], pair[0])))
    return Flow(tuple(tracing.marks), wires, formats)


def _input_title(tensor: Tensor) -> str:
    """Return name and dims of an input."""
    return f"{tensor.name} {_extents_text(tensor)}"


def _step_mark(plan: PlannedProgram, step: Step) -> Mark:
    """Return the mark that draws a step."""
    about = about_step(plan, step)
    if step.kind == "reorder":
        src, dst = (plan.program.buffers[name] for name in (step.reads["src"], step.writes["dst"]))
        formats = format_name(src.desc), format_name(dst.desc)
        return Mark("reorder", "reorder", f"{formats[0]} \N{RIGHTWARDS ARROW} {formats[1]}", about, step.ms, formats)
    is_reference = step.kind == "reference" or step.impl == "reference"
    computer = "ONNX Runtime" if isinstance(step.node, Subgraph) else "NumPy" if is_reference else step.impl
    note = f"{step.ops[0] if step.ops else step.name} \N{MIDDLE DOT} {computer}"
    return Mark("reference" if is_reference else "step", step_title(plan, step), note, about, step.ms)


class _Tracing:
    """Marks so far, which mark made each buffer, and which read it."""

    def __init__(self, plan: PlannedProgram) -> None:
        self.plan = plan
        self.marks: list[Mark] = []
        self.made: dict[str, int] = {}
        self._read: dict[tuple[int, str], list[int]] = {}
        self._makers = {tensor: op for op in plan.graph.ops for tensor in op.writes.values()}
        self._readers = Counter(tensor for op in plan.graph.ops for tensor in op.reads.values())
        self._of_tensor: dict[str, list[Buffer]] = {}
        for buffer in plan.program.buffers.values():
            self._of_tensor.setdefault(buffer.tensor, []).append(buffer)

    def add(self, mark: Mark, reads: Iterable[str]) -> int:
        """A new mark that reads these buffers; its index."""
        origins = [(self._origin(name), name) for name in dict.fromkeys(reads)]
        target = len(self.marks)
        self.marks.append(mark)
        for origin in origins:
            self._read.setdefault(origin, []).append(target)
        return target

    def wires(self) -> Iterator[Wire]:
        """Links between marks."""
        for (source, name), targets in self._read.items():
            form = format_name(self.plan.program.buffers[name].desc)
            yield Wire(source, tuple(targets), form, about_buffer(self.plan, name), name)

    def _origin(self, name: str) -> int:
        """Return the mark that makes a buffer; a new one if the buffer is a view of bytes that are written already."""
        if name in self.made:
            return self.made[name]
        buffer = self.plan.program.buffers[name]
        place = buffer.base, buffer.offset
        others = [b for b in self._of_tensor[buffer.tensor] if b.name in self.made and (b.base, b.offset) == place]
        if others:
            self.made[name] = self.made[others[0].name]
        else:
            ops = self._chain(self._makers[buffer.tensor], buffer.base)
            names = " + ".join(op.name for op in ops)
            mark = Mark("view", _view_title(ops), "", f"{names}, no copy\n{about_buffer(self.plan, name)}")
            self.made[name] = self.add(mark, self._sources(ops[0], buffer))
        return self.made[name]

    def _chain(self, op: Op, base: str) -> list[Op]:
        """Return `op`, preceded by the views that only lead to it; a concatenation is returned by itself.

        The chain begins after a tensor that a step, such as a reorder, writes into `base`.
        """
        ops = [op]
        while ops[0].kind == "view" and self._readers[source := ops[0].reads["src"]] == 1:
            before = self._makers.get(source)
            is_written = any(b.base == base and b.name in self.made for b in self._of_tensor.get(source, ()))
            if before is None or before.kind != "view" or source in self.plan.program.outputs or is_written:
                break
            ops.insert(0, before)
        return ops

    def _sources(self, op: Op, result: Buffer) -> Iterator[str]:
        """Yield one buffer for each input of a view or concatenation, preferably one that is stored in the result.

        The bytes of `result` are those of the view, or of a view of it. A tensor that is concatenated with itself has a
        buffer for each part of the result.
        """
        for tensor, offset in zip(op.reads.values(), self._part_offsets(op, result), strict=True):
            found = self._of_tensor.get(tensor, [])
            inside = [buffer for buffer in found if buffer.base == result.base]
            parts = [buffer for buffer in inside if buffer.offset == offset]
            if found:
                candidates = [*parts, *inside]
                yield next((b.name for b in candidates if b.name in self.made), (candidates or found)[0].name)
            elif tensor in self._makers:
                yield from self._sources(self._makers[tensor], result)

    def _part_offsets(self, op: Op, result: Buffer) -> Iterator[int | None]:
        """Yield the byte offset in `result.base` of each input of a concatenation; None where it is not known."""
        whole = next((b for b in self._of_tensor.get(op.writes["dst"], []) if b.base == result.base), None)
        axis, start = op.parameters.get("axis"), 0
        for tensor in op.reads.values():
            extent = self.plan.graph.tensors[tensor].dims[axis] if isinstance(axis, int) else 0
            if whole is None or whole.desc is None or not isinstance(axis, int) or op.kind != "concat" or not extent:
                yield None
                continue
            yield whole.offset + whole.desc.byte_offset([start * (i == axis) for i in range(whole.desc.ndims)])
            start += extent


def _view_title(ops: Sequence[Op]) -> str:
    """Return the operations that need no step."""
    if ops[0].kind != "view":
        return ops[0].kind
    kinds = {PermuteView: "transpose", SubmemoryView: "part", BroadcastView: "broadcast"}
    return " + ".join(dict.fromkeys(kinds.get(type(move), "reshape") for op in ops for move in op.transforms)) or "same"
