"""Domains: the formats that each tensor of a plan may have, and the combinations that each operation is tried in.

A `Format` is the number of a descriptor in the table `Formats`; `NO_FORMAT`, 0, means that there is none. Domains are
propagated until no tensor gets another format. Each has at most `MOST` formats of the tensor's own type, and
`MOST_NARROW` of each further type in which it may be stored (`OpGraph.storage_types`), the first that were found:

    plain               always, first; for the result of a view, the view of the plain format
    by kind             channels last and in blocks, for the images that convolutions and related operations use; the
                        axis of a softmax innermost
    by the engine       the formats that it chooses for `any`
    by neighbors        the same tag, through element-wise operations, pooling, normalization, concatenation
    by views            the formats that a reshape or transpose makes of a format, forward and backward
    by slices           for a source of a concatenation that a reorder or a table lookup writes, its slices of the
                        result's formats

`FormatCombinations` yields the formats in which an operation is tried, by argument, for each combination of types of
`types.list_type_combinations`. Constants are included where their format is a choice:

    with weights        the engine's own formats; source and result with the same tag; a format of the source whose tag
                        the result cannot have, with every format of the result; and, if the source is an image of few
                        channels, its plain format with every format of the result (`nchw` to `nChw16c`)
    matrix products     the first `MOST_PRODUCTS` combinations of all formats
    recurrent           the engine's own formats, and plain ones
    reorders            all combinations, such as f32 in nchw to u8 in nhwc
    table lookups       the same tag; and a slice of a concatenation's result whose axes have the same order
    other kinds         each format of the first source with the same tag for results; other sources with that tag, or
                        plain
"""

from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice, product
from typing import TypeAlias

from inlay.graph.background import yield_to_runs
from inlay.graph.costs.kernel_models import blocks
from inlay.graph.network import Tensor
from inlay.graph.op_graph import Op, OpGraph
from inlay.graph.planner.cost_cache import CostCache
from inlay.graph.planner.formats import NO_FORMAT, Format, blocked, channels_last
from inlay.graph.planner.types import Types, list_type_combinations
from inlay.layout import Dims
from inlay.primitives.rules import RECURRENT, WEIGHTED

MOST = 5
"""Most formats of the own type of a tensor in its domain."""
MOST_NARROW = 3
"""Most formats of each further type of a tensor in its domain."""

Domain: TypeAlias = tuple[Format, ...]
"""Formats of a tensor, the plain one first; `NO_FORMAT` alone for a tensor without a descriptor."""

_WRITING_SLICES = ("reorder", "table_lookup")
"""Kinds that write rows of elements with gaps in between as fast as dense memory."""
_IMAGES = frozenset(("convolution", "deconvolution", "pooling", "resampling", "lrn", "batch_normalization", "shuffle"))


Tags: TypeAlias = Mapping[str, frozenset[tuple[str, str]]]
"""The tags that each tensor may have, each with a data type, by its name."""


def domains(graph: OpGraph, costs: CostCache, isa: str, tags: Tags | None = None) -> dict[str, Domain]:
    """Return the domain of every tensor; blocks are as wide as the vectors of `isa`.

    With `tags`, a domain has only formats with these tags, and formats without a tag.

    Post-condition: each begins with the plain format of the tensor's own type, or with a view of one.
    """
    widest, *_ = blocks(isa)
    return _DomainPropagation(graph, costs, tags).run(widest)


