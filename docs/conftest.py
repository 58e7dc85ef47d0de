"""Examples of pages that `tests/project/test_guides.py` executes in order, commands too, are not run as doctests.

Examples in the modules of the site that need Sphinx are run where it is installed.
"""

from importlib.util import find_spec

SPHINX_MODULES = [f"_ext/inlay_docs/{name}.py" for name in ("directives", "external_links")]
collect_ignore = ["tutorial.md", "guides", "explanations", *([] if find_spec("sphinx") else SPHINX_MODULES)]
