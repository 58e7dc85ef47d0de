"""Groups of equal steps, compared with all groupings of short sequences; and the keys of steps."""

from collections.abc import Hashable, Iterator, Sequence
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from inlay.graph.network import Node
from inlay.graph.program import Step
from inlay.graph.step_groups import MOST_LENGTH, StepGroup, find_equal_steps, group_steps, step_keys
from tests.support.graph_programs import Case, with_reference, zero_copy_concat

SEQUENCES = st.lists(st.sampled_from("abc"), max_size=11) | st.lists(st.sampled_from("ab"), max_size=13)


def all_groupings(keys: list[str], first: int = 0) -> Iterator[tuple[StepGroup, ...]]:
    """Every way to divide a sequence into steps and repeated blocks."""
    if first == len(keys):
        yield ()
    for stop in range(first + 1, len(keys) + 1):
        steps = keys[first:stop]
        for length in range(1, len(steps) + 1):
            count, rest = divmod(len(steps), length)
            if rest or steps != steps[:length] * count or (count == 1 and length > 1):
                continue
            for others in all_groupings(keys, stop):
                yield (StepGroup(first, length, count), *others)


def preference(groups: Sequence[StepGroup]) -> tuple[int, list[tuple[int, int]]]:
    """The rule: fewest rows; then, group by group, the most steps, with the shortest block."""
    rows = sum(1 if group.length == 1 else group.length + 1 for group in groups)
    return rows, [(-group.length * group.count, group.length) for group in groups]


@given(SEQUENCES)
def test_of_all_groupings_the_one_that_the_rule_prefers_is_found(keys: list[str]) -> None:
    assert group_steps(keys) == min(all_groupings(keys), key=preference)


@given(st.lists(st.tuples(st.lists(st.integers(0, 3), min_size=1, max_size=6), st.integers(1, 5)), max_size=8))
def test_every_step_is_in_one_group_and_expanded_groups_are_the_sequence(
    parts: list[tuple[list[int], int]],
) -> None:
    keys = [key for block, count in parts for key in block * count]
    groups = group_steps(keys)
    assert [i for group in groups for i in group.steps] == list(range(len(keys)))
    expanded = [key for one in groups for key in keys[one.first : one.first + one.length] * one.count]
    assert expanded == keys
    assert sum(group.rows for group in groups) <= sum(len(block) + (count > 1) for block, count in parts)
    for group in groups:
        occurrences = [i for position in range(group.length) for i in group.occurrences(position)]
        assert sorted(occurrences) == list(group.steps)


@given(st.lists(st.tuples(st.sampled_from("abc"), st.integers(0, 1000)), max_size=30))
def test_sums_of_times_are_those_of_equal_steps(steps: list[tuple[str, int]]) -> None:
    keys, times = [key for key, _ in steps], [float(ms) for _, ms in steps]
    groups = group_steps(keys)
    assert sum(sum(group.sum_times(times)) for group in groups) == sum(times)
    for group in groups:
        for position, total in enumerate(group.sum_times(times)):
            occurrences = [i for i in group.steps if (i - group.first) % group.length == position]
            assert {keys[i] for i in occurrences} == {keys[group.first + position]}
            assert total == sum(times[i] for i in occurrences)


@given(SEQUENCES)
def test_equal_steps_are_found_wherever_they_are(keys: list[str]) -> None:
    found = find_equal_steps(keys)
    assert sorted(i for steps in found for i in steps) == list(range(len(keys)))
    assert [steps[0] for steps in found] == [keys.index(key) for key in dict.fromkeys(keys)]
    assert all({keys[i] for i in steps} == {keys[steps[0]]} and list(steps) == sorted(steps) for steps in found)


@pytest.mark.parametrize(
    ("keys", "expected"),
    [
        ("", []),
        ("a", [(0, 1, 1)]),
        ("aa", [(0, 1, 2)]),
        ("abab", [(0, 2, 2)]),
        ("ababa", [(0, 2, 2), (4, 1, 1)]),  # and not a, then b a twice
        ("abababcdabcd", [(0, 2, 2), (4, 4, 2)]),  # a b occurs a third time, but in a longer block
        ("sabcdabcdabcdt", [(0, 1, 1), (1, 4, 3), (13, 1, 1)]),
    ],
)
def test_sequences_are_grouped(keys: str, expected: list[tuple[int, int, int]]) -> None:
    assert group_steps(keys) == tuple(StepGroup(*one) for one in expected)


def test_long_blocks_are_listed_step_by_step() -> None:
    block = list(range(MOST_LENGTH))
    assert group_steps(block * 3) == (StepGroup(0, MOST_LENGTH, 3),)
    longer = [*block, -1]
    assert group_steps(longer * 2) == tuple(StepGroup(i, 1, 1) for i in range(2 * len(longer)))


def test_thousands_of_steps_are_grouped() -> None:
    keys = ["in", *["attend", "add", "norm"] * 2000, "out"]
    assert [(group.length, group.count) for group in group_steps(keys)] == [(1, 1), (3, 2000), (1, 1)]


def test_steps_are_equal_if_kind_formats_implementation_and_dims_are() -> None:
    program = zero_copy_concat("nChw16c").program
    keys = step_keys(program)
    assert len(set(keys)) == len(program.steps)
    first = program.steps[0]
    assert first.operation is not None

    def key_of(step: Step) -> Hashable:
        return step_keys(replace(program, steps=(step,)))[0]

    renamed = replace(first, name="other", ops=("other",), ms=7.0, source="measured", why="for a reason")
    assert key_of(renamed) == keys[0]
    zeros = {name: np.zeros_like(array) for name, array in first.constants.items()}
    assert key_of(replace(first, constants=zeros)) == keys[0]
    for other in (
        replace(first, impl="jit:other"),
        replace(
            first, operation=replace(first.operation, parameters={**first.operation.parameters, "strides": (2, 2)})
        ),
        replace(first, constants={name: array[:1] for name, array in first.constants.items()}),
    ):
        assert key_of(other) != keys[0]


def test_references_are_equal_if_operators_attributes_and_buffers_are() -> None:
    case: Case = with_reference()
    index, step = next((i, step) for i, step in enumerate(case.program.steps) if step.node is not None)
    assert step.node is not None
    key = step_keys(case.program)[index]

    def key_with(node: Node) -> Hashable:
        steps = (*case.program.steps[:index], replace(step, node=node), *case.program.steps[index + 1 :])
        return step_keys(replace(case.program, steps=steps))[index]

    assert key_with(replace(step.node, name="other", outputs=("elsewhere",))) == key
    assert key_with(replace(step.node, operator="Other")) != key
    attributes = {"axes": (1, 2), "value": np.arange(3), "body": b"graph", "names": {"a": 1.0}}
    known = key_with(replace(step.node, attributes=attributes))
    assert known == key_with(replace(step.node, attributes={**attributes, "value": np.arange(3)})) != key
    assert known != key_with(replace(step.node, attributes={**attributes, "value": np.array([0, 1, 3])}))
    assert known != key_with(replace(step.node, attributes={**attributes, "body": b"other"}))
    hash(known)
    narrow = {name: replace(buffer, desc=None) for name, buffer in case.program.buffers.items()}
    assert step_keys(replace(case.program, buffers=narrow))[index] != key
