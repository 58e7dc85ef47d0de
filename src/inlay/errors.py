r"""Exceptions and warnings of Inlay, and the quotation of values and untrusted texts in messages.

An error text names the rule, the value, the argument and the remedy. Each class is also a built-in exception, so that
code can catch it without knowing Inlay. The classes that correspond to a oneDNN status have its name as `status`.

Names of tensors, nodes and files are untrusted: they could contain codes that move the cursor of a terminal, set its
title or imitate another line. `printable` escapes them before they appear in a terminal or a picture: every character
that Python calls not printable, such as control codes, direction marks, surrogates and unassigned code points.

>>> print(printable("n\x1b]0;title\x07\nb"))
n\x1b]0;title\x07\nb
"""

from typing import ClassVar


class InlayError(Exception):
    """The base class of all errors that Inlay raises on purpose."""

    status: ClassVar[str | None] = None
    """Name of the oneDNN status of the same meaning; None if there is none."""


class InvalidArguments(InlayError, ValueError):
    """An argument is invalid for an operation (oneDNN's `invalid_arguments`)."""

    status = "invalid_arguments"


class InvalidIndex(InvalidArguments, IndexError):
    """An index selects no element of a memory, or elements that no view describes."""


class Unimplemented(InlayError, NotImplementedError):
    """The arguments are valid, but the operation does not support them (oneDNN's `unimplemented`)."""

    status = "unimplemented"


class OutOfMemory(MemoryError, InlayError):  # in this order, tblib (of Dask) can pickle it: `__new__` is MemoryError's
    """A buffer could not be allocated (oneDNN's `out_of_memory`)."""

    status = "out_of_memory"


class MissingExtra(InlayError, ImportError):
    """An optional dependency is not installed; the error names the command that installs it."""


class FileError(InlayError, OSError):
    """A file is missing, truncated, of another format, or cannot be written."""


class NotationError(InvalidArguments):
    """A text in one of Inlay's notations cannot be parsed; the error marks the wrong characters with carets.

    >>> print(NotationError("unknown letter", "abXd", 2, 3))
    unknown letter
        abXd
        ~~^
    """

    def __init__(self, problem: str, text: str, start: int, end: int) -> None:
        """Create an error for the characters from `start` (inclusive) to `end` (exclusive) of `text`."""
        self.problem = problem
        self.text = text
        self.start = start
        self.end = end
        line, first = _window(text, start, end)
        marker = "~" * first + "^" * max(1, min(end - start, len(line) - first))
        super().__init__(f"{problem}\n    {line}\n    {marker}")

    def __reduce__(self) -> tuple[type["NotationError"], tuple[str, str, int, int]]:
        """Pickle by the four arguments; exceptions are otherwise pickled by their text only."""
        return type(self), (self.problem, self.text, self.start, self.end)


class FormatTagError(NotationError):
    """A text is not a format tag."""


class PatternError(NotationError):
    """A text is not a layout pattern."""


class InlayWarning(UserWarning):
    """The base class of all warnings of Inlay; the result is right in spite of a warning."""


class PerformanceWarning(InlayWarning):
    """An operation is much slower than necessary; the warning names the reason and the remedy."""


class StalePlanWarning(InlayWarning):
    """A saved plan is for another processor, engine or version of Inlay, and its network is planned again."""


# Values in messages


_MAX_CHARACTERS = 200
"""Length limit of a value in a message, in characters."""


def _window(text: str, start: int, end: int) -> tuple[str, int]:
    """Return the part of a long text around the fault at `start` to `end`, and the index of the fault in this part."""
    # Half a surrogate pair cannot be printed.
    line = text.encode("utf-8", "replace").decode("utf-8")
    if len(line) <= _MAX_CHARACTERS:
        return line, start
    begin = max(0, min(start, len(line)) - _MAX_CHARACTERS // 2)
    part = line[begin : begin + _MAX_CHARACTERS]
    before, after = "..." if begin else "", "..." if begin + _MAX_CHARACTERS < len(line) else ""
    return f"{before}{part}{after}", start - begin + len(before)


_REPR_ERRORS = (ArithmeticError, AttributeError, LookupError, RuntimeError, TypeError, ValueError)
"""Errors of a `repr` that are ignored."""


def shown(value: object, most: int = _MAX_CHARACTERS) -> str:
    """Return the text of a value in a message: its `repr` in at most `most` characters, or the shape of an array.

    This never fails, so that an error about a wrong argument can always be raised. The `repr` itself may fail: Python
    does not print integers of more than 4,300 digits, and the `repr` of other classes may have defects.

    >>> shown((2, 3)), shown(10**5000), shown("x" * 300, most=12)
    ('(2, 3)', 'an integer of 16610 bits', "'xxxxxxxx...")
    """
    shape = getattr(value, "shape", None)
    if isinstance(shape, tuple) and shape and not isinstance(value, type):
        return f"a {type(value).__name__} of shape {shape}"
    if isinstance(value, int) and value.bit_length() > 4 * most:
        return f"an integer of {value.bit_length()} bits"
    try:
        text = repr(value)
    except _REPR_ERRORS:
        return f"a {type(value).__name__} that cannot be printed"
    # Half a surrogate pair cannot be encoded, so it is escaped.
    text = text.encode("utf-8", "backslashreplace").decode("utf-8")
    return text if len(text) <= most else f"{text[: most - 3]}..."


def printable(text: str) -> str:
    """Return `text` on one line, with the characters that are not printable as escapes of Python's string literals."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode("ascii") for c in text)


def printable_lines(text: str) -> str:
    """Return `text` with each line as `printable` returns it, for texts with line ends by Inlay itself."""
    return text if text.isprintable() else "\n".join(map(printable, text.split("\n")))
