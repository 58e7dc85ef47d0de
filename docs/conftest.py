"""Examples in the modules of the site that need Sphinx are run where it is installed."""

from importlib.util import find_spec

collect_ignore = [] if find_spec("sphinx") else ["_ext/inlay_docs/directives.py", "_ext/inlay_docs/external_links.py"]
