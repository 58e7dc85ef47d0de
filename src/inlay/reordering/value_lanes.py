"""Which values the lanes of a scheduled tile take, and how far into its array each step of a formula reaches."""

from inlay.reordering.computation import Computation, Value, step_places, working_type
from inlay.reordering.network import SIDES, Side
from inlay.reordering.problem import ReorderProblem
from inlay.reordering.schedule import Schedule


def computation_of(problem: ReorderProblem, schedule: Schedule) -> Computation | None:
    """What a kernel that runs `schedule` computes; None where it only converts."""
    if not problem.computes:
        return None
    attributes, types = problem.attributes, (problem.src_type, problem.dst_type)
    working = working_type(*types, attributes, problem.factor)
    choices = [Computation(working, side, _values(problem, schedule, side), len(problem.places)) for side in SIDES]
    narrower = types[1].bits - types[0].bits
    if attributes.sum is not None or narrower > 0:
        return choices[1]
    if narrower < 0:
        return choices[0]
    return min(reversed(choices), key=lambda choice: sum(value.lanes is None for value in choice.values))


def _values(problem: ReorderProblem, schedule: Schedule, side: Side) -> tuple[Value, ...]:
    tile = schedule.tile
    lanes = (tile.src_bits if side == "src" else tile.dst_bits)[: tile.lane_bits]
    odd = tile.odd.loop if tile.odd is not None and tile.odd.run.side == side else None
    values = []
    for step, place in step_places(problem.attributes, problem.factor, problem.dims).items():
        if place is None:
            values.append(Value(step, None, (0,) * (1 << len(lanes))))
            continue
        count = problem.places.index(place)
        # Lanes that an odd digit lies among differ from register to register.
        is_odd = odd is not None and any(schedule.nest.loops[i].weight(count) for i in (odd, *dict(lanes)))
        taken = [0]
        for loop, bit in lanes:
            weight = schedule.nest.loops[loop].weight(count) << bit
            taken += [other + weight for other in taken]
        is_near = max(taken) < 2 * len(taken) and not is_odd
        values.append(Value(step, count, tuple(taken) if is_near else None))
    return tuple(values)


def reaches(problem: ReorderProblem, schedule: Schedule) -> dict[int, int]:
    """For each count of values, the greatest that any element of any tile takes, beyond the tensor too."""
    loops = [(loop, schedule.tile.covers(i)) for i, loop in enumerate(schedule.nest.loops)]
    return {
        count: sum((-(-loop.extent // step) * step - 1) * loop.weight(count) for loop, step in loops)
        for count in range(len(problem.places))
    }
