"""Precision of a plan: the data types in which its f32 tensors may be stored.

    "model"          types that the file of the model declares, where the processor computes in them; else f32
    "f32"            f32 for every tensor
    "bf16", "f16"    this type wherever the processor computes in it
    "auto"           bf16 where the error against f32 stays within the tolerance

Arithmetic stays that of f32: a tensor in another type has rounded elements, and its kernels accumulate in f32.
`OpGraph.storage_types` has the types that `assign_storage_types` allows; the planner chooses among them by cost.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from math import inf
from numbers import Real
from types import MappingProxyType
from typing import Literal, TypeAlias, get_args

import numpy as np

from inlay.data_type import as_data_type
from inlay.errors import InvalidArguments, shown
from inlay.graph.costs.instruction_sets import isa_level
from inlay.graph.network import has_equal_bits, read_only
from inlay.graph.op_graph import Array, Op, OpGraph
from inlay.primitives.attributes import PLAIN
from inlay.primitives.rules import WEIGHTED

PrecisionName: TypeAlias = Literal["f32", "bf16", "f16", "auto", "model"]
"""The precision that a caller requests."""
NARROW_TYPES = frozenset(("bf16", "f16"))
"""Data types in which a tensor of f32 may be stored."""
DEFAULT_TOLERANCE = 0.01
"""Limit of the error of each output with precision `auto`, as part of its largest element."""
_WANTED: Mapping[str, str] = MappingProxyType({"f32": "f32", "bf16": "bf16", "f16": "f16", "auto": "bf16"})
_FIRST_ISA: Mapping[str, str] = MappingProxyType({"bf16": "AVX512_CORE_BF16", "f16": "AVX512_CORE_FP16"})
_F32 = np.dtype(np.float32)


@dataclass(frozen=True, slots=True)
class PrecisionRequest:
    """The precision of a plan, as its caller requests it.

    >>> PrecisionRequest("bf16").require_valid()
    >>> PrecisionRequest("half").require_valid()
    Traceback (most recent call last):
        ...
    inlay.errors.InvalidArguments: precision is 'half': give one of f32, bf16, f16, auto, model
    """

    name: PrecisionName = "model"
    """Types in which tensors may be stored: see the module."""
    tolerance: float | None = None
    """Limit of the error of each output, as part of its largest element; None for no limit, and 0.01 with `auto`."""
    keep_f32: frozenset[str] = frozenset()
    """Names of operations that read and write f32 only."""

    @property
    def limit(self) -> float | None:
        """Limit of the error of each output, as part of its largest element; None if errors do not count."""
        if self.tolerance is not None:
            return float(self.tolerance)
        return DEFAULT_TOLERANCE if self.name == "auto" else None

    @property
    def penalties(self) -> dict[tuple[str, str], float]:
        """Infinite milliseconds for each operation of `keep_f32` in each narrow type."""
        return {(name, data_type): inf for name in sorted(self.keep_f32) for data_type in sorted(NARROW_TYPES)}

    def require_valid(self) -> None:
        """Check the request.

        Raises:
            InvalidArguments: there is no such precision, or the tolerance is no positive number or is for a precision
                without a choice of types.
        """
        name: object = self.name
        if not isinstance(name, str) or name not in get_args(PrecisionName):
            names = ", ".join(get_args(PrecisionName))
            raise InvalidArguments(f"precision is {shown(name)}: give one of {names}")
        limit: object = self.tolerance
        if limit is None:
            return
        if isinstance(limit, bool) or not isinstance(limit, Real) or not _is_positive(limit):
            raise InvalidArguments(f"tolerance is {shown(limit)}: give a positive number, such as 0.01")
        if self.name in ("f32", "model"):
            raise InvalidArguments(
                f"tolerance is {limit}, and precision {self.name} chooses no types by their error: leave it out, or "
                "give precision='auto'"
            )


def _is_positive(number: Real) -> bool:
    """Return whether a number is a positive, finite one as a float."""
    try:
        return 0 < float(number) < inf
    except OverflowError:
        return False


def supported_types(isa: str) -> frozenset[str]:
    """Return the narrow types in which a processor with this instruction set computes.

    >>> sorted(supported_types("AVX512_CORE_BF16")), sorted(supported_types("avx512_core"))
    (['bf16'], [])

    Raises:
        InvalidArguments: there is no such instruction set.
    """
    level = isa_level(isa)
    if isa.upper() == "AVX2_VNNI_2":  # it converts both types; larger sets without AVX512_BF16 do not
        return NARROW_TYPES
    return frozenset(name for name, first in _FIRST_ISA.items() if level >= isa_level(first))


def assign_storage_types(graph: OpGraph, declared: Mapping[str, str], request: PrecisionRequest, isa: str) -> OpGraph:
    """Return the graph with the types in which the request allows its f32 tensors to be stored.

    The types are those in which the processor computes. A tensor that only references use gets none. Inputs, outputs
    and results of references keep f32, and may be converted for their readers.

    Args:
        graph: the graph, in which all arithmetic is that of f32.
        declared: types of the model by tensor, as in `Network.declared_types`.
        request: the precision, which is valid.
        isa: instruction set that the plan is for.
    """
    supported = supported_types(isa)
    if request.name == "model":
        types = infer_declared(graph, declared)
    else:
        types = dict.fromkeys(graph.tensors, _WANTED[request.name])
    stored = {
        name: (types[name],)
        for name in _list_convertible(graph)
        if types.get(name) in supported and types[name] in NARROW_TYPES
    }
    return replace(graph, storage_types=stored) if stored else graph


def restrict_types(graph: OpGraph, isa: str) -> OpGraph:
    """Return the graph with those of its types of storage in which a processor with this instruction set computes."""
    supported = supported_types(isa)
    kept = {name: tuple(one for one in types if one in supported) for name, types in graph.storage_types.items()}
    return replace(graph, storage_types={name: types for name, types in kept.items() if types})


def is_conversion_view(op: Op, graph: OpGraph) -> bool:
    """Return whether an operation converts between f32 and a narrow type in which its f32 side may be stored."""
    if op.kind != "reorder" or op.attributes != PLAIN:
        return False
    src, dst = (graph.tensors[names[end]] for names, end in ((op.reads, "src"), (op.writes, "dst")))
    wide, narrow = (src, dst) if src.dtype == _F32 else (dst, src)
    stored = graph.storage_types.get(wide.name, ())
    return wide.dtype == _F32 and any(as_data_type(one).dtype == narrow.dtype for one in stored)


def _list_convertible(graph: OpGraph) -> Iterator[str]:
    """Yield the f32 tensors with axes that a primitive or a view of such a tensor uses, in the order of the graph."""
    used = {name for op in graph.ops if op.kind not in ("view", "reference") for name in _tensors_of(op)}
    views = [op for op in graph.ops if op.kind == "view"]
    for op in (*views, *reversed(views)):
        used.update(name for name in _tensors_of(op) if not used.isdisjoint(_tensors_of(op)))
    for name, tensor in graph.tensors.items():
        if tensor.dtype == _F32 and tensor.dims and name in used:
            yield name


def _tensors_of(op: Op) -> tuple[str, ...]:
    """Return the tensors that an operation reads and writes."""
    return *op.reads.values(), *op.writes.values()


def infer_declared(graph: OpGraph, declared: Mapping[str, str]) -> dict[str, str]:
    """Return the type of the model for each f32 tensor of a graph, also for tensors that the model does not have.

    Passes and lowering add tensors: such a tensor is narrow if the tensors before or after its operations are. A tensor
    that the model declares as f32 becomes narrow where a product with a narrow result reads it, or a view for such a
    product: there the model rounds it with a Cast.

    Args:
        graph: the graph.
        declared: types by tensor of the model, `f32` included.
    """
    if not NARROW_TYPES.intersection(declared.values()):
        return {}
    known = {name: declared[name] for name in graph.tensors if name in declared}
    before = _propagate_types(known, [(op.reads, op.writes) for op in graph.ops])
    after = _propagate_types(known, [(op.writes, op.reads) for op in reversed(graph.ops)])
    for name, tensor in graph.tensors.items():
        types = {before.get(name, ""), after.get(name, "")}
        if name not in known and tensor.dtype == _F32:
            known[name] = next(iter(sorted(types & NARROW_TYPES)), "f32")
    for op in reversed(graph.ops):
        narrow = sorted(NARROW_TYPES.intersection(known.get(name, "") for name in op.writes.values()))
        if narrow and (op.kind == "view" or op.kind in WEIGHTED):
            known |= dict.fromkeys((name for name in op.reads.values() if known.get(name) == "f32"), narrow[0])
    return known


def _propagate_types(
    known: Mapping[str, str], ends: Iterable[tuple[Mapping[str, str], Mapping[str, str]]]
) -> dict[str, str]:
    """Return types of tensors with those of unknown ones, from one end of each operation to the other.

    An unknown tensor gets the type of the tensors at the other end, if all that are known have the same.
    """
    found = dict(known)
    for sources, targets in ends:
        types = {found[name] for name in sources.values() if name in found}
        if len(types) == 1:
            found |= dict.fromkeys((name for name in targets.values() if name not in found), *types)
    return found


def narrow_constants(graph: OpGraph, declared: Mapping[str, str]) -> OpGraph:
    """Return the graph with constant weights in the narrow type of the model, if it has each of their elements.

    So they take two bytes an element in memory and in saved plans. Kernels get them in the type that they compute in.

    Args:
        graph: the graph, whose constants are f32.
        declared: types by tensor of the model, as in `Network.declared_types`.
    """
    types = sorted(NARROW_TYPES.intersection(declared.values()))
    return convert_weights(graph, lambda array: _narrowest(array, types)) if types else graph


def convert_weights(graph: OpGraph, convert: Callable[[Array], Array]) -> OpGraph:
    """Return the graph with converted arrays for the constant weights of its primitives; equal arrays stay one.

    `convert` returns the array itself to keep it.
    """
    converted: dict[int, Array] = {}

    def convert_op(op: Op) -> Op:
        exact = None if op.exact is None else replace(op.exact, ops=tuple(map(convert_op, op.exact.ops)))
        op = op if exact is None else replace(op, exact=exact)
        weights = op.constants.get("weights") if op.kind in WEIGHTED else None
        if weights is None or weights.dtype != _F32:
            return op
        if id(weights) not in converted:
            converted[id(weights)] = convert(weights)
        array = converted[id(weights)]
        return op if array is weights else replace(op, constants={**op.constants, "weights": array})

    return replace(graph, ops=tuple(map(convert_op, graph.ops)))


def _narrowest(array: Array, types: Sequence[str]) -> Array:
    """Return an array in the first of these types that has each of its elements; else the array itself."""
    for data_type in types:
        narrow = round_to(array, data_type)
        if has_equal_bits(narrow.astype(_F32), array):
            return narrow
    return array


def round_to(array: Array, data_type: str) -> Array:
    """Return the elements rounded to a narrow type, as a read-only array of that type.

    >>> round_to(np.float32([1.0, 1.001]), "bf16").tolist()
    [1.0, 1.0]
    """
    with np.errstate(over="ignore"):
        return read_only(np.asarray(array).astype(as_data_type(data_type).dtype))
