"""Groups of adjacent operations: connected, acyclic, and as many as the stages need."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from inlay.graph.fallback.grouping import find_groups, sort_operations
from inlay.graph.op_graph import Op


def op(name: str, *reads: str) -> Op:
    return Op(name, "reference", {f"src_{i}": read for i, read in enumerate(reads)}, {"dst_0": name})


CHAINS: dict[str, tuple[str, str, list[str]]] = {
    "one": ("a(x) b(a) c(b)", "abc", ["abc"]),
    "around": ("a(x) p(a) b(a,p)", "ab", ["a", "b"]),
    "apart": ("a(x) p(a) b(p)", "ab", ["a", "b"]),
    "beside": ("a(x) b(x)", "ab", ["a", "b"]),
    "two ends": ("a(x) b(x) p(x) c(a,b,p)", "abc", ["abc"]),
    "a mask of all layers": ("m(x) p(x) v(m,p) q(v) w(m,q)", "mvw", ["mv", "w"]),
}


def ops_of(text: str) -> list[Op]:
    pairs = (one.rstrip(")").split("(") for one in text.split())
    return [op(name, *reads.split(",")) for name, reads in pairs]


@pytest.mark.parametrize("name", CHAINS)
def test_groups_of_small_graphs(name: str) -> None:
    text, members, wanted = CHAINS[name]
    ops = ops_of(text)
    groups = find_groups(ops, frozenset(members))
    assert ["".join(ops[i].name for i in group) for group in groups] == wanted


@given(seed=st.integers(0, 1 << 32), count=st.integers(1, 30))
def test_groups_of_random_graphs_can_run_one_after_the_other(seed: int, count: int) -> None:
    rng = np.random.default_rng(seed)
    names = [f"t{i}" for i in range(count)]
    ops = [op(n, *(f"t{rng.integers(-2, i)}" for _ in range(rng.integers(1, 4)))) for i, n in enumerate(names)]
    members = frozenset(name for name in names if rng.random() < 0.6)
    groups = find_groups(ops, members)
    assert sorted(ops[i].name for group in groups for i in group) == sorted(members)
    merged = [op for op in ops if op.name not in members]
    for k, group in enumerate(groups):
        inner = {ops[i].name for i in group}
        reads = sorted({read for i in group for read in ops[i].reads.values()} - inner)
        writes = {f"dst_{i}": name for i, name in enumerate(sorted(inner))}
        merged.append(Op(f"g{k}", "reference", {f"src_{i}": read for i, read in enumerate(reads)}, writes))
    done = set[str]()
    ordered = sort_operations(merged)
    for one in ordered:
        assert {read for read in one.reads.values() if read in names} <= done
        done |= {*one.writes.values()}
    assert len(ordered) == len(merged)
