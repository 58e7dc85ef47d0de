"""The scripts that draw the pictures of the documentation."""

import importlib.util
from pathlib import Path
from types import ModuleType

from tests.support.paths import ROOT

PICTURES = ROOT / "docs" / "pictures"
FORMATS, PLAN = PICTURES / "draw.py", PICTURES / "networks" / "draw_plan.py"
FRONT_PAGE = PICTURES / "make_front_page.py"


def drawing_script(path: Path) -> ModuleType:
    """The module that is this file."""
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
