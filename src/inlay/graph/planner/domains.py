"""Which formats each tensor of a plan may have, its domain, and in which of these each operation is tried.

Domains are propagated until nothing is new, at most `MOST` formats for each tensor; those that came first stay:

    plain                      always, first
    by kind                    channels last and in blocks, where convolutions and what goes with them read or write
    by the engine              what it answers to `any`
    by neighbors               the same tag through element-wise operations, pooling, normalization, concatenation
    by views                   what a reshape or transpose makes of a format, forward and backward

`Assignments` tries operations in combinations of these, named by argument; constants appear where their format is a
choice:

    with weights       the engine's own answer, each format alike in source and destination, from plain to each for
                       images of few channels (`nchw` to `nChw16c`, a stem), each to plain where axes differ in number
    recurrent          the engine's own answer, plain
    other kinds        each format that may arrive, and the same for what is written; other sources the same, or plain
"""

from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice, product
from typing import TypeAlias

from inlay.graph.costs.paces import blocks
from inlay.graph.network import Tensor
from inlay.graph.op_graph import Op, OpGraph
from inlay.graph.planner.formats import NO_FORMAT, Format, blocked, channels_last
from inlay.graph.planner.prices import Prices
from inlay.layout import Dims
from inlay.primitives.rules import RECURRENT, WEIGHTED

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


ArgumentFormats: TypeAlias = dict[str, Format]
"""A format for each argument."""

FEW_CHANNELS = 8
"""Below this many channels of an image its format matters little to a convolution, the one it writes much."""
MOST_PRODUCTS = 32
"""Formats of a matrix product that are tried."""


class Assignments:
    """Formats to try, given those that tensors may have."""

    def __init__(self, graph: OpGraph, domains: Mapping[str, Domain], prices: Prices) -> None:
        """For the operations of `graph`."""
        self.graph, self.domains, self.prices, self.formats = graph, domains, prices, prices.formats

    def of(self, op: Op) -> Iterator[ArgumentFormats]:
        """The formats to try for an operation; some may come twice.

        Nothing where a tensor has no descriptor.
        """
        choices = {name: self.choices(tensor) for name, tensor in (*op.reads.items(), *op.writes.items())}
        if not all(choices.values()):
            return iter(())
        # A tensor that is read twice has one format.
        return (found for found in self._tried(op, choices) if _agrees(op, found))

    def _tried(self, op: Op, choices: Mapping[str, list[Format]]) -> Iterator[ArgumentFormats]:
        if op.kind in RECURRENT:
            return self._recurrent(op, choices)
        if op.kind == "matmul" or (op.kind in WEIGHTED and "src" not in choices):
            return self._products(choices)
        if op.kind in WEIGHTED:
            return self._weighted(op, choices)
        return self._limited(op, choices)

    def choices(self, tensor: str) -> list[Format]:
        """The formats that a tensor may have, the plain one first."""
        return [number for number in self.domains[tensor] if number]

    def like(self, number: Format, tensor: str) -> Format:
        """The format of the same tag for `tensor`, if that may have it."""
        data_type = self.formats.type_of(self.graph.tensors[tensor].dtype)
        found = self.formats.like(number, self.graph.tensors[tensor].dims, data_type) if data_type else NO_FORMAT
        return found if found in self.domains[tensor] else NO_FORMAT

    def operands(self, op: Op, argument: str, beside: Format) -> list[Format]:
        """The formats to try for one operand of an operation beside another of format `beside`.

        The same format alone where dims are equal, if there is one; else that and the plain one.
        """
        if argument in op.constants:
            return self._constants(op, argument, beside)
        tensor = op.reads[argument]
        same, plain = self.like(beside, tensor), self.choices(tensor)[0]
        if not same:
            return [plain]
        return [same] if same == plain or self.formats[same].dims == self.formats[beside].dims else [same, plain]

    def _constants(self, op: Op, argument: str, beside: Format) -> list[Format]:
        array = op.constants[argument]
        data_type = self.formats.type_of(array.dtype)
        if data_type is None or not array.ndim:
            return []
        plain = self.formats.tagged(array.shape, data_type, None)
        same = self.formats.like(beside, array.shape, data_type)
        return [plain, same] if same and same != plain else [plain]

    def _recurrent(self, op: Op, choices: Mapping[str, list[Format]]) -> Iterator[ArgumentFormats]:
        natural = self.prices.natural(op, self.graph.tensors)
        if natural.keys() == choices.keys() and all(number in choices[name] for name, number in natural.items()):
            yield dict(natural)
        yield {name: found[0] for name, found in choices.items()}

    def _products(self, choices: Mapping[str, list[Format]]) -> Iterator[ArgumentFormats]:
        for formats in islice(product(*choices.values()), MOST_PRODUCTS):
            yield dict(zip(choices, formats, strict=True))

    def _weighted(self, op: Op, choices: Mapping[str, list[Format]]) -> Iterator[ArgumentFormats]:
        (written,) = op.writes
        natural = self.prices.natural(op, self.graph.tensors)
        rest = {name: found[0] for name, found in choices.items() if name not in ("src", written)}
        for src, dst in self._pairs(choices["src"], op.writes[written], natural.get("src", 0), natural.get(written, 0)):
            yield {"src": src, **rest, written: dst}

    def _pairs(
        self, sources: Sequence[Format], written: str, src: Format, dst: Format
    ) -> Iterator[tuple[Format, Format]]:
        """Formats of an image and of what is made of it; `src` and `dst` are the engine's own."""
        results = self.choices(written)
        if src in sources and dst in results:
            yield src, dst
        for source in sources:
            same = self.like(source, written)
            if same:
                yield source, same
            if not same or (source == sources[0] and self.formats[source].dims[1] < FEW_CHANNELS):
                yield from ((source, other) for other in results)

    def _limited(self, op: Op, choices: Mapping[str, list[Format]]) -> Iterator[ArgumentFormats]:
        main = next((name for name in ("src", "src_0", *op.reads) if name in op.reads), None)
        if main is None:
            return
        for src in choices[main]:
            written = {name: self.like(src, tensor) or choices[name][0] for name, tensor in op.writes.items()}
            others = [name for name in (*op.reads, *op.constants) if name != main and _is_operand(op, name)]
            for formats in product(*(self.operands(op, name, src) for name in others)):
                yield {main: src, **dict(zip(others, formats, strict=True)), **written}


def _is_operand(op: Op, name: str) -> bool:
    """Whether the format of an argument is a choice: statistics, scales and weights that are constant are laid out."""
    return name in op.reads or name.startswith("src_")


def _agrees(op: Op, formats: ArgumentFormats) -> bool:
    found: ArgumentFormats = {}
    return all(found.setdefault(tensor, formats[name]) == formats[name] for name, tensor in op.reads.items())
