"""The border between Inlay and a terminal: everything that a command prints passes here.

Whatever names from files are in it, no control code gets out (see `printable`). A stream that is closed swallows what
is written to it; one that cannot take it is an error of its own, not one of the files that are converted.
"""

import errno
import os
import sys

import typer

from inlay.errors import FileError, printable_lines
from inlay.files import reason_of


def echo(text: str, *, err: bool = False) -> None:
    """Print `text` and a line end on the output, or on the error stream.

    Raises:
        FileError: the stream cannot be written, as on a full disk.
    """
    write(printable_lines(text), err=err)


def write(text: str, *, err: bool = False) -> None:
    """Print `text`, which may set colors, and a line end.

    Raises:
        FileError: the stream cannot be written, as on a full disk.
    """
    try:
        typer.echo(text, err=err)
    except OSError as error:
        if error.errno == errno.EPIPE:  # the reader has enough: the command line ends without a word
            raise
        raise FileError(f"cannot write the {'error stream' if err else 'output'}: {reason_of(error)}") from error


def open_closed_streams() -> None:
    """Put the null device where a standard stream is closed, as by `>&-` or in a daemon.

    Otherwise the next file that is opened takes the number of the stream, and what a library prints lands in it.
    """
    for number, name, mode in ((0, "stdin", "r"), (1, "stdout", "w"), (2, "stderr", "w")):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # the lowest number that is free: this one
        if getattr(sys, name) is None:
            setattr(sys, name, open(number, mode, encoding="utf-8", closefd=False))  # noqa: SIM115
