"""What the terminal can show: how wide it is, how many colors it has, which characters.

Color is used where standard output is a terminal that has it. NO_COLOR (any value) turns it off, FORCE_COLOR on, as
https://no-color.org and https://force-color.org ask. Box drawing is used where the encoding has it.
"""

import io
import os
import shutil
import sys
from dataclasses import dataclass
from typing import Literal, TextIO

Colors = Literal[0, 16, 256]

NARROWEST, WIDEST = 20, 400
"""The widths, in characters, that a picture can have."""


@dataclass(frozen=True, slots=True)
class Glyphs:
    """The characters a picture is made of; all are one column wide."""

    border: str
    """Between two blocks of the strip."""
    hatch: str
    """Fills padding."""
    gap: str
    """Fills memory that belongs to no element."""
    across: str
    """Something is left out to the right."""
    down: str
    """Something is left out below."""


UNICODE = Glyphs("│", "╱", "·", "⋯", "⋮")
ASCII = Glyphs("|", "/", "-", "~", ":")


@dataclass(frozen=True, slots=True)
class Terminal:
    """What a picture may use."""

    width: int = 80
    """Characters across."""
    colors: Colors = 0
    """How many colors there are."""
    glyphs: Glyphs = UNICODE
    """The characters to draw with."""


def this_terminal() -> Terminal:
    """What standard output can show now; 80 characters without color where it is no terminal and says nothing else."""
    columns = shutil.get_terminal_size((80, 24)).columns
    # A process without a console, or one whose output is closed, has no stream at all.
    stream = sys.stdout or io.StringIO()
    return Terminal(min(max(columns, NARROWEST), WIDEST), color_depth(stream), glyphs_of(stream))


def color_depth(stream: TextIO) -> Colors:
    """How many colors `stream` shows, by what it is and by the environment."""
    term = os.environ.get("TERM", "")
    forced = bool(os.environ.get("FORCE_COLOR"))
    if os.environ.get("NO_COLOR") or (not forced and (term == "dumb" or not stream.isatty())):
        return 0
    return 256 if "256" in term or os.environ.get("COLORTERM") in ("truecolor", "24bit") else 16


def glyphs_of(stream: TextIO) -> Glyphs:
    """Box drawing where the encoding of `stream` has it, plain ASCII otherwise."""
    wanted = UNICODE.border + UNICODE.hatch + UNICODE.gap + UNICODE.across + UNICODE.down
    try:
        # A stream without an encoding, such as StringIO, keeps characters as they are.
        wanted.encode(getattr(stream, "encoding", None) or "utf-8")
    except (UnicodeEncodeError, LookupError):
        return ASCII
    return UNICODE
