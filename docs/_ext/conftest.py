"""Examples in the modules of the site that need Sphinx are run where it is installed."""

from importlib.util import find_spec

collect_ignore = [] if find_spec("sphinx") else ["inlay_docs/directives.py", "inlay_docs/external_links.py"]
