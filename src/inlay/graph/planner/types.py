"""Data types of the arguments of an operation: the combinations in which it is tried.

    with weights                 the sources in a narrow type, the result in the same type or in f32
    softmax, layer
    normalization                source and result in a narrow type or f32 each
    binary                       all in a narrow type; or the second source in f32
    other element-wise kinds,
    pooling, reductions          all in a narrow type
    all else                     the type of each tensor in the graph

A conversion between f32 and a narrow type in which its f32 side may be stored is a view (`find_views`): both sides are
then the same bytes, and what differs in format is reordered and converted at once.

Tensors of other types than f32, and values of scales and zero points, keep their types. So do constants: weights get
the type of the source beside them (`operation_of`), others stay as they are.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from itertools import product

from inlay.data_type import as_data_type
from inlay.graph.op_graph import Op, OpGraph
from inlay.graph.precision import is_conversion_view
from inlay.primitives.rules import WEIGHTED

Types = Mapping[str, str]
"""The data type of each argument of an operation."""
_F32 = "f32"


def list_type_combinations(op: Op, graph: OpGraph) -> tuple[Types, ...]:
    """Return the combinations of data types of the tensors that `op` reads and writes, by argument.

    The first has the type of each tensor in the graph. Further ones have a type of `OpGraph.storage_types` for some.

    Raises:
        InvalidArguments: a tensor has a type that no descriptor has.
    """
    arguments = {**op.reads, **op.writes}
    own = {argument: as_data_type(graph.tensors[name].dtype).name for argument, name in arguments.items()}
    combine = _COMBINATIONS.get(op.kind)
    if combine is None or not graph.storage_types:
        return (own,)
    values = op.attributes.value_names
    stored = {
        argument: graph.storage_types.get(name, ()) for argument, name in arguments.items() if argument not in values
    }
    free = [argument for argument in stored if own[argument] == _F32]
    found = [own]
    for narrow in sorted({data_type for types in stored.values() for data_type in types}):
        for changed in combine(op, free, narrow):
            is_allowed = all(narrow in stored[argument] for argument, one in changed.items() if one == narrow)
            if is_allowed and narrow in changed.values():
                found.append({**own, **changed})
    return tuple(found)


def find_views(graph: OpGraph) -> OpGraph:
    """Return the graph with a view in place of each conversion of which both sides may have one narrow type."""
    if not graph.storage_types:
        return graph
    ops = tuple(replace(op, kind="view") if is_conversion_view(op, graph) else op for op in graph.ops)
    return replace(graph, ops=ops)


def _uniform(op: Op, free: Iterable[str], narrow: str) -> Iterator[Types]:
    """Yield all arguments in a narrow type, if all floating-point ones may change and there are no others."""
    if set(free) == {*op.reads, *op.writes}.difference(op.attributes.value_names):
        yield dict.fromkeys(free, narrow)


def _binary(op: Op, free: Iterable[str], narrow: str) -> Iterator[Types]:
    """Yield all arguments in a narrow type, and all but the second source."""
    for types in _uniform(op, free, narrow):
        yield types
        if "src_1" in types and op.reads["src_1"] != op.reads.get("src_0"):
            yield {**types, "src_1": _F32}


def _widening(op: Op, free: Iterable[str], narrow: str) -> Iterator[Types]:
    """Yield the sources in a narrow type, with the results in that type and in f32."""
    sources = {argument: narrow for argument in free if argument in op.reads and argument != "bias"}
    for one in (narrow, _F32):
        yield {**sources, **{argument: one for argument in free if argument in op.writes}}


def _either(op: Op, free: Iterable[str], narrow: str) -> Iterator[Types]:
    """Yield each combination in which an argument has the narrow type."""
    names = tuple(free)
    for types in product((narrow, _F32), repeat=len(names)):
        yield dict(zip(names, types, strict=True))


_COMBINATIONS: Mapping[str, Callable[[Op, Iterable[str], str], Iterator[Types]]] = {
    **dict.fromkeys(WEIGHTED, _widening),
    **dict.fromkeys(
        (
            *("batch_normalization", "concat", "eltwise", "lrn", "pooling", "prelu", "reduction", "resampling"),
            *("shuffle", "sum"),
        ),
        _uniform,
    ),
    **dict.fromkeys(("softmax", "layer_normalization"), _either),
    "binary": _binary,
}
"""For each kind, the function that yields the types of arguments with a narrow type."""
