"""Settings of Sphinx for the documentation site; `make docs` builds it."""

import sys
from pathlib import Path

import inlay

sys.path.insert(0, str(Path(__file__).parent / "_ext"))

project = "Inlay"
author = "the authors of Inlay"
copyright = "the authors of Inlay"
version = release = inlay.__version__

extensions = ["myst_parser", "sphinx_copybutton", "inlay_docs"]
source_suffix = {".md": "markdown"}
exclude_patterns = ["_ext", "_static"]

# Anchors of headings as on code hosts, so that links between pages work in both places.
myst_heading_anchors = 4
myst_enable_extensions = ["colon_fence"]

python_maximum_signature_line_length = 88
toc_object_entries_show_parents = "hide"
nitpicky = True
# Quotation marks stay as they are, so that the search finds texts of errors.
smartquotes = False

html_theme = "furo"
html_title = f"Inlay {release}"
html_search_scorer = str(Path(__file__).parent / "_ext" / "search_scorer.js")
html_static_path = ["_static"]
html_favicon = "_static/favicon.svg"
html_css_files = ["site.css"]
html_copy_source = False
html_show_sourcelink = False
html_show_sphinx = False
html_theme_options = {
    "light_css_variables": {"color-brand-primary": "#1f5f99", "color-brand-content": "#1f5f99"},
    "dark_css_variables": {"color-brand-primary": "#7fb2e5", "color-brand-content": "#7fb2e5"},
}
pygments_style = "a11y-high-contrast-light"
pygments_dark_style = "a11y-high-contrast-dark"

# The copy button leaves out prompts and results.
copybutton_prompt_text = r">>> |\.\.\. |\$ "
copybutton_prompt_is_regexp = True