class _DomainPropagation:
    """Domains while formats are propagated, and the tensors whose new formats must still be passed on."""

    def __init__(self, graph: OpGraph, costs: CostCache, tags: Tags | None) -> None:
        self.graph, self.costs, self.formats, self.tags = graph, costs, costs.formats, tags
        self.found: dict[str, list[Format]] = {name: [] for name in graph.tensors}
        self.waiting: deque[str] = deque()
        self.is_waiting: set[str] = set()
        self.passed_on: set[tuple[int, str, str, Dims | None]] = set()
        self.types = {name: self._list_types(tensor) for name, tensor in graph.tensors.items()}
        self.near: dict[str, list[Op]] = {name: [] for name in graph.tensors}
        self.sliceable = {op.writes["dst"] for op in graph.ops if op.kind in _WRITING_SLICES}
        for op in graph.ops:
            for name in {*op.reads.values(), *op.writes.values()}:
                self.near[name].append(op)

    def run(self, block: int) -> dict[str, Domain]:
        """Propagate formats until no domain grows, and return the domains."""
        for name, tensor in self.graph.tensors.items():
            for data_type in self.types[name] if self.formats.plain(tensor) else ():
                self.add(name, self.formats.from_tag(tensor.dims, data_type, None))
        for op in self.graph.ops:
            if op.kind == "view":
                self.propagate_view(op, first=True)
        if self.tags is None:
            for op in self.graph.ops:
                self.seed(op, block)
        else:
            self.seed_tags(self.tags)
        while self.waiting:
            yield_to_runs()
            name = self.waiting.popleft()
            self.is_waiting.discard(name)
            for op in self.near[name]:
                self.propagate_view(op) if op.kind == "view" else self.propagate_same_tag(op, name)
        return {name: tuple(found) or (NO_FORMAT,) for name, found in self.found.items()}

    def _list_types(self, tensor: Tensor) -> tuple[str, ...]:
        """Return the data types that a tensor may have, its own first; none if no descriptor has its type."""
        own = self.formats.type_of(tensor.dtype)
        return () if own is None else (own, *self.graph.storage_types.get(tensor.name, ()))

    def add(self, name: str, fmt: Format) -> None:
        """Add a format to a domain that has room and may have it, and note that it must be passed on."""
        found = self.found[name]
        if fmt and fmt not in found and (not found or self.may_have(name, fmt)) and self.has_room(name, fmt):
            found.append(fmt)
            if name not in self.is_waiting:
                self.is_waiting.add(name)
                self.waiting.append(name)

    def may_have(self, name: str, fmt: Format) -> bool:
        """Return whether a tensor may have the type of a format, and its tag or the format has none."""
        data_type = self.formats.data_type(fmt)
        if data_type not in self.types[name]:
            return False
        tag = None if self.tags is None else self.formats.tag(fmt)
        return tag is None or self.tags is None or (tag, data_type) in self.tags.get(name, ())

    def has_room(self, name: str, fmt: Format) -> bool:
        """Return whether a domain has fewer formats of the type of a format than it may have."""
        data_type = self.formats.data_type(fmt)
        most = MOST if data_type == self.types[name][0] else MOST_NARROW
        return sum(self.formats.data_type(one) == data_type for one in self.found[name]) < most

    def seed_tags(self, tags: Tags) -> None:
        """Add the format with each tag to the tensor that may have it."""
        for name, tensor in self.graph.tensors.items():
            for tag, data_type in sorted(tags.get(name, ())):
                self.add_tag(name, tensor, tag, data_type)

    def seed(self, op: Op, block: int) -> None:
        """Add the formats by kind and by the engine to the tensors of an operation."""
        if op.kind in _IMAGES:
            for name in (*op.reads.values(), *op.writes.values()):
                tensor = self.graph.tensors[name]
                if len(tensor.dims) > 2:
                    self.add_tags(name, channels_last(len(tensor.dims)))
                    if tensor.dims[1] % block == 0:
                        self.add_tags(name, blocked(len(tensor.dims), block))
        if op.kind == "softmax":
            tensor, axis = self.graph.tensors[op.reads["src"]], op.parameters["axis"]
            assert isinstance(axis, int)
            self.add_tags(tensor.name, _innermost(len(tensor.dims), axis))
        if op.kind in WEIGHTED or op.kind in RECURRENT:
            for types in self.combinations_of_types(op):
                preferred = self.costs.preferred_formats(op, self.graph.tensors, types)
                for argument, name in (*op.reads.items(), *op.writes.items()):
                    self.add(name, preferred.get(argument, NO_FORMAT))

    def combinations_of_types(self, op: Op) -> tuple[Types, ...]:
        """Return the types of the arguments in which an operation is tried; none if a tensor has no descriptor."""
        names = (*op.reads.values(), *op.writes.values())
        return list_type_combinations(op, self.graph) if all(self.types[name] for name in names) else ()

    def add_tags(self, name: str, tag: str | None) -> None:
        """Add the format with this tag to the domain of a tensor, in each type that the tensor may have."""
        for data_type in self.types[name]:
            self.add_tag(name, self.graph.tensors[name], tag, data_type)

    def add_tag(self, name: str, tensor: Tensor, tag: str | None, data_type: str) -> None:
        """Add the format with this tag and type to the domain of a tensor that has elements."""
        if tag is not None and 0 not in tensor.dims:
            self.add(name, self.formats.from_tag(tensor.dims, data_type, tag))

    def propagate_view(self, op: Op, first: bool = False) -> None:
        """Add to the result the views of the source's formats, and to the source those whose views the result has.

        If `first`, only the views of the plain formats are added: every plan can fall back to them.
        """
        (src,), (dst,) = op.reads.values(), op.writes.values()
        plain = {self.formats.data_type(fmt): fmt for fmt in reversed(self.found[src])}
        for fmt in [fmt for fmt in self.found[src] if not first or fmt in plain.values()]:
            seen = self.formats.view(fmt, op.transforms)
            self.add(dst, seen[0] if seen else NO_FORMAT)
        if first:
            return
        for fmt in tuple(self.found[dst]):
            self.add(src, self.formats.view_source(fmt, op.transforms, self.graph.tensors[src].dims))

    def propagate_same_tag(self, op: Op, name: str) -> None:
        """Add new formats of one tensor, with the same tag, to the others of an operation without weights."""
        if op.kind in WEIGHTED or op.kind in RECURRENT or op.kind == "reference":
            return
        if op.kind == "concat" and name == op.writes["dst"]:
            self.propagate_slices(op)
        new = [fmt for fmt in self.found[name] if self.is_new(op, fmt)]
        for other in (*op.reads.values(), *op.writes.values()) if new else ():
            types = self.types[other]
            if other != name and types:
                for fmt in new:
                    data_type = self.formats.data_type(fmt)
                    like = data_type if data_type in types else types[0]
                    self.add(other, self.formats.like(fmt, self.graph.tensors[other].dims, like))

    def propagate_slices(self, op: Op) -> None:
        """Add to sources whose writers may leave gaps between elements their slices of the formats of the result."""
        axis, names = op.parameters["axis"], tuple(op.reads.values())
        assert isinstance(axis, int)
        if op.constants or self.sliceable.isdisjoint(names):
            return
        for whole in tuple(self.found[op.writes["dst"]]):
            parts = self.formats.slices(whole, [self.graph.tensors[name].dims for name in names], axis)
            for name, (part, _) in zip(names, parts or (), strict=False):
                if name in self.sliceable:
                    self.add(name, part)

    def is_new(self, op: Op, fmt: Format) -> bool:
        """Return whether an operation has not passed on such a format yet, and record that it does.

        Operations on many tensors thus pass on a tag once, not once for each tensor. A format with a partly filled
        block is passed on to tensors of the same dims only, so its dims count too.
        """
        desc, tag = self.formats[fmt], self.formats.tag(fmt)
        if tag is None:
            return False
        is_partial = any(desc.dims[axis] % block for axis, block in desc.inner_blocks)
        key = (id(op), tag, self.formats.data_type(fmt), desc.dims if is_partial else None)
        if key in self.passed_on:
            return False
        self.passed_on.add(key)
        return True


