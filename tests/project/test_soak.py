"""The soak test finds a fault, reports and shrinks its case; and ten thousand of its cases pass."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from inlay.descriptor import MemoryDesc
from inlay.memory import Reorder
from inlay.reordering.attributes import PLAIN
from inlay.reordering.reference import reference_reorder
from tests.support import soak, soak_case
from tests.support.soak import first_failure, seed_of, shrunk
from tests.support.soak_case import Case, drawn_case, run_case, simpler

# A soak forks before it has threads; JAX, which another test may have loaded, warns of every fork.
pytestmark = pytest.mark.filterwarnings("ignore:os.fork\\(\\) was called:RuntimeWarning")
SOAK = Path(soak.__file__)
SEED = 2
LATER = 3600.0


def test_cases_are_right() -> None:
    for number in range(80):
        run_case(drawn_case(seed_of(SEED, number)))


@pytest.mark.heavy
@pytest.mark.parametrize("thousand", range(10))
def test_ten_thousand_cases_are_right(thousand: int) -> None:
    for number in range(1000 * thousand, 1000 * (thousand + 1)):
        case = drawn_case(seed_of(1, number))
        try:
            run_case(case)
        except AssertionError as fault:
            pytest.fail(f"case {number} of seed 1, {case}: {fault}")


def test_cases_are_of_many_kinds() -> None:
    cases = [drawn_case(number) for number in range(400)]
    for name, least in (("threads", 4), ("streaming", 2), ("flush", 2), ("align", 2), ("attributes", 60)):
        assert len({getattr(case, name) for case in cases}) >= least
    assert sum(any(c.attributes.entry(name).groups for name in c.attributes.names) for c in cases) > 20
    weights = [c for c in cases if c.dst.extras]
    assert len(weights) > 30
    assert any(c.attributes.names for c in weights)
    types = {(c.src.data_type, c.dst.data_type) for c in cases}
    assert len(types) > 60
    assert sum(a != b for a, b in types) > 50


def test_what_is_simpler_can_be_made_too() -> None:
    """A refusal is no failure: shrinking would end at a case that nobody can run."""
    weights = [c for c in map(drawn_case, range(300)) if c.dst.extras or c.attributes.dst_zero_points][:8]
    smaller = [s for case in weights for s in simpler(case)]
    assert len(smaller) > 60
    for case in smaller:
        Reorder(case.src, case.dst, case.attributes)


def test_a_number_draws_one_case() -> None:
    assert drawn_case(5) == drawn_case(5) != drawn_case(6)


def test_the_text_of_a_case_makes_it_again() -> None:
    for number in range(300):
        case = drawn_case(number)
        assert eval(str(case), vars(soak_case).copy()) == case


def wrong_when_three_are_shared(case: Case) -> None:
    """Fails where two threads move a tensor whose last axis is 3 or longer."""
    assert not (case.threads > 1 and case.src.dims[-1] >= 3)


def test_a_failure_is_found_and_made_small() -> None:
    reached, failed = first_failure(SEED, 0, 1000, time.monotonic() + LATER, wrong_when_three_are_shared)
    assert failed is not None
    assert reached == failed + 1
    case = drawn_case(seed_of(SEED, failed))
    small = shrunk(case, wrong_when_three_are_shared)
    ones = (1,) * (case.src.ndims - 1)
    plain = MemoryDesc((*ones, 3), "u8")
    assert small == Case(plain, plain, threads=2)
    assert small.attributes == PLAIN


def test_a_case_that_kills_its_process_is_a_failure() -> None:
    def act(case: Case) -> None:
        if case == drawn_case(seed_of(SEED, 3)):
            os.kill(os.getpid(), signal.SIGSEGV)

    assert first_failure(SEED, 0, 10, time.monotonic() + LATER, act) == (4, 3)


def test_time_ends_a_soak() -> None:
    assert first_failure(SEED, 5, 1000, time.monotonic() - 1, lambda case: None) == (6, None)


def test_a_wrong_byte_is_a_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    right = reference_reorder

    def wrong(*arguments: Any, **more: Any) -> None:
        right(*arguments, **more)
        arguments[3][1] ^= 1

    case = Case(MemoryDesc((4, 4), "u8", "ab"), MemoryDesc((4, 4), "u8", "ba"))
    run_case(case)
    monkeypatch.setattr(soak_case, "reference_reorder", wrong)
    with pytest.raises(AssertionError, match=r"^byte 1 is \d+, not \d+ \(1 wrong\)"):
        run_case(case)


def printed(*options: str) -> str:
    """Return the output of the program."""
    command = [sys.executable, str(SOAK), *options]
    return subprocess.run(command, capture_output=True, text=True, timeout=100, check=True).stdout


def test_the_program_says_its_seed_and_how_many_cases_ran() -> None:
    first, last = printed("--minutes", "0.02", "--seed", "9").splitlines()
    assert first == "seed 9, 0.02 minutes"
    assert last.endswith(" cases, no failure (seed 9)")
    assert printed("--seed", "9", "--case", "1") == f"{drawn_case(seed_of(9, 1))}\n"
