"""`StepTexts`: short texts on the steps of a program, for reports and profiles.

step                              label          formats
convolution of an image, ReLU     conv1 +relu    nchw -> nChw16c
convolution in bf16               conv2          bf16 nhwc
inner product                     scores         ab
NumPy, of an array without a tag  top            array -> ab
"""

import re

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


def type_of_buffer(program: Program, graph: OpGraph, name: str) -> str:
    """Return the data type in which a buffer is stored, such as `bf16`."""
    buffer = program.buffers[name]
    if buffer.desc is not None and buffer.desc.data_type is not None:
        return str(buffer.desc.data_type)
    return str(graph.tensors[buffer.tensor].dtype)


def add_type(data_type: str, tag: str) -> str:
    """Return a tag after its data type, which is left out for f32 and for an array without a format.

    >>> add_type("bf16", "nhwc"), add_type("f32", "nhwc"), add_type("int64", "array")
    ('bf16 nhwc', 'nhwc', 'array')
    """
    return tag if data_type == "f32" or tag == "array" else f"{data_type} {tag}"


class StepTexts:
    """Labels of the steps of a program, and formats in the letters of the axes' roles, after types other than f32."""

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
        """Return the format of a buffer in the letters of its axes' roles, after its data type if that is not f32."""
        data_type = type_of_buffer(self._program, self._graph, buffer)
        return add_type(data_type, self._bare_tag(buffer))

    def _bare_tag(self, buffer: str) -> str:
        """Return the format of a buffer, in the letters of its axes' roles."""
        found = self._program.buffers[buffer]
        has_tag = found.desc is not None and found.desc.tag is not None
        roles = self.roles.get(found.tensor) if has_tag else None
        return familiar_tag(format_of_buffer(self._program, self._graph, buffer), roles)

    def reason(self, step: Step) -> str:
        """Return the reason for a reorder, with the format of its destination in the letters of its axes' roles."""
        buffer = step.writes["dst"]
        tag, words = format_of_buffer(self._program, self._graph, buffer), step.why
        typed = f"{type_of_buffer(self._program, self._graph, buffer)} {tag}"
        for verb in ("reads", "is returned in", "stores it as"):
            for text in (typed, tag):  # a plan with a choice of types says the type, f32 too
                if f" {verb} {text}" in words:
                    words = words.replace(f" {verb} {text}", f" {verb} {self.tag(buffer)}")
                    break
        return words

    def formats(self, step: Step) -> str:
        """Return the formats that are read and written, without those of constants; one if all are the same."""
        reads, writes = (tuple(dict.fromkeys(map(self.tag, names.values()))) for names in (step.reads, step.writes))
        if reads == writes and len(reads) == 1:
            return reads[0]
        return f"{', '.join(reads) or 'nothing'} -> {', '.join(writes)}"
