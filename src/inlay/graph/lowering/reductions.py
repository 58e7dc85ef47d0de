"""Reductions: axes that become one element, and vanish where they are not kept.

The mean or the greatest over all of space is a pooling whose window is the image: it is fast in every format, a
reduction only where these axes are the last in memory. Axes of length 1 have nothing to reduce.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from inlay.graph.lowering.draft import Draft, Operand
from inlay.graph.lowering.elementwise import eltwise
from inlay.graph.lowering.pooling import whole_image
from inlay.graph.lowering.windows import MOST_SPATIAL_AXES
from inlay.layout import Dims


@dataclass(frozen=True, slots=True)
class _Way:
    """How an operator is computed."""

    algorithm: str
    """Of the reduction."""
    p: float = 0.0
    """Power of a norm."""
    pooling: str = ""
    """The pooling that does the same over space, if there is one."""
    alone: str = ""
    """The function of one element that it is, if it is not the element itself."""
    inputs_since: int = 18
    """From which opset on axes are an input."""


_WAYS = {
    "ReduceL1": _Way("norm_lp_sum", p=1.0, alone="abs"),
    "ReduceL2": _Way("norm_lp_sum", p=2.0, alone="abs"),
    "ReduceMax": _Way("max", pooling="max"),
    "ReduceMean": _Way("mean", pooling="avg_include_padding"),
    "ReduceMin": _Way("min"),
    "ReduceProd": _Way("mul"),
    "ReduceSum": _Way("sum", inputs_since=13),
    "ReduceSumSquare": _Way("norm_lp_power_p_sum", p=2.0, alone="square"),
}


def _rule(way: _Way) -> Callable[[Draft], Operand]:
    def rule(draft: Draft) -> Operand:
        src = draft.source(0)
        dims = draft.dims(src)
        axes = _axes(draft, way, len(dims))
        kept = tuple(1 if axis in axes else n for axis, n in enumerate(dims))
        return draft.reshaped(_reduced(draft, src, way, axes, kept), draft.result().dims)

    return rule


def _reduced(draft: Draft, src: str, way: _Way, axes: frozenset[int], kept: Dims) -> Operand:
    dims = draft.dims(src)
    if kept == dims:
        return eltwise(draft, src, way.alone) if way.alone else src
    if way.pooling and len(dims) <= 2 + MOST_SPATIAL_AXES and axes == frozenset(range(2, len(dims))):
        return whole_image(draft, src, way.pooling)
    return draft.put("reduction", {"src": src}, kept, algorithm=way.algorithm, p=way.p, eps=0.0)


def _axes(draft: Draft, way: _Way, count: int) -> frozenset[int]:
    """Which axes are reduced: those that are said, or all."""
    if draft.opset < way.inputs_since:
        said = draft.attribute("axes") or ()
    else:
        said = draft.constant(1, "list of axes").reshape(-1).tolist() if draft.given(1) else ()
    if not said and draft.attribute("noop_with_empty_axes", 0):
        return frozenset()
    return frozenset(axis % count for axis in said) or frozenset(range(count))


REDUCTIONS: Mapping[str, Callable[[Draft], Operand]] = {name: _rule(way) for name, way in _WAYS.items()}
"""The rule of each operator."""
