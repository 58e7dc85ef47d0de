"""Saved plans that come from anywhere, damaged in every way: a program that loads and runs mutants, and judges them.

    python -m tests.support.fuzz_saved_plans reference 1234 2000

damages saved plans of an engine 2,000 times, by numbers drawn from the seed. A mutant must be refused with an
`InlayError` when it is loaded or run, or give results. If its bytes were damaged, the results must equal those of the
good file bit by bit; if what it holds was edited and the checksum computed anew, they must have dims and types of
outputs. The program ends with 1 and says which mutant, where another exception gets out, one takes 20 seconds, or the
process needs over 2 GB. The number of the mutant at hand is always in the file `case` of its directory, for whoever
finds the process dead. It prints how many were run and how many refused.
"""

import json
import os
import random
import signal
import sys
import tempfile
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

import inlay
from inlay.errors import InlayError
from inlay.graph.plan import Plan
from inlay.graph.saved_plans.checked_file import map_sections, write_sections
from tests.support import fuzz_files
from tests.support.saved_plan_models import MODELS, inputs_for, plan_of

SECONDS = 20
Array = np.ndarray[Any, np.dtype[Any]]


@dataclass(frozen=True, slots=True)
class Good:
    """A saved plan, and what it computes."""

    content: bytes
    records: dict[str, Any]
    sections: Mapping[str, Array]
    inputs: Mapping[str, Array]
    results: Mapping[str, Array]


def good_plan(plan: Plan, path: Path, engine: str) -> Good:
    """A plan in a file."""
    plan.save(path)
    sections = {name: np.array(data) for name, data in map_sections(path).items()}
    inputs = inputs_for(plan)
    with inlay.Session.load(path, engine=engine) as session:
        results = session.run(inputs)
    return Good(path.read_bytes(), json.loads(sections["plan"].tobytes()), sections, inputs, results)


# Mutants: each function writes a file, and returns whether its results must equal those of the good one


def damage_bytes(good: Good, path: Path, draw: random.Random) -> bool:
    """Change bytes anywhere, or cut the file, or add to it."""
    path.write_bytes(fuzz_files.mutant(good.content, draw))
    return True


def flip_bit(good: Good, path: Path, draw: random.Random) -> bool:
    """Change one bit."""
    content = bytearray(good.content)
    content[draw.randrange(len(content))] ^= 1 << draw.randrange(8)
    path.write_bytes(content)
    return True


def swap_ranges(good: Good, path: Path, draw: random.Random) -> bool:
    """Swap two ranges of the same size."""
    content, size = bytearray(good.content), draw.choice((1, 8, 64, 512))
    first, second = (draw.randrange(len(content) - size) for _ in "ab")
    one, other = (content[at : at + size] for at in (first, second))
    content[first : first + size], content[second : second + size] = other, one
    path.write_bytes(content)
    return True


def edit_records(good: Good, path: Path, draw: random.Random) -> bool:
    """Change values of the records, and compute the checksum anew."""
    part = draw.choice((None, "plan", "plan", "plan", "constants", "descriptors", "guards", "origin"))
    records = dict(good.records)
    if part is None:
        records = fuzz_files.mutant_json(records, draw)
    elif part == "plan":
        key = draw.choice(("graph", "program", "program", "ms"))
        plan = dict(records["plan"])
        plan[key] = fuzz_files.mutant_json(plan[key], draw) if key != "ms" else draw.choice(fuzz_files.NUMBERS)
        records["plan"] = plan
    else:
        records[part] = fuzz_files.mutant_json(records[part], draw)
    _write(good, path, json.dumps(records).encode())
    return False


def edit_text(good: Good, path: Path, draw: random.Random) -> bool:
    """Change the text of the records, and compute the checksum anew."""
    _write(good, path, fuzz_files.mutant(json.dumps(good.records).encode(), draw))
    return False


