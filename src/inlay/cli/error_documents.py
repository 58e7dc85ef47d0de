"""Errors as JSON documents, which the commands print on the output if `--json` is given."""

from collections.abc import Sequence
from typing import Any

from inlay.errors import InlayError, NotationError


def is_json_requested(words: Sequence[str]) -> bool:
    """Return whether a command line has the option --json.

    >>> is_json_requested(["show", "nchw", "--json"]), is_json_requested(["info", "--", "--json"])
    (True, False)
    """
    end = words.index("--") if "--" in words else len(words)
    return "--json" in words[:end]


def error_document(error: Exception, message: str) -> dict[str, Any]:
    """Return an error with its class, oneDNN's status, message, and the place of the fault in a text.

    >>> error_document(NotationError("unknown letter", "abXd", 2, 3), "unknown letter")["error"]["place"]
    {'text': 'abXd', 'start': 2, 'end': 3}
    """
    place = None
    if isinstance(error, NotationError):
        place = {"text": error.text, "start": error.start, "end": error.end}
    return {
        "error": {
            "type": type(error).__name__ if isinstance(error, (InlayError, OSError, MemoryError)) else "UsageError",
            "status": error.status if isinstance(error, InlayError) else None,
            "message": message,
            "place": place,
        }
    }
