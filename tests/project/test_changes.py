"""The names of the fragments in changes/: towncrier rejects all fragments if one name is wrong."""

import re
import tomllib

from tests.support.paths import ROOT


def test_every_fragment_has_a_name_that_towncrier_reads() -> None:
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["towncrier"]
    kinds = "|".join(kind["directory"] for kind in settings["type"])
    fragments = [path for path in (ROOT / "changes").glob("*.md") if path.name not in settings["ignore"]]
    names = re.compile(rf"(\d+|\+[\w-]+)\.({kinds})(\.\d+)?\.md")
    assert fragments
    assert [path.name for path in fragments if not names.fullmatch(path.name)] == []
