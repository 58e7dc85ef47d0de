"""`StepTiming`: the measured time of a step, its prediction, and its formats in familiar tags.

step                              formats
convolution of an image           nchw -> nChw16c
inner product                     ab
NumPy, of an array without a tag  array -> ab
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from inlay.descriptor import MemoryDesc
from inlay.graph.network import Tensor
from inlay.graph.program import Program, Step
from inlay.measure.statistics import Spread

_ROLES = {4: "nchw", 5: "ncdhw"}
"""Role letters of the axes of an image and of a volume, by number of axes."""
_WINDOWED = frozenset({"convolution", "deconvolution", "pooling", "resampling", "batch_normalization", "lrn"})
"""Kinds of operations whose tensors of three axes are images with one spatial axis."""


@dataclass(frozen=True, slots=True, repr=False)
class StepTiming:
    """The measured time of a step beside its prediction."""

    step: Step
    """The step."""
    impl: str
    """Name of the implementation that ran."""
    formats: str
    """Formats of the tensors that it reads and writes, such as `nchw -> nChw16c`; one if all are equal."""
    time: Spread
    """Measured time in milliseconds: median and quartiles of the runs."""
    share: float
    """Share of the sum of the medians of all steps, from 0 to 1."""

    @property
    def ms(self) -> float:
        """Median of the measured times in milliseconds."""
        return self.time.median

    @property
    def predicted(self) -> float | None:
        """Predicted time in milliseconds; None for a step of a program that was not planned by costs."""
        return self.step.ms or None

    @property
    def name(self) -> str:
        """Names of the operations that the step computes, joined by ` + `; the step's own name if there are none."""
        return " + ".join(self.step.ops) or self.step.name

    def as_json(self) -> dict[str, Any]:
        """Return the figures of the step, by name; times are in milliseconds."""
        return {
            "name": self.step.name,
            "kind": self.step.kind,
            "ops": list(self.step.ops),
            "formats": self.formats,
            "impl": self.impl,
            "ms": self.ms,
            "low": self.time.low,
            "high": self.time.high,
            "predicted": self.predicted,
            "source": self.step.source,
            "share": self.share,
            "nbytes": self.step.nbytes,
        }

    def __repr__(self) -> str:
        """Return name, kind, formats, and both times."""
        predicted = "" if self.predicted is None else f", predicted {self.predicted:.3f} ms"
        return f"<{self.name}: {self.step.kind}, {self.formats}, {self.impl}; {self.ms:.3f} ms{predicted}>"


def describe_formats(program: Program, tensors: Mapping[str, Tensor], step: Step) -> str:
    """Return the formats that a step reads and writes, each once; only one if all are equal."""

    def tags(names: Iterable[str]) -> list[str]:
        """Return the tag of each buffer once."""
        return list(dict.fromkeys(_tag_of_buffer(program, tensors, name, step.kind) for name in names))

    reads, writes = tags(step.reads.values()), tags(step.writes.values())
    if reads == writes and len(reads) == 1:
        return reads[0]
    return f"{', '.join(reads) or 'nothing'} -> {', '.join(writes)}"


def _tag_of_buffer(program: Program, tensors: Mapping[str, Tensor], name: str, kind: str) -> str:
    """Return the familiar tag of a buffer; `array` where no descriptor says how a run stores it."""
    buffer = program.buffers[name]
    if buffer.desc is None or tensors[buffer.tensor].is_dynamic:
        return "array"
    return familiar_tag(buffer.desc, kind)


def familiar_tag(desc: MemoryDesc, kind: str = "") -> str:
    """Return the tag of a format in role letters if the tensor may be an image, else in abstract letters.

    Args:
        desc: the format.
        kind: kind of the operation that reads or writes it: tensors of three axes are images in a convolution.

    >>> familiar_tag(MemoryDesc((1, 16, 4, 4), "f32", "aBcd16b"))
    'nChw16c'
    >>> familiar_tag(MemoryDesc((8, 16), "f32", "ab"))
    'ab'
    >>> familiar_tag(MemoryDesc((1, 16, 4), "f32", "acb"), "convolution")
    'nwc'
    """
    tag = desc.tag
    if not tag:
        return "strided"
    roles = _ROLES.get(desc.ndims, "ncw" if desc.ndims == 3 and kind in _WINDOWED else "")
    letters = "abcde"[: len(roles)]
    return tag.translate(str.maketrans(letters + letters.upper(), roles + roles.upper())) if roles else tag
