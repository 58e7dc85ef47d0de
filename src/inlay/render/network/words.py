"""Words on marks and edges of a plan: titles short enough for a box, and all there is to say for who points at it.

>>> dims_text((1, 64, 56, 56))
'1x64x56x56'
>>> format_name(MemoryDesc((1, 64, 56, 56), "f32", "nChw16c")), format_name(MemoryDesc((2, 3), "f32", "ab"))
('aBcd16b', 'plain')
"""

from collections.abc import Iterator

from inlay.descriptor import MemoryDesc
from inlay.graph.op import Op
from inlay.graph.plan import Plan
from inlay.graph.program import Step
from inlay.layout import Dims

ROW_MAJOR = "plain"
"""The format of tensors that are row-major, whatever the number of axes."""

_LETTERS = "abcdefghijkl"


def dims_text(dims: Dims) -> str:
    """Dims as people write them; a single number has none."""
    return "x".join(map(str, dims)) or "scalar"


def format_name(desc: MemoryDesc | None) -> str:
    """The format as a tag, whether or not the tensor lies among others, as a part of a concatenation does."""
    if desc is None or desc.ndims == 0:
        return ROW_MAJOR
    tag = desc.tag or _tag_of_part(desc)
    return ROW_MAJOR if tag == _LETTERS[: desc.ndims] else tag


def _tag_of_part(desc: MemoryDesc) -> str:
    """The tag that a tensor of these strides would have if nothing else lay between its elements."""
    if desc.kind != "blocked":
        return "opaque"
    blocked = {axis for axis, _ in desc.inner_blocks}
    order = sorted(range(desc.ndims), key=lambda axis: (-desc.strides[axis], axis))
    outer = "".join(_LETTERS[axis].upper() if axis in blocked else _LETTERS[axis] for axis in order)
    return outer + "".join(f"{block}{_LETTERS[axis]}" for axis, block in desc.inner_blocks)


def step_title(plan: Plan, step: Step) -> str:
    """What a step computes: `convolution 3x3 + sum + relu`."""
    if step.node is not None and step.kind == "reference":
        return step.node.operator
    ops = {op.name: op for op in plan.graph.ops}
    found = [ops[name] for name in step.ops if name in ops]
    return " + ".join([_head(step), *map(_follower, found[1:])])


def _head(step: Step) -> str:
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
    return dims_text(kernel) if isinstance(kernel, tuple) else ""


def _follower(op: Op) -> str:
    name = op.parameters.get("algorithm", op.kind) if op.kind in ("eltwise", "binary") else op.kind
    return str(name).replace("_", " ")


def about_step(plan: Plan, step: Step) -> str:
    """Everything about a step, a line for each thing."""
    return "\n".join(_about_step(plan, step))


def _about_step(plan: Plan, step: Step) -> Iterator[str]:
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


def about_buffer(plan: Plan, name: str) -> str:
    """A tensor, its dims and its format."""
    buffer = plan.program.buffers[name]
    tensor = plan.graph.tensors[buffer.tensor]
    form = "row-major" if buffer.desc is None else buffer.desc.tag or f"{format_name(buffer.desc)} in a larger one"
    return f"{buffer.tensor}, {dims_text(tensor.dims)} of {tensor.dtype}, {form}"
