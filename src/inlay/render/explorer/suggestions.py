"""Layouts that resemble a text that names none: "did you mean" of the explorer.

>>> suggest_layouts("nchw8c", 4), suggest_layouts("CHW32", 4)
(['nChw8c'], ['tensorrt:CHW32', 'megengine:NCHW32'])
"""

import re
from collections.abc import Iterator

from inlay.errors import InlayError
from inlay.notation import parse_notation
from inlay.notation.dictionary import list_rows
from inlay.notation.format_tag import ALIASES

_MOST = 3
"""Number of suggestions."""
_TAG = re.compile(r"([A-Za-z]+)((?:[0-9]+[A-Za-z])*)")
_SWIZZLE = re.compile(r"((?:Swizzle|Sw|S)\s*<[^>]*>)\s*([^\so].*)")
_WORDS = re.compile(r"[A-Za-z]\w*(?:\s+[A-Za-z]\w*)+")


def suggest_layouts(text: str, ndims: int | None = None) -> list[str]:
    """Return up to three texts that name layouts and resemble `text`, the nearest first.

    If a small change makes `text` a layout, the result is the changed text alone. If some of the resembling names have
    `ndims` axes, the result has only these.

    Post-condition: `parse_notation` accepts each of them.

    >>> suggest_layouts("nhwx", 4), suggest_layouts("n c h w", 4), suggest_layouts("Swizzle<3,4,3> nchw", 4)
    (['nhwc', 'nchw', 'tensorflow:NHWC'], ['n c h w -> n c h w'], ['Swizzle<3,4,3> o nchw'])
    """
    stripped = text.strip()
    if not stripped:
        return []
    corrected = [name for name in _corrections(stripped) if _axis_count(name)]
    if corrected:
        return corrected[:1]
    axes = {name: count for name in dict.fromkeys(_similar_names(stripped)) if (count := _axis_count(name))}
    return ([name for name, count in axes.items() if count == ndims] or list(axes))[:_MOST]


def suggest_formats(text: str, ndims: int) -> list[str]:
    """Return up to two aliases of `ndims` axes that resemble the format `text`, if it has another number of axes.

    >>> suggest_formats("nChw16c", 5), suggest_formats("nChw16c", 4)
    (['nCdhw16c', 'nCdhw8c'], [])
    """
    import difflib  # slow to import, and only mistakes need it

    if _axis_count(text.strip()) == ndims:
        return []
    aliases = [alias for alias in ALIASES if _axis_count(alias) == ndims]
    return difflib.get_close_matches(text.strip(), aliases, n=2, cutoff=0.6)


def _corrections(text: str) -> Iterator[str]:
    """Yield texts that `text` becomes by a small change, whether they name a layout or not."""
    tag, swizzled = _TAG.fullmatch(text), _SWIZZLE.fullmatch(text)
    if tag is not None:  # axes are in upper case exactly if they have blocks
        blocks = tag[2].lower()
        yield "".join(c.upper() if c.lower() in blocks else c.lower() for c in tag[1]) + blocks
    if swizzled is not None:
        yield f"{swizzled[1]} o {swizzled[2]}"
    if _WORDS.fullmatch(text):
        yield f"{text} -> {text}"


def _similar_names(text: str) -> Iterator[str]:
    """Yield aliases and names of vendors that resemble `text`, the nearest first."""
    import difflib

    names = [row.name for row in list_rows()]
    own = {name.partition(":")[2].lower(): name for name in reversed(names)}
    yield from (name for name in names if name.partition(":")[2].lower() == text.lower())
    yield from (name for name in (*ALIASES, *names) if name.lower() == text.lower())
    yield from difflib.get_close_matches(text, ALIASES, n=_MOST, cutoff=0.7)
    yield from difflib.get_close_matches(text, names, n=_MOST, cutoff=0.7)
    yield from (own[name] for name in difflib.get_close_matches(text.lower(), own, n=_MOST, cutoff=0.7))


def _axis_count(text: str) -> int:
    """Return the number of axes of the layout that `text` names, 0 if it names none."""
    try:
        return parse_notation(text).ndims
    except InlayError:
        return 0
