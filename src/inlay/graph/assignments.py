"""Which formats the head of a group is tried in.

    by weights         the engine's own answer, each format alike in source and destination, from plain to each for
                       images of few channels (`nchw` to `nChw16c`, a stem), each to plain where axes differ in number
    recurrent          the engine's own answer, plain
    by bandwidth       each format that may arrive, and the same for what is written; other sources the same, or plain

Everything is named by argument; constants appear where their format is a choice.
"""

from collections.abc import Iterator, Mapping, Sequence
from itertools import product
from typing import TypeAlias

from inlay.descriptor import MemoryDesc
from inlay.graph.domains import Domain
from inlay.graph.formats import Formats
from inlay.graph.op import Op, OpGraph
from inlay.graph.prices import Prices
from inlay.primitives.signatures import RECURRENT, WEIGHTED

Descs: TypeAlias = dict[str, MemoryDesc]
"""A format for each argument."""

FEW_CHANNELS = 8
"""Below this many channels of an image its format matters little to a convolution, the one it writes much."""
MOST_PRODUCTS = 32
"""Formats of a matrix product that are tried."""


class Assignments:
    """Formats to try, given those that tensors may have."""

    def __init__(self, graph: OpGraph, domains: Mapping[str, Domain], asked: Prices, formats: Formats) -> None:
        """For the operations of `graph`."""
        self.graph, self.domains, self.asked, self.formats = graph, domains, asked, formats

    def of(self, op: Op) -> Iterator[Descs]:
        """The formats to try for an operation; some may come twice.

        Nothing where a tensor has no descriptor.
        """
        choices = {name: self.choices(tensor) for name, tensor in (*op.reads.items(), *op.writes.items())}
        if not all(choices.values()):
            return iter(())
        # A tensor that is read twice has one format.
        return (descs for descs in self._tried(op, choices) if _agrees(op, descs))

    def _tried(self, op: Op, choices: Mapping[str, list[MemoryDesc]]) -> Iterator[Descs]:
        if op.kind in RECURRENT:
            return self._recurrent(op, choices)
        if op.kind == "matmul" or (op.kind in WEIGHTED and "src" not in choices):
            return self._products(choices)
        if op.kind in WEIGHTED:
            return self._weighted(op, choices)
        return self._limited(op, choices)

    def choices(self, tensor: str) -> list[MemoryDesc]:
        """The formats that a tensor may have, the plain one first."""
        return [desc for desc in self.domains[tensor] if desc is not None]

    def like(self, desc: MemoryDesc, tensor: str) -> MemoryDesc | None:
        """The format of the tag of `desc` for `tensor`, if that may have it."""
        data_type = self.formats.type_of(self.graph.tensors[tensor].dtype)
        if data_type is None:
            return None
        found = self.formats.like(desc, self.graph.tensors[tensor].dims, data_type)
        return found if found is not None and any(found is other for other in self.domains[tensor]) else None

    def operands(self, op: Op, argument: str, beside: MemoryDesc) -> list[MemoryDesc]:
        """The formats to try for one operand of an operation beside another of format `beside`.

        The same format alone where dims are equal, if there is one; else that and the plain one.
        """
        if argument in op.constants:
            return self._constants(op, argument, beside)
        tensor = op.reads[argument]
        same, plain = self.like(beside, tensor), self.choices(tensor)[0]
        if same is None:
            return [plain]
        return [same] if same is plain or same.dims == beside.dims else [same, plain]

    def _constants(self, op: Op, argument: str, beside: MemoryDesc) -> list[MemoryDesc]:
        array = op.constants[argument]
        data_type = self.formats.type_of(array.dtype)
        if data_type is None or not array.ndim:
            return []
        plain = self.formats.tagged(array.shape, data_type, None)
        same = self.formats.like(beside, array.shape, data_type)
        return [plain] if same is None or same is plain else [plain, same]

    def _recurrent(self, op: Op, choices: Mapping[str, list[MemoryDesc]]) -> Iterator[Descs]:
        natural = self.asked.natural(op, self.graph.tensors)
        if natural.keys() == choices.keys() and all(_has(choices[name], desc) for name, desc in natural.items()):
            yield dict(natural)
        yield {name: found[0] for name, found in choices.items()}

    def _products(self, choices: Mapping[str, list[MemoryDesc]]) -> Iterator[Descs]:
        for count, descs in enumerate(product(*choices.values())):
            if count == MOST_PRODUCTS:
                return
            yield dict(zip(choices, descs, strict=True))

    def _weighted(self, op: Op, choices: Mapping[str, list[MemoryDesc]]) -> Iterator[Descs]:
        (written,) = op.writes
        natural = self.asked.natural(op, self.graph.tensors)
        rest = {name: found[0] for name, found in choices.items() if name not in ("src", written)}
        for src, dst in self._pairs(choices["src"], op.writes[written], natural.get("src"), natural.get(written)):
            yield {"src": src, **rest, written: dst}

    def _pairs(
        self, sources: Sequence[MemoryDesc], written: str, src: MemoryDesc | None, dst: MemoryDesc | None
    ) -> Iterator[tuple[MemoryDesc, MemoryDesc]]:
        """Formats of an image and of what is made of it; `src` and `dst` are the engine's own."""
        results = self.choices(written)
        if src is not None and dst is not None and _has(sources, src) and _has(results, dst):
            yield src, dst
        for desc in sources:
            same = self.like(desc, written)
            if same is not None:
                yield desc, same
            if same is None or (desc is sources[0] and desc.dims[1] < FEW_CHANNELS):
                yield from ((desc, other) for other in results)

    def _limited(self, op: Op, choices: Mapping[str, list[MemoryDesc]]) -> Iterator[Descs]:
        main = next((name for name in ("src", "src_0", *op.reads) if name in op.reads), None)
        if main is None:
            return
        for src in choices[main]:
            written = {name: self.like(src, tensor) or choices[name][0] for name, tensor in op.writes.items()}
            others = [name for name in (*op.reads, *op.constants) if name != main and _is_operand(op, name)]
            for descs in product(*(self.operands(op, name, src) for name in others)):
                yield {main: src, **dict(zip(others, descs, strict=True)), **written}


def _is_operand(op: Op, name: str) -> bool:
    """Whether the format of an argument is a choice: statistics, scales and weights that are constant are laid out."""
    return name in op.reads or name.startswith("src_")


def _agrees(op: Op, given: Descs) -> bool:
    found: dict[str, MemoryDesc] = {}
    return all(found.setdefault(tensor, given[name]) is given[name] for name, tensor in op.reads.items())


def _has(descs: Sequence[MemoryDesc], desc: MemoryDesc) -> bool:
    return any(desc is other for other in descs)
