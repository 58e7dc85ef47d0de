"""Groups of adjacent operations that may be computed together, so that the dependences stay acyclic.

Operations that are not members of groups raise a stage: a member has the stage of what it reads, an operation outside
the stage after the last member that it depends on. Adjacent members of the same stage form a group. No path leaves a
group and returns to it, since a path through an operation outside ends at a later stage (loop fusion: Kennedy and
McKinley, "Maximizing Loop Parallelism and Improving Data Locality via Loop Fusion and Distribution", 1993).

Members move to the stage of their earliest reader. So a mask that all layers read joins the group of the first one.

>>> from inlay.graph.op_graph import Op
>>> def op(name: str, *reads: str) -> Op:
...     return Op(name, "reference", {f"src_{i}": read for i, read in enumerate(reads)}, {"dst_0": name})
>>> find_groups((op("a", "x"), op("b", "a"), op("c", "b"), op("d", "a", "c")), frozenset("acd"))
[[0], [2, 3]]
"""

import heapq
from collections.abc import Sequence, Set

from inlay.graph.op_graph import Op


def find_groups(ops: Sequence[Op], members: Set[str]) -> list[list[int]]:
    """Return the groups as lists of increasing indices of `ops`; `members` has the names of operations in groups.

    Each member is in one group. The groups are in the order of their first members.
    """
    stages = _find_stages(ops, members)
    writers = _writers(ops)
    roots = list(range(len(ops)))
    for i, op in enumerate(ops):
        for source in _producers(op, writers) if op.name in members else ():
            if ops[source].name in members and stages[source] == stages[i]:
                roots[_root(roots, source)] = _root(roots, i)
    groups: dict[int, list[int]] = {}
    for i, op in enumerate(ops):
        if op.name in members:
            groups.setdefault(_root(roots, i), []).append(i)
    return list(groups.values())


def sort_operations(ops: Sequence[Op]) -> tuple[Op, ...]:
    """Return operations so that each follows those whose results it reads, else in the given order.

    Pre-condition: dependences are acyclic.
    """
    writers = _writers(ops)
    missing = [len(_producers(op, writers)) for op in ops]
    readers: dict[int, list[int]] = {}
    for i, op in enumerate(ops):
        for source in _producers(op, writers):
            readers.setdefault(source, []).append(i)
    ready = [i for i, count in enumerate(missing) if not count]
    found = []
    while ready:
        i = heapq.heappop(ready)
        found.append(ops[i])
        for reader in readers.get(i, ()):
            missing[reader] -= 1
            if not missing[reader]:
                heapq.heappush(ready, reader)
    return tuple(found)


def _find_stages(ops: Sequence[Op], members: Set[str]) -> list[int]:
    """Return the stage of each operation."""
    writers = _writers(ops)
    stages = [0] * len(ops)
    latest: dict[int, int] = {}
    for i, op in enumerate(ops):
        is_outside = op.name not in members
        for source in _producers(op, writers):
            stages[i] = max(stages[i], stages[source] + (is_outside and ops[source].name in members))
    for i in reversed(range(len(ops))):
        is_member = ops[i].name in members
        if is_member:
            stages[i] = latest.get(i, stages[i])
        for source in _producers(ops[i], writers):
            bound = stages[i] if is_member else stages[i] - 1
            latest[source] = min(latest.get(source, bound), bound)
    return stages


def _writers(ops: Sequence[Op]) -> dict[str, int]:
    """Return the index of the operation that writes each tensor."""
    return {name: i for i, op in enumerate(ops) for name in op.writes.values()}


def _producers(op: Op, writers: dict[str, int]) -> set[int]:
    """Return the indices of the operations that write what an operation reads."""
    return {writers[name] for name in op.reads.values() if name in writers}


def _root(roots: list[int], i: int) -> int:
    """Return the representative of the group of `i`, and shorten the way to it (union-find)."""
    while roots[i] != i:
        roots[i] = roots[roots[i]]
        i = roots[i]
    return i
