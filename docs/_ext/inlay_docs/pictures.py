"""Pictures of Inlay in a page of the site: drawn from text, and with colors that follow the theme of the page."""

import re
from pathlib import Path
from typing import Any

import numpy as np

import inlay

_TAG_AND_DIMS = re.compile(r"(?P<layout>\S+)\s+(?P<dims>\d+(?:x\d+)*)(?:\s+(?P<type>\w+))?")
_DARK = "@media (prefers-color-scheme:dark){"


def evaluate(text: str) -> Any:
    """Return what a directive names: `nChw8c 2x17x5x4 bf16`, whose type is f32 if left out, or an expression of Python.

    >>> evaluate("nChw8c 2x17x5x4")
    MemoryDesc((2, 17, 5, 4), 'f32', 'nChw8c')
    >>> evaluate('inlay.MemoryDesc((2, 3), "u8", "ba")').tag
    'ba'
    """
    match = _TAG_AND_DIMS.fullmatch(text.strip())
    if match:
        dims = tuple(map(int, match["dims"].split("x")))
        return inlay.MemoryDesc(dims, match["type"] or "f32", match["layout"])
    return eval(text, {"inlay": inlay, "np": np})


def draw(text: str, **options: Any) -> str:
    """Return the picture of what a directive names as an `svg` element for a page."""
    value = evaluate(text)
    picture = value if hasattr(value, "svg") else inlay.show(value, **options)
    return follow_theme(picture.svg())


def inline_picture(path: Path) -> str:
    """Return the `svg` element of a file for a page."""
    return follow_theme(path.read_text())


def with_suffix(svg: str, suffix: str) -> str:
    """Return a picture whose identifiers end in a suffix, so that a page can show it twice.

    >>> with_suffix('<svg aria-labelledby="a b"><title id="a"/><desc id="b"/><use href="#a"/></svg>', "-1")
    '<svg aria-labelledby="a-1 b-1"><title id="a-1"/><desc id="b-1"/><use href="#a-1"/></svg>'
    """
    names = set(re.findall(r'\bid="([^"]+)"', svg))

    def renamed(match: re.Match[str]) -> str:
        return re.sub(r"[^\s\"'#()=]+", lambda word: word[0] + suffix * (word[0] in names), match[0])

    return re.sub(r'\b(?:id|aria-labelledby|aria-describedby)="[^"]+"|href="#[^"]+"|url\(#[^)]+\)', renamed, svg)


def follow_theme(svg: str) -> str:
    """Return a picture whose dark colors follow the theme of the page, and not that of the system alone.

    >>> follow_theme("<style>.a{fill:#fff}" + _DARK + ".a{fill:#000}}</style>").count('body[data-theme="dark"] .a')
    1
    """
    before, found, rest = svg.partition(_DARK)
    if not found:
        return svg
    end = _closing_brace(rest)
    rules, after = rest[:end], rest[end + 1 :]
    always = _with_prefix(rules, 'body[data-theme="dark"]')
    automatic = _with_prefix(rules, 'body[data-theme="auto"]')
    return f"{before}{always}\n@media screen and (prefers-color-scheme:dark){{{automatic}}}{follow_theme(after)}"


def _closing_brace(text: str) -> int:
    """Return the index of the brace that closes one which was opened before the text."""
    depth = 1
    for match in re.finditer(r"[{}]", text):
        depth += 1 if match[0] == "{" else -1
        if not depth:
            return match.start()
    return len(text)


def _with_prefix(rules: str, prefix: str) -> str:
    """Return rules of a style sheet whose selectors hold within another selector."""

    def prefixed(rule: re.Match[str]) -> str:
        selectors = ",".join(f"{prefix} {one.strip()}" for one in rule[1].split(","))
        return f"{selectors}{{{rule[2]}}}"

    return re.sub(r"([^{}]+)\{([^{}]*)\}", prefixed, rules)
