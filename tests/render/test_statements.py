"""`show` as a statement prints; where its result is used, or displayed by the prompt, it does not print too."""

import doctest
import subprocess
import sys
from pathlib import Path

import pytest

import inlay
from inlay import MemoryDesc
from inlay.render import statements

DESC = MemoryDesc((2, 3), "f32", "ab")
TITLE = "ab, 2 x 3 of f32"


def run_script(tmp_path: Path, lines: str) -> str:
    script = tmp_path / "script.py"
    script.write_text(f"import inlay\nd = inlay.MemoryDesc((2, 3), 'f32', 'ab')\n{lines}\n")
    done = subprocess.run([sys.executable, script], capture_output=True, text=True, check=True, env=None)
    return done.stdout


@pytest.mark.parametrize(
    ("lines", "count"),
    [
        ("inlay.show(d)", 1),
        ("inlay.show(d, offsets=True)\ninlay.show(d, 'ba')", 2),
        ("for _ in range(3):\n    inlay.show(d)", 3),
        ("def f():\n    inlay.show(d)\n    return 1\nx = f()", 1),
        ("if d.ndims:\n    inlay.show(d)\nelse:\n    inlay.show(d, format='svg')", 1),
        ("print(inlay.show(d))", 1),
        ("p = inlay.show(d)", 0),
        ("inlay.show(d).svg()", 0),
        ("inlay.show(d).save('{folder}/a.svg')", 0),
        ("def f():\n    return inlay.show(d)\nx = [f(), inlay.show(d)]", 0),
        ("x = [inlay.show(d) for _ in range(2)]", 0),
        ("assert inlay.show(d)", 0),
    ],
)
def test_a_script_prints_what_it_shows_once(lines: str, count: int, tmp_path: Path) -> None:
    out = run_script(tmp_path, lines.replace("{folder}", str(tmp_path)))
    assert sum(line.startswith(("ab, 2 x 3", "ab to ba, 2 x 3")) for line in out.splitlines()) == count


def test_a_prompt_shows_it_once() -> None:
    source = ">>> import inlay\n>>> inlay.show(inlay.MemoryDesc((1, 1), 'f32', 'ab'), width=80, color=False)\n"
    test = doctest.DocTestParser().get_doctest(source, {}, "prompt", None, 0)
    printed: list[str] = []
    doctest.DocTestRunner(verbose=False).run(test, out=printed.append)
    assert "".join(printed).count("ab, 1 x 1 of f32") == 1


def test_the_expression_of_a_lambda_and_of_a_function_is_not_printed(capsys: pytest.CaptureFixture[str]) -> None:
    drawn = (lambda: inlay.show(DESC))()
    assert str(drawn).startswith(TITLE)
    assert capsys.readouterr().out == ""
    inlay.show(DESC)
    assert capsys.readouterr().out == f"{drawn}\n"


def test_a_notebook_displays_it(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    shown: list[object] = []

    class FakeIPython:
        @staticmethod
        def get_ipython() -> object:
            return object()

        @staticmethod
        def display(picture: object) -> None:
            shown.append(picture)

    monkeypatch.setitem(sys.modules, "IPython", FakeIPython)
    monkeypatch.setitem(sys.modules, "IPython.display", FakeIPython)
    inlay.show(DESC)
    assert [str(picture).splitlines()[0] for picture in shown] == [TITLE]
    assert capsys.readouterr().out == ""


def test_a_refused_call_prints_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(inlay.InvalidArguments):
        inlay.show(DESC, width=1)
    assert capsys.readouterr().out == ""
    assert not statements.is_result_dropped(sys._getframe())
