"""Every public callable, with over a hundred wrong values for each argument, returns a result or raises a clear error.

What comes out may be a result, an `InlayError`, or Python's own TypeError for a call that does not fit a signature:
nothing out of the inside, no warning, and no text that cannot be printed.
"""

import signal
import traceback
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

import inlay
from inlay import InlayError, MemoryDesc, PerformanceWarning
from inlay.layout.permutation import inverse
from tests.support.hostile_values import MAKERS, described
from tests.support.public_calls import LEFT_OUT, Subject, public, subjects

LONGEST = 20  # seconds that a call may take
EVERY = 6  # of the values are tried where the whole is not asked for

SUBJECTS = subjects()


@contextmanager
def restored() -> Iterator[None]:
    """Restore the process-wide state that calls change."""
    try:
        yield
    finally:
        inlay.set_num_threads(None)
        inlay.primitives.set_engine(None)


@contextmanager
def limited() -> Iterator[None]:
    """A call that takes too long is a fault."""

    def refuse(*_: Any) -> None:
        raise TimeoutError(f"more than {LONGEST} s")

    before = signal.signal(signal.SIGALRM, refuse)
    signal.alarm(LONGEST)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


class Caught:
    """Record the exception of a block, of any class; an interrupt by the keyboard goes on."""

    error: BaseException | None = None

    def __enter__(self) -> "Caught":
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> bool:
        self.error = error
        return not isinstance(error, KeyboardInterrupt)


def fault_of(subject: Subject, parameter: str, value: Any) -> str | None:
    """Return the fault of an outcome, or None if it is allowed."""
    with Caught() as caught, warnings.catch_warnings(), limited():
        warnings.simplefilter("error")
        warnings.simplefilter("ignore", PerformanceWarning)
        subject(**{parameter: value})
    error = caught.error
    if error is None:
        return None
    if isinstance(error, InlayError):
        text = str(error)
        printable = text.encode("utf-8", "replace").decode("utf-8") == text
        return None if printable and text.strip() else f"a text that cannot be printed: {text!r}"
    inside = [frame for frame in traceback.extract_tb(error.__traceback__) if "/inlay/" in frame.filename]
    if isinstance(error, TypeError) and not inside:
        return None
    where = f"{inside[-1].filename.rsplit('/inlay/', 1)[1]}:{inside[-1].lineno}" if inside else "the call"
    return f"{type(error).__name__} out of {where}"


def faults_of(subject: Subject, first: int, step: int) -> list[str]:
    """The faults of every `step`-th value in the place of each argument."""
    found = []
    for parameter in subject.parameters:
        for make in MAKERS[first::step]:
            value = make()
            if (subject.name, parameter) == ("Reorder", "tune") and isinstance(value, float) and value > 0.001:
                continue  # it would be tuned for so long
            fault = fault_of(subject, parameter, value)
            if fault is not None:
                found.append(f"{subject.name}({parameter}={described(value)}): {fault}")
    return found


@pytest.mark.parametrize("subject", SUBJECTS, ids=lambda subject: subject.name)
def test_every_public_callable_is_called_as_it_should_be(subject: Subject) -> None:
    with restored():
        subject()


@pytest.mark.parametrize("number", range(len(SUBJECTS)), ids=[subject.name for subject in SUBJECTS])
def test_a_wrong_argument_gives_one_sentence(number: int) -> None:
    with restored():
        assert faults_of(SUBJECTS[number], number % EVERY, EVERY) == []


@pytest.mark.heavy
@pytest.mark.parametrize("subject", SUBJECTS, ids=lambda subject: subject.name)
def test_every_wrong_argument_gives_one_sentence(subject: Subject) -> None:
    with restored():
        assert faults_of(subject, 0, 1) == []


def test_there_are_a_hundred_values_and_a_hundred_callables() -> None:
    assert len(MAKERS) >= 150
    assert len(SUBJECTS) >= 150
    assert {name for name, _ in public()} >= set(LEFT_OUT)


def test_the_check_finds_what_comes_out_of_the_inside() -> None:
    subject = Subject("inverse", inverse, dict, ("permutation",))
    fault = fault_of(subject, "permutation", None)
    assert fault is not None
    assert fault.startswith("TypeError out of layout/permutation.py:")
    assert fault_of(subject, "permutation", (1, 0)) is None
    assert fault_of(subject, "permutations", (1, 0)) is None  # Python's own sentence


@pytest.mark.parametrize("value", [10**5000, -(10**5000), (10**5000,), "x" * 100_000], ids=described)
def test_a_message_shows_any_value_and_stays_short(value: Any) -> None:
    for call in (
        lambda: MemoryDesc(value, "f32"),
        lambda: MemoryDesc((2, 3), value),
        lambda: MemoryDesc((2, 3), "f32", value),
        lambda: inlay.FormatTag.parse(value),
        lambda: inlay.Layout.row_major(value),
        lambda: inlay.Scales(value),
    ):
        with pytest.raises(InlayError) as caught:
            call()
        assert len(str(caught.value)) < 2000
