"""Which formats each tensor of a plan may have: its domain.

    plain                      always, first
    by kind                    channels last and in blocks, where convolutions and what goes with them read or write
    by the engine              what it answers to `any`
    by neighbors               the same tag through element-wise operations, pooling, normalization, concatenation
    by views                   what a reshape or transpose makes of a format, forward and backward

Propagated until nothing is new, at most `MOST` for each tensor; those that came first stay.
"""

from collections import deque
from typing import TypeAlias

from inlay.graph.costs.paces import blocks
from inlay.graph.formats import NO_FORMAT, Format, blocked, channels_last
from inlay.graph.network import Tensor
from inlay.graph.op import Op, OpGraph
from inlay.graph.prices import Prices
from inlay.layout import Dims
from inlay.primitives.signatures import RECURRENT, WEIGHTED

MOST = 5
"""Formats of one tensor."""

Domain: TypeAlias = tuple[Format, ...]
"""Formats, the plain one first; `NO_FORMAT` alone for a tensor without a descriptor."""

_IMAGES = frozenset(("convolution", "deconvolution", "pooling", "resampling", "lrn", "batch_normalization", "shuffle"))


def domains(graph: OpGraph, prices: Prices, isa: str) -> dict[str, Domain]:
    """The formats of every tensor; blocks are as wide as the vectors of `isa`.

    Post-condition: each has its plain format, or one that plain becomes by a view, and at most `MOST`.
    """
    return _Spread(graph, prices).spread(blocks(isa)[0])


class _Spread:
    """Domains while they grow."""

    def __init__(self, graph: OpGraph, prices: Prices) -> None:
        self.graph, self.prices, self.formats = graph, prices, prices.formats
        self.found: dict[str, list[Format]] = {name: [] for name in graph.tensors}
        self.waiting: deque[str] = deque()
        self.is_waiting: set[str] = set()
        self.passed_on: set[tuple[int, str, Dims | None]] = set()
        self.near: dict[str, list[Op]] = {name: [] for name in graph.tensors}
        for op in graph.ops:
            for name in {*op.reads.values(), *op.writes.values()}:
                self.near[name].append(op)

    def spread(self, block: int) -> dict[str, Domain]:
        for name, tensor in self.graph.tensors.items():
            self.add(name, self.formats.plain(tensor))
        for op in self.graph.ops:
            if op.kind == "view":
                self.through(op, first=True)
        for op in self.graph.ops:
            self.seed(op, block)
        while self.waiting:
            name = self.waiting.popleft()
            self.is_waiting.discard(name)
            for op in self.near[name]:
                self.through(op) if op.kind == "view" else self.along(op, name)
        return {name: tuple(found) or (NO_FORMAT,) for name, found in self.found.items()}

    def add(self, name: str, number: Format) -> None:
        found = self.found[name]
        if number and number not in found and len(found) < MOST:
            found.append(number)
            if name not in self.is_waiting:
                self.is_waiting.add(name)
                self.waiting.append(name)

    def seed(self, op: Op, block: int) -> None:
        if op.kind in _IMAGES:
            for name in (*op.reads.values(), *op.writes.values()):
                tensor = self.graph.tensors[name]
                if len(tensor.dims) > 2:
                    self.add_tag(name, tensor, channels_last(len(tensor.dims)))
                    if tensor.dims[1] % block == 0:
                        self.add_tag(name, tensor, blocked(len(tensor.dims), block))
        if op.kind in WEIGHTED or op.kind in RECURRENT:
            answered = self.prices.natural(op, self.graph.tensors)
            for argument, name in (*op.reads.items(), *op.writes.items()):
                self.add(name, answered.get(argument, NO_FORMAT))

    def add_tag(self, name: str, tensor: Tensor, tag: str | None) -> None:
        data_type = self.formats.type_of(tensor.dtype)
        if tag is None or data_type is None or 0 in tensor.dims:
            return
        self.add(name, self.formats.tagged(tensor.dims, data_type, tag))

    def through(self, op: Op, first: bool = False) -> None:
        """What a view makes of formats; at `first` of the plain one only, which every plan can fall back to."""
        (src,), (dst,) = op.reads.values(), op.writes.values()
        for number in self.found[src][: 1 if first else None]:
            seen = self.formats.viewed(number, op.moves)
            self.add(dst, seen[0] if seen else NO_FORMAT)
        if first:
            return
        for number in tuple(self.found[dst]):
            self.add(src, self.formats.origin(number, op.moves, self.graph.tensors[src].dims))

    def along(self, op: Op, name: str) -> None:
        """The formats of one tensor for the others of a bandwidth-limited operation."""
        if op.kind in WEIGHTED or op.kind in RECURRENT or op.kind == "reference":
            return
        new = [number for number in self.found[name] if self.is_new(op, number)]
        for other in (*op.reads.values(), *op.writes.values()) if new else ():
            tensor = self.graph.tensors[other]
            data_type = self.formats.type_of(tensor.dtype)
            if other != name and data_type is not None:
                for number in new:
                    self.add(other, self.formats.like(number, tensor.dims, data_type))

    def is_new(self, op: Op, number: Format) -> bool:
        """Whether an operation has not passed on such a format yet; so one of many tensors does not do it for each.

        A format of partial blocks goes to tensors of the same dims alone.
        """
        desc, tag = self.formats[number], self.formats.tag(number)
        if tag is None:
            return False
        is_partial = any(desc.dims[axis] % block for axis, block in desc.inner_blocks)
        key = (id(op), tag, desc.dims if is_partial else None)
        if key in self.passed_on:
            return False
        self.passed_on.add(key)
        return True
