"""`StepTexts`: short texts on the steps of a program, for reports and profiles.

step                              label          formats
convolution of an image, ReLU     conv1 +relu    nchw -> nChw16c
inner product                     scores         ab
NumPy, of an array without a tag  top            array -> ab
convolution of bf16, result f32   conv2          bf16 nhwc -> nhwc
quantization                      x              nchw -> u8 nchw

The type of the elements precedes a format unless it is f32.
"""

import re

from inlay.descriptor import MemoryDesc
from inlay.graph.axis_roles import familiar_tag, find_axis_roles
from inlay.graph.op_graph import OpGraph
from inlay.graph.program import Program, Step

_PART_NUMBER = re.compile(r":\d+$")


def format_of_buffer(program: Program, graph: OpGraph, name: str) -> str:
    """Return the tag of a buffer's format; `strided` where it has none.

    It is `array` for an array without a descriptor, and for one whose dims depend on the data of a run.
    """
    buffer = program.buffers[name]
    if buffer.desc is None or graph.tensors[buffer.tensor].is_dynamic:
        return "array"
    return buffer.desc.tag or "strided"


def prepend_type(desc: MemoryDesc | None, tag: str) -> str:
    """Return a tag after the type of a buffer's elements; alone if the type is f32, or there is no descriptor.

    >>> [prepend_type(MemoryDesc((2, 3), data_type, "ab"), "ab") for data_type in ("bf16", "f32")]
    ['bf16 ab', 'ab']
    """
    return tag if desc is None or str(desc.data_type) == "f32" else f"{desc.data_type} {tag}"


class StepTexts:
    """Labels of the steps of a program, and formats in the letters of the axes' roles."""

    def __init__(self, program: Program, graph: OpGraph) -> None:
        """Find the roles of the axes of all tensors."""
        self._program, self._graph = program, graph
        self.roles = find_axis_roles(graph)
        """Letters of the axes of each tensor that has roles."""
        self.ops = {op.name: op for op in graph.ops}
        """The operations by name."""

    def tensor(self, step: Step) -> str:
        """Return the tensor that a reorder converts."""
        return self._program.buffers[step.reads["src"]].tensor

    def label(self, step: Step) -> str:
        """Return the name of a step's first operation, and what the others do; a reorder has that of its tensor."""
        if not step.ops:
            return f"reorder of {self.tensor(step)}" if step.kind == "reorder" else step.name
        # The first of the operations that a node became has its name, with a number.
        first = _PART_NUMBER.sub("", step.ops[0])
        return " +".join((first, *map(self._describe_op, step.ops[1:])))

    def _describe_op(self, name: str) -> str:
        """Return the algorithm or the kind of an operation; its name if the graph does not have it."""
        op = self.ops.get(name)
        return name if op is None else str(op.parameters.get("algorithm", op.kind)).removesuffix("_erf")

    def tag(self, buffer: str) -> str:
        """Return the format of a buffer, in the letters of its axes' roles, after its type if that is not f32."""
        found = self._program.buffers[buffer]
        has_tag = found.desc is not None and found.desc.tag is not None
        roles = self.roles.get(found.tensor) if has_tag else None
        tag = format_of_buffer(self._program, self._graph, buffer)
        return tag if tag == "array" else prepend_type(found.desc, familiar_tag(tag, roles))

    def reason(self, step: Step) -> str:
        """Return the reason for a reorder, with the format of its destination in the letters of its axes' roles."""
        buffer = step.writes["dst"]
        desc, tag = self._program.buffers[buffer].desc, format_of_buffer(self._program, self._graph, buffer)
        written = f"(?:{desc.data_type} )?{re.escape(tag)}" if desc is not None else re.escape(tag)
        return re.sub(rf" (reads|is returned in|stores it as) {written}", rf" \1 {self.tag(buffer)}", step.why)

    def formats(self, step: Step) -> str:
        """Return the formats that are read and written, without those of constants; one if all are the same."""
        reads, writes = (tuple(dict.fromkeys(map(self.tag, names.values()))) for names in (step.reads, step.writes))
        if reads == writes and len(reads) == 1:
            return reads[0]
        return f"{', '.join(reads) or 'nothing'} -> {', '.join(writes)}"
