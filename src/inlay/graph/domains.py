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

from inlay.descriptor import MemoryDesc
from inlay.graph.costs.paces import blocks
from inlay.graph.formats import Formats, blocked, channels_last
from inlay.graph.network import Tensor
from inlay.graph.op import Op, OpGraph
from inlay.graph.prices import Prices
from inlay.layout import Dims
from inlay.primitives.signatures import RECURRENT, WEIGHTED

MOST = 5
"""Formats of one tensor."""

Domain: TypeAlias = tuple[MemoryDesc | None, ...]
"""Formats, the plain one first; None alone for a tensor without a descriptor."""

_IMAGES = frozenset(("convolution", "deconvolution", "pooling", "resampling", "lrn", "batch_normalization", "shuffle"))


def domains(graph: OpGraph, formats: Formats, asked: Prices, isa: str) -> dict[str, Domain]:
    """The formats of every tensor; blocks are as wide as the vectors of `isa`.

    Post-condition: each has its plain format, or one that plain becomes by a view, and at most `MOST`.
    """
    return _Spread(graph, formats).spread(asked, blocks(isa)[0])


class _Spread:
    """Domains while they grow."""

    def __init__(self, graph: OpGraph, formats: Formats) -> None:
        self.graph, self.formats = graph, formats
        self.found: dict[str, dict[int, MemoryDesc]] = {}
        self.waiting: deque[str] = deque()
        self.is_waiting: set[str] = set()
        self.passed_on: set[tuple[int, str, Dims | None]] = set()
        self.near: dict[str, list[Op]] = {name: [] for name in graph.tensors}
        for op in graph.ops:
            for name in {*op.reads.values(), *op.writes.values()}:
                self.near[name].append(op)

    def spread(self, asked: Prices, block: int) -> dict[str, Domain]:
        for name, tensor in self.graph.tensors.items():
            plain = self.formats.plain(tensor)
            self.found[name] = {}
            if plain is not None:
                self.add(name, plain)
        for op in self.graph.ops:
            if op.kind == "view":
                self.through(op, first=True)
        for op in self.graph.ops:
            self.seed(op, asked, block)
        while self.waiting:
            name = self.waiting.popleft()
            self.is_waiting.discard(name)
            for op in self.near[name]:
                self.through(op) if op.kind == "view" else self.along(op, name)
        return {name: tuple(found.values()) or (None,) for name, found in self.found.items()}

    def add(self, name: str, desc: MemoryDesc | None) -> None:
        found = self.found[name]
        if desc is not None and id(desc) not in found and len(found) < MOST:
            found[id(desc)] = desc
            if name not in self.is_waiting:
                self.is_waiting.add(name)
                self.waiting.append(name)

    def seed(self, op: Op, asked: Prices, block: int) -> None:
        if op.kind in _IMAGES:
            for name in (*op.reads.values(), *op.writes.values()):
                tensor = self.graph.tensors[name]
                if len(tensor.dims) > 2:
                    self.add_tag(name, tensor, channels_last(len(tensor.dims)))
                    if tensor.dims[1] % block == 0:
                        self.add_tag(name, tensor, blocked(len(tensor.dims), block))
        if op.kind in WEIGHTED or op.kind in RECURRENT:
            answered = asked.natural(op, self.graph.tensors)
            for argument, name in (*op.reads.items(), *op.writes.items()):
                self.add(name, answered.get(argument))

    def add_tag(self, name: str, tensor: Tensor, tag: str | None) -> None:
        data_type = self.formats.type_of(tensor.dtype)
        if tag is None or data_type is None or 0 in tensor.dims:
            return
        self.add(name, self.formats.tagged(tensor.dims, data_type, tag))

    def through(self, op: Op, first: bool = False) -> None:
        """What a view makes of formats; at `first` of the plain one only, which every plan can fall back to."""
        (src,), (dst,) = op.reads.values(), op.writes.values()
        for desc in list(self.found[src].values())[: 1 if first else None]:
            seen = self.formats.viewed(desc, op.moves)
            self.add(dst, seen[0] if seen else None)
        if first:
            return
        for desc in list(self.found[dst].values()):
            self.add(src, self.formats.origin(desc, op.moves, self.graph.tensors[src].dims))

    def along(self, op: Op, name: str) -> None:
        """The formats of one tensor for the others of a bandwidth-limited operation."""
        if op.kind in WEIGHTED or op.kind in RECURRENT or op.kind == "reference":
            return
        descs = [desc for desc in self.found[name].values() if self.is_new(op, desc)]
        for other in (*op.reads.values(), *op.writes.values()) if descs else ():
            tensor = self.graph.tensors[other]
            data_type = self.formats.type_of(tensor.dtype)
            if other != name and data_type is not None:
                for desc in descs:
                    self.add(other, self.formats.like(desc, tensor.dims, data_type))

    def is_new(self, op: Op, desc: MemoryDesc) -> bool:
        """Whether an operation has not passed on such a format yet; so one of many tensors does not do it for each.

        A format of partial blocks goes to tensors of the same dims alone.
        """
        tag = self.formats.tag(desc)
        if tag is None:
            return False
        is_partial = any(desc.dims[axis] % block for axis, block in desc.inner_blocks)
        key = (id(op), tag, desc.dims if is_partial else None)
        if key in self.passed_on:
            return False
        self.passed_on.add(key)
        return True
