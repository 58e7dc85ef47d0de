r"""Every error that Inlay raises on purpose, every warning, and texts as messages may show them.

An error says the rule, the value, the place and the remedy. Each class is also a built-in exception, so code that
knows nothing of Inlay can catch it, and the classes that mirror a oneDNN status carry its name as `status`.

Names of tensors, nodes and files come from anywhere, and must not move the cursor, set a title or imitate another line.
What is shown of them, in a terminal or in a picture, passes `printable`: every character that Python calls not
printable, such as control codes, marks of text direction, surrogates and code points that mean nothing, is written as
its escape.

>>> print(printable("n\x1b]0;title\x07\nb"))
n\x1b]0;title\x07\nb
"""

from typing import ClassVar


class InlayError(Exception):
    """The base of every error raised on purpose by Inlay."""

    status: ClassVar[str | None] = None
    """The oneDNN status of the same meaning, or None where oneDNN has none."""


class InvalidArguments(InlayError, ValueError):
    """A value breaks a rule of the operation it was given to (oneDNN's `invalid_arguments`)."""

    status = "invalid_arguments"


class Unimplemented(InlayError, NotImplementedError):
    """A legal request that this operation cannot carry out (oneDNN's `unimplemented`)."""

    status = "unimplemented"


class OutOfMemory(InlayError, MemoryError):
    """A buffer could not be allocated (oneDNN's `out_of_memory`)."""

    status = "out_of_memory"


class MissingExtra(InlayError, ImportError):
    """An optional dependency is not installed; the text names the command that installs it."""


class FileError(InlayError, OSError):
    """A file is missing, truncated, of another format, or cannot be written."""


class NotationError(InvalidArguments):
    """A text in one of Inlay's notations cannot be read; shows the text with a caret span under the fault.

    >>> print(NotationError("unknown letter", "abXd", 2, 3))
    unknown letter
        abXd
        ~~^
    """

    def __init__(self, problem: str, text: str, start: int, end: int) -> None:
        """State `problem` about the characters `start` (inclusive) to `end` (exclusive) of `text`."""
        self.problem = problem
        self.text = text
        self.start = start
        self.end = end
        line, first = _window(text, start, end)
        marker = "~" * first + "^" * max(1, min(end - start, len(line) - first))
        super().__init__(f"{problem}\n    {line}\n    {marker}")

    def __reduce__(self) -> tuple[type["NotationError"], tuple[str, str, int, int]]:
        """Pickle by the four arguments: the built-in rule would pass the finished text only."""
        return type(self), (self.problem, self.text, self.start, self.end)


class FormatTagError(NotationError):
    """A text is not a format tag."""


class PatternError(NotationError):
    """A text is not a layout pattern."""


class InlayWarning(UserWarning):
    """The base of every warning of Inlay: the result is right, and something about it is worth knowing."""


class PerformanceWarning(InlayWarning):
    """What was asked for is computed far more slowly than it could be; the text says why, and what to do."""


# Texts as messages show them


_MAX_CHARACTERS = 200


def _window(text: str, start: int, end: int) -> tuple[str, int]:
    """The part of a text that a message shows, and where the fault starts in it: all of it unless it is long."""
    # Half a surrogate pair cannot be printed.
    line = text.encode("utf-8", "replace").decode("utf-8")
    if len(line) <= _MAX_CHARACTERS:
        return line, start
    begin = max(0, min(start, len(line)) - _MAX_CHARACTERS // 2)
    part = line[begin : begin + _MAX_CHARACTERS]
    before, after = "..." if begin else "", "..." if begin + _MAX_CHARACTERS < len(line) else ""
    return f"{before}{part}{after}", start - begin + len(before)


_WHILE_PRINTING = (ArithmeticError, AttributeError, LookupError, RuntimeError, TypeError, ValueError)


def shown(value: object, most: int = _MAX_CHARACTERS) -> str:
    """A value as messages show it: its `repr` in at most `most` characters, whatever the value is.

    Python refuses to print integers of more than 4,300 digits, lists may hold themselves, and the `repr` of somebody
    else's class may fail; a message about a wrong argument must come out all the same. Of an array it is the shape.

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
    except _WHILE_PRINTING:
        return f"a {type(value).__name__} that cannot be printed"
    # What cannot be encoded, such as half a surrogate pair, could not be printed either.
    text = text.encode("utf-8", "backslashreplace").decode("utf-8")
    return text if len(text) <= most else f"{text[: most - 3]}..."


def printable(text: str) -> str:
    """`text` in one line, with the escapes of Python's string literals for what is not printable."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode("ascii") for c in text)


def printable_lines(text: str) -> str:
    """The lines of `text`, each as `printable` writes it: for texts whose line ends are Inlay's own."""
    return text if text.isprintable() else "\n".join(map(printable, text.split("\n")))
