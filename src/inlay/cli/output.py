"""Output of commands to the terminal: all text that a command prints passes through this module.

Control codes in names from files are escaped (see `printable`). Text for a closed stream is discarded. An error of a
stream is reported as such, and not as an error of the files that the command reads or writes.
"""

import errno
import json
import os
import sys
from math import isfinite
from typing import Any

import typer

from inlay.errors import FileError, printable_lines
from inlay.files import reason_of


def echo(text: str, *, err: bool = False) -> None:
    """Print `text`, with control codes escaped, and a line end on the output or the error stream.

    Raises:
        FileError: the stream cannot be written, as on a full disk.
    """
    write(printable_lines(text), err=err)


def write(text: str, *, err: bool = False) -> None:
    """Print `text` and a line end on the output or the error stream, with its color codes: who drew it chose them.

    Raises:
        FileError: the stream cannot be written, as on a full disk.
    """
    try:
        typer.echo(text, err=err, color=True)
    except OSError as error:
        if error.errno == errno.EPIPE:  # the reader of the output ended: the command ends without a message
            raise
        raise FileError(f"cannot write the {'error stream' if err else 'output'}: {reason_of(error)}") from error


def print_json(document: Any) -> None:
    """Print a JSON document on the output, see `json_text`.

    Raises:
        FileError: the output cannot be written, as on a full disk.
    """
    echo(json_text(document))


def json_text(document: Any) -> str:
    r"""Return a JSON document as text; numbers that JSON cannot express, NaN and infinities, are null.

    >>> json_text({"ms": float("nan")})
    '{\n  "ms": null\n}'
    """
    return json.dumps(_without_nonfinite(document), indent=2)


def _without_nonfinite(value: Any) -> Any:
    """Return a JSON value in which NaN and infinities are None."""
    if isinstance(value, dict):
        return {key: _without_nonfinite(entry) for key, entry in value.items()}
    if isinstance(value, (list, tuple)):
        return [_without_nonfinite(entry) for entry in value]
    return None if isinstance(value, float) and not isfinite(value) else value


def open_closed_streams() -> None:
    """Open the null device for each standard stream that is closed, as by `>&-` or in a daemon.

    Otherwise the next file that is opened gets the descriptor of the stream, and a library that prints writes to it.
    """
    for number, name, mode in ((0, "stdin", "r"), (1, "stdout", "w"), (2, "stderr", "w")):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # gets the lowest free descriptor, which is `number`
        if getattr(sys, name) is None:
            setattr(sys, name, open(number, mode, encoding="utf-8", closefd=False))  # noqa: SIM115
