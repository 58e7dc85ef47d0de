"""Corrections of Sphinx' markup for readers of the screen and users of the keyboard.

>>> make_accessible('<p class="caption" role="heading">Learn</p><pre>code</pre>')
'<p class="caption" role="heading" aria-level="2">Learn</p><pre tabindex="0">code</pre>'
"""

import re

_PARAMETERS = re.compile(r'(<span class="sig-paren">\(</span>)\s*<dl>(.*?)</dl>', re.DOTALL)
_SCROLLED_TABLE = re.compile(r'<div class="table-wrapper([^"]*)">')


def make_accessible(markup: str) -> str:
    """Return HTML in which axe finds no serious fault.

    Captions of the table of contents get a level, blocks of code and wide tables can be scrolled by keyboard, and
    parameters on lines of their own are no list of definitions without terms.
    """
    markup = markup.replace(' role="heading">', ' role="heading" aria-level="2">')
    markup = markup.replace("<pre>", '<pre tabindex="0">')
    markup = _SCROLLED_TABLE.sub(r'<div class="table-wrapper\1" tabindex="0">', markup)
    return _PARAMETERS.sub(_spans, markup)


def _spans(match: re.Match[str]) -> str:
    """Return the lines of a signature as spans."""
    lines = match[2].replace("<dd>", '<span class="sig-line">').replace("</dd>", "</span>")
    return f'{match[1]}<span class="sig-lines">{lines}</span>'
