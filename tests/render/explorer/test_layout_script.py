"""The script of the page computes offsets, digits, coordinates and formulas as Python does, from digits alone."""

import shutil
from pathlib import Path

import pytest

from tests.support.explorer_script import PAGE, answer_in_node, check_answers, random_cases

pytestmark = pytest.mark.skipif(shutil.which("node") is None, reason="Node is not installed")


def test_equals_python_on_random_layouts(tmp_path: Path) -> None:
    """Offsets, digits, inverse and formulas of 400 random layouts are those of `MemoryDesc`."""
    cases = random_cases(21, 400)
    assert {case.desc.kind for case in cases} >= {"blocked", "digits", "swizzled"}
    check_answers(cases, answer_in_node(tmp_path, cases))


@pytest.mark.heavy
def test_equals_python_on_ten_thousand_layouts(tmp_path: Path) -> None:
    """The same for 10,000 layouts."""
    cases = random_cases(22, 10_000)
    check_answers(cases, answer_in_node(tmp_path, cases))


def test_wrong_answer_is_noticed(tmp_path: Path) -> None:
    """A script that is wrong for one kind of digit fails the comparison."""
    cases = random_cases(23, 50)
    answers = answer_in_node(tmp_path, cases)
    changed = next(answer for answer in answers if answer["offsets"])
    changed["offsets"][0] += "1"
    with pytest.raises(AssertionError):
        check_answers(cases, answers)


def test_files_are_small() -> None:
    """Each file of the page has at most 600 lines, of at most 120 characters in scripts."""
    for path in PAGE.iterdir():
        lines = path.read_text().splitlines()
        assert len(lines) <= 600, path.name
        if path.suffix == ".js":
            assert max(map(len, lines)) <= 120, path.name