def swap_names(good: Good, path: Path, draw: random.Random) -> bool:
    """Exchange texts or numbers of the records that occur elsewhere in them: names, kinds, formats, dims."""
    records = json.loads(json.dumps(good.records))
    places = [(holder, key) for holder, key in fuzz_files._places(records) if isinstance(holder[key], (str, int))]
    for _ in range(draw.choice((1, 1, 2, 4))):
        holder, key = draw.choice(places)
        alike = [one[other] for one, other in places if type(one[other]) is type(holder[key])]
        holder[key] = draw.choice(alike)
    _write(good, path, json.dumps(records).encode())
    return False


def edit_constants(good: Good, path: Path, draw: random.Random) -> bool:
    """Change the bytes of a constant, cut it, or exchange two, and compute the checksum anew."""
    sections = dict(good.sections)
    names = [name for name in sections if name != "plan"]
    name = draw.choice(names)
    kind = draw.randrange(4)
    if kind == 0:
        sections[name] = sections[draw.choice(names)]
    elif kind == 1:
        sections[name] = sections[name][: draw.randrange(sections[name].size + 1)]
    elif kind == 2:
        del sections[name]
    else:
        data = sections[name].copy()
        at = draw.randrange(data.size)
        data[at : at + 8] = draw.randrange(256)
        sections[name] = data
    write_sections(path, sections)
    return False


def _write(good: Good, path: Path, text: bytes) -> None:
    """Write the good file with other records."""
    write_sections(path, {**good.sections, "plan": np.frombuffer(text + b" " * (-len(text) % 64), np.uint8)})


MUTATIONS: tuple[Callable[[Good, Path, random.Random], bool], ...] = (
    damage_bytes,
    flip_bit,
    swap_ranges,
    edit_records,
    edit_records,
    edit_records,
    edit_text,
    swap_names,
    swap_names,
    edit_constants,
)


def judge(good: Good, path: Path, engine: str, *, must_equal: bool) -> bool:
    """Load and run a mutant; return False if it is refused.

    Raises:
        AssertionError: it gives wrong results.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", inlay.StalePlanWarning)
        try:
            with inlay.Session.load(path, engine=engine) as session:
                (plan,) = session.plans
                inputs = good.inputs
                if [(i.name, i.dims, i.dtype) for i in plan.inputs] != [
                    (n, a.shape, a.dtype) for n, a in inputs.items()
                ]:
                    inputs = {one.name: np.ones(one.dims, one.dtype) for one in plan.inputs}
                results = session.run(inputs)
        except InlayError:
            return False
    tensors = [plan.graph.tensors[name] for name in plan.program.outputs]
    assert [(t.name, t.dims, t.dtype) for t in tensors] == [(n, a.shape, a.dtype) for n, a in results.items()]
    if must_equal:
        assert all(np.array_equal(results[name], array, equal_nan=True) for name, array in good.results.items())
    return True


def _stop(*_: object) -> None:
    raise fuzz_files.TooSlow


def main(engine: str, seed: int, count: int) -> int:
    """Load and run `count` mutants, and return the exit code."""
    good = [good_plan(plan_of(name, engine), Path(f"{name}.inlay"), engine) for name in MODELS]
    if Path("/proc/self/statm").exists():
        fuzz_files._limit_memory()
    signal.signal(signal.SIGALRM, _stop)
    path, refused = Path("mutant.inlay"), 0
    for number in range(count):
        draw = random.Random(seed * 1_000_003 + number)
        Path("case").write_text(str(number))
        one, mutate = draw.choice(good), draw.choice(MUTATIONS)
        must_equal = mutate(one, path, draw)
        is_sound = False
        signal.alarm(SECONDS)
        try:
            refused += not judge(one, path, engine, must_equal=must_equal)
            is_sound = True
        finally:
            signal.alarm(0)
            if not is_sound:
                print(f"mutant {number} of seed {seed}, by {mutate.__name__}")
    print(json.dumps({"ran": count - refused, "refused": refused}))
    return 0


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as made:
        os.chdir(os.environ.get("INLAY_FUZZ_DIR", made))
        sys.exit(main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3])))
