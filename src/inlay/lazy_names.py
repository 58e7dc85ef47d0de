"""Names of a package that are imported when they are first used, by functions of its module (PEP 562).

    __getattr__, __dir__ = lazy_names(__name__, {"compile_reorder": "inlay.reordering.compiled"})

So a package has its public names, and importing one of its modules does not import all others. Beside such a line, the
package imports the same names under `if TYPE_CHECKING`, for type checkers.
"""

import importlib
import sys
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any


def lazy_names(package: str, modules: Mapping[str, str]) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """Return `__getattr__` and `__dir__` of a package that imports each of these names from its module at first use."""
    return partial(import_lazily, package, modules), lambda: sorted({*vars(sys.modules[package]), *modules})


def import_lazily(package: str, modules: Mapping[str, str], name: str) -> Any:
    """Import a name of a package from its module, and store it in the package.

    Raises:
        AttributeError: there is no module for this name.

    >>> import inlay
    >>> import_lazily("inlay", {}, "Memori")
    Traceback (most recent call last):
    AttributeError: module 'inlay' has no attribute 'Memori'
    """
    if name not in modules:
        raise AttributeError(f"module {package!r} has no attribute {name!r}")
    value = getattr(importlib.import_module(modules[name]), name)
    setattr(sys.modules[package], name, value)
    return value
