"""Error classes: base classes, statuses of oneDNN, markers in notation errors, pickling."""

import pickle

import pytest

from inlay import errors
from inlay.errors import (
    FileError,
    FormatTagError,
    InlayError,
    InvalidArguments,
    InvalidIndex,
    MissingExtra,
    NotationError,
    OutOfMemory,
    PatternError,
    Unimplemented,
)

CLASSES = [value for value in vars(errors).values() if isinstance(value, type) and issubclass(value, InlayError)]


BASES: list[tuple[type[InlayError], type[Exception], str | None]] = [
    (InvalidArguments, ValueError, "invalid_arguments"),
    (InvalidIndex, IndexError, "invalid_arguments"),
    (Unimplemented, NotImplementedError, "unimplemented"),
    (OutOfMemory, MemoryError, "out_of_memory"),
    (MissingExtra, ImportError, None),
    (FileError, OSError, None),
    (NotationError, ValueError, "invalid_arguments"),
    (FormatTagError, ValueError, "invalid_arguments"),
    (PatternError, ValueError, "invalid_arguments"),
]


def test_every_class_is_covered_here() -> None:
    assert set(CLASSES) == {InlayError, *(kind for kind, _, _ in BASES)}


@pytest.mark.parametrize(("kind", "builtin", "status"), BASES)
def test_each_class_is_also_a_built_in_and_carries_onednn_s_status(
    kind: type[InlayError], builtin: type[Exception], status: str | None
) -> None:
    assert issubclass(kind, InlayError)
    assert issubclass(kind, builtin)
    assert kind.status == status


@pytest.mark.parametrize(
    ("start", "end", "marker"),
    [(0, 1, "^"), (0, 3, "^^^"), (2, 3, "~~^"), (1, 3, "~^^"), (3, 3, "~~~^"), (4, 9, "~~~~^^^^^")],
)
def test_the_marker_stands_under_the_fault(start: int, end: int, marker: str) -> None:
    error = NotationError("problem", "abcd16eee", start, end)
    assert str(error) == f"problem\n    abcd16eee\n    {marker}"
    assert (error.problem, error.text, error.start, error.end) == ("problem", "abcd16eee", start, end)


@pytest.mark.parametrize("kind", [NotationError, FormatTagError, PatternError])
def test_notation_errors_survive_a_pickle(kind: type[NotationError]) -> None:
    error = kind("problem", "abXd", 2, 3)
    again = pickle.loads(pickle.dumps(error))
    assert type(again) is kind
    assert str(again) == str(error)
    assert (again.problem, again.text, again.start, again.end) == ("problem", "abXd", 2, 3)


@pytest.mark.parametrize("kind", [InvalidArguments, Unimplemented, OutOfMemory, MissingExtra, FileError])
def test_plain_errors_survive_a_pickle(kind: type[InlayError]) -> None:
    again = pickle.loads(pickle.dumps(kind("what to do")))
    assert type(again) is kind
    assert str(again) == "what to do"
