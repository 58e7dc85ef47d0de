"""`TokenReader`: the tokens of a text with one token of lookahead, for the parsers of patterns and CuTe layouts."""

import re
from typing import NoReturn

from inlay.errors import NotationError


class TokenReader:
    """The tokens of a text, with one token of lookahead: its `kind`, text `token` and index `start`."""

    def __init__(self, text: str, tokens: re.Pattern[str], error: type[NotationError]) -> None:
        """Begin to read `text`.

        Args:
            text: the text.
            tokens: matches one token at any position, in a group with the name of its kind.
            error: class of the errors that `fail` raises.
        """
        self.text, self._tokens, self._error = text, tokens, error
        self._advance(0)

    def _advance(self, position: int) -> None:
        """Read the token at `position`."""
        match = self._tokens.match(self.text, position)
        assert match is not None, "the last alternatives of the token match anything"
        self.kind = str(match.lastgroup)
        self.token = match[self.kind]
        self.start, self._end = match.span(self.kind)

    def take(self) -> str:
        """Consume and return the token."""
        token = self.token
        self._advance(self._end)
        return token

    def fail(self, problem: str, start: int | None = None, end: int | None = None) -> NoReturn:
        """Raise an error that marks the characters from `start` to `end`, by default the next token."""
        if start is None:
            start, end = self.start, self._end
        raise self._error(problem, self.text, start, start + 1 if end is None else end)
