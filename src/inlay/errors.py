"""Every error that Inlay raises on purpose, and every warning.

An error says the rule, the value, the place and the remedy. Each class is also a built-in exception, so code that
knows nothing of Inlay can catch it, and the classes that mirror a oneDNN status carry its name as `status`.
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


class InlayWarning(UserWarning):
    """The base of every warning of Inlay: the result is right, and something about it is worth knowing."""


class PerformanceWarning(InlayWarning):
    """What was asked for is computed far more slowly than it could be; the text says why, and what to do."""


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
        marker = "~" * start + "^" * max(1, end - start)
        super().__init__(f"{problem}\n    {text}\n    {marker}")

    def __reduce__(self) -> tuple[type["NotationError"], tuple[str, str, int, int]]:
        """Pickle by the four arguments: the built-in rule would pass the finished text only."""
        return type(self), (self.problem, self.text, self.start, self.end)


class FormatTagError(NotationError):
    """A text is not a format tag."""


class PatternError(NotationError):
    """A text is not a layout pattern."""
