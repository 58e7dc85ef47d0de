"""Data types of the arguments of an operation: the combinations in which it is tried."""

from collections.abc import Mapping

from inlay.data_type import as_data_type
from inlay.errors import Unimplemented
from inlay.graph.op_graph import Op, OpGraph

CHOOSES_TYPES = False
"""True if plans may store tensors in further types (`OpGraph.storage_types`); False if each has its own type."""


def list_type_combinations(op: Op, graph: OpGraph) -> tuple[Mapping[str, str], ...]:
    """Return the combinations of data types of the tensors that `op` reads and writes, by argument.

    The first has the type of each tensor in the graph.

    Raises:
        Unimplemented: a tensor may be stored in further types (`OpGraph.storage_types`).
        InvalidArguments: a tensor has a type that no descriptor has.
    """
    arguments = {**op.reads, **op.writes}
    if narrow := sorted(name for name in arguments.values() if name in graph.storage_types):
        raise Unimplemented(f"{op.name}: {narrow[0]} may be stored in further types: plan it without storage types")
    return ({argument: as_data_type(graph.tensors[name].dtype).name for argument, name in arguments.items()},)