def _innermost(ndims: int, axis: int) -> str:
    """Return the tag of a dense format with one axis innermost, the others in their order.

    >>> _innermost(4, 1)
    'acdb'
    """
    letters = "abcdefghijkl"[:ndims]
    return letters[:axis] + letters[axis + 1 :] + letters[axis]


ArgumentFormats: TypeAlias = dict[str, Format]
"""The format of each argument of an operation."""

FEW_CHANNELS = 8
"""Number of channels of an image below which its format hardly matters to a convolution, but that of the result
does."""
MOST_PRODUCTS = 32
"""Most combinations of formats in which a matrix product is tried."""


class FormatCombinations:
    """The combinations of formats that each operation is tried in, given the domains of its tensors."""

    def __init__(self, graph: OpGraph, domains: Mapping[str, Domain], costs: CostCache) -> None:
        """Prepare combinations for the operations of `graph`."""
        self.graph, self.domains, self.costs, self.formats = graph, domains, costs, costs.formats

    def of(self, op: Op) -> Iterator[ArgumentFormats]:
        """Yield the combinations for an operation, by combinations of types; some may occur twice.

        There are none where a tensor has no descriptor. An operation that reads a tensor twice reads it in one format.
        """
        arguments = {**op.reads, **op.writes}
        if not all(map(self.choices, arguments.values())):
            return
        for types in list_type_combinations(op, self.graph):
            choices = {name: self.choices(tensor, types[name]) for name, tensor in arguments.items()}
            if all(choices.values()):
                yield from (found for found in self._generate(op, choices, types) if _is_consistent(op, found))

    def _generate(self, op: Op, choices: Mapping[str, list[Format]], types: Types) -> Iterator[ArgumentFormats]:
        """Yield the combinations by the rule of the operation's kind; all formats of `choices` have these types."""
        if op.kind in RECURRENT:
            return self._recurrent(op, choices)
        if op.kind == "cache_write":
            return self._cache_write(choices)
        if op.kind == "reorder":
            return self._reorders(op, choices)
        if op.kind == "table_lookup":
            return self._lookups(op, choices)
        if op.kind == "matmul" or (op.kind in WEIGHTED and "src" not in choices):
            return self._products(choices)
        if op.kind in WEIGHTED:
            return self._weighted(op, choices, types)
        return self._elementwise(op, choices)

    def choices(self, tensor: str, data_type: str | None = None) -> list[Format]:
        """Return the formats that a tensor may have, of one type if that is given, the plain one first."""
        return [fmt for fmt in self.domains[tensor] if fmt and data_type in (None, self.formats.data_type(fmt))]

    def like(self, fmt: Format, tensor: str, choices: Sequence[Format]) -> Format:
        """Return the format of `tensor` with the same tag, of the type of `choices`; `NO_FORMAT` if not among them."""
        if not choices:
            return NO_FORMAT
        data_type = self.formats.data_type(choices[0])
        found = self.formats.like(fmt, self.graph.tensors[tensor].dims, data_type)
        return found if found in choices else NO_FORMAT

    def choices_beside(self, tensor: str, fmt: Format) -> list[Format]:
        """Return the formats of a tensor that have the type of a format, or its own type if it cannot have that."""
        same = self.choices(tensor, self.formats.data_type(fmt))
        own = self.formats.type_of(self.graph.tensors[tensor].dtype)
        return same or self.choices(tensor, own)

    def operands(self, op: Op, argument: str, beside: Format, choices: Sequence[Format] | None = None) -> list[Format]:
        """Return the formats to try for one operand beside another in the format `beside`.

        They are the plain format if none has the same tag; the format with the same tag if dims are equal or it is
        plain itself; else both. They are among `choices`; if that is None, among those of the type of `beside`.
        """
        if argument in op.constants:
            return self._constants(op, argument, beside)
        tensor = op.reads[argument]
        choices = self.choices_beside(tensor, beside) if choices is None else choices
        same, plain = self.like(beside, tensor, choices), choices[0]
        if not same:
            return [plain]
        return [same] if same == plain or self.formats[same].dims == self.formats[beside].dims else [same, plain]

    def _constants(self, op: Op, argument: str, beside: Format) -> list[Format]:
        """Return the formats to try for a constant operand: plain, and with the same tag."""
        array = op.constants[argument]
        data_type = self.formats.type_of(array.dtype)
        if data_type is None or not array.ndim:
            return []
        plain = self.formats.from_tag(array.shape, data_type, None)
        same = self.formats.like(beside, array.shape, data_type)
        return [plain, same] if same and same != plain else [plain]

    def _recurrent(self, op: Op, choices: Mapping[str, list[Format]]) -> Iterator[ArgumentFormats]:
        """Yield the engine's own formats and the plain ones."""
        preferred = self.costs.preferred_formats(op, self.graph.tensors)
        if preferred.keys() == choices.keys() and all(fmt in choices[name] for name, fmt in preferred.items()):
            yield dict(preferred)
        yield {name: found[0] for name, found in choices.items()}

    def _cache_write(self, choices: Mapping[str, list[Format]]) -> Iterator[ArgumentFormats]:
        """Yield each format of the rows; the state has the plain format, in which sessions keep it."""
        for src in choices["src"]:
            yield {"src": src, "position": choices["position"][0], "dst": choices["dst"][0]}

    def _reorders(self, op: Op, choices: Mapping[str, list[Format]]) -> Iterator[ArgumentFormats]:
        """Yield all combinations of formats of source and result."""
        values = {name: choices[name][0] for name in op.attributes.value_names if name in op.reads}
        for src, dst in product(choices["src"], choices["dst"]):
            yield {"src": src, **values, "dst": dst}

    def _lookups(self, op: Op, choices: Mapping[str, list[Format]]) -> Iterator[ArgumentFormats]:
        """Yield what `_elementwise` yields, and results without a tag whose axes have the order of the source."""
        yield from self._elementwise(op, choices)
        for src, dst in product(choices["src"], choices["dst"]):
            order = self.formats.axis_order(src)
            if self.formats.tag(dst) is None and order is not None and order == self.formats.axis_order(dst):
                yield {"src": src, "dst": dst}

    def _products(self, choices: Mapping[str, list[Format]]) -> Iterator[ArgumentFormats]:
        """Yield the first `MOST_PRODUCTS` combinations of all formats of all tensors."""
        for formats in islice(product(*choices.values()), MOST_PRODUCTS):
            yield dict(zip(choices, formats, strict=True))

    def _weighted(self, op: Op, choices: Mapping[str, list[Format]], types: Types) -> Iterator[ArgumentFormats]:
        """Yield the combinations of an operation with constant weights."""
        (written,) = op.writes
        preferred = self.costs.preferred_formats(op, self.graph.tensors, types)
        rest = {name: found[0] for name, found in choices.items() if name not in ("src", written)}
        both = preferred.get("src", NO_FORMAT), preferred.get(written, NO_FORMAT)
        for src, dst in self._pairs(choices["src"], op.writes[written], choices[written], *both):
            yield {"src": src, **rest, written: dst}

    def _pairs(
        self, sources: Sequence[Format], written: str, results: Sequence[Format], src: Format, dst: Format
    ) -> Iterator[tuple[Format, Format]]:
        """Yield the formats of a source and a result; `src` and `dst` are those that the engine chooses for `any`.

        The plain format of an image of few channels is tried with all results, since it hardly matters to the kernel.
        """
        if src in sources and dst in results:
            yield src, dst
        for source in sources:
            same = self.like(source, written, results)
            if same:
                yield source, same
            if not same or (source == sources[0] and self.formats[source].dims[1] < FEW_CHANNELS):
                yield from ((source, other) for other in results)

    def _elementwise(self, op: Op, choices: Mapping[str, list[Format]]) -> Iterator[ArgumentFormats]:
        """Yield, for each format of the first source, the same tag for results and that or plain for other sources."""
        main = next((name for name in ("src", "src_0", *op.reads) if name in op.reads), None)
        if main is None:
            return
        for src in choices[main]:
            written = {n: self.like(src, tensor, choices[n]) or choices[n][0] for n, tensor in op.writes.items()}
            others = [name for name in (*op.reads, *op.constants) if name != main and _is_operand(op, name)]
            values = {name: choices[name][0] for name in op.attributes.value_names if name in op.reads}
            for formats in product(*(self.operands(op, name, src, choices.get(name)) for name in others)):
                yield {main: src, **dict(zip(others, formats, strict=True)), **values, **written}


def _is_operand(op: Op, name: str) -> bool:
    """Return whether the format of an argument is a choice; constant statistics and weights are packed.

    Values of scales and zero points are dense.
    """
    return name not in op.attributes.value_names and (name in op.reads or name.startswith("src_"))


def _is_consistent(op: Op, formats: ArgumentFormats) -> bool:
    """Return whether an operation reads each tensor in one format."""
    found: ArgumentFormats = {}
    return all(found.setdefault(tensor, formats[name]) == formats[name] for name, tensor in op.reads.items())
