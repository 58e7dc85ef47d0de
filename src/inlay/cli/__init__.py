"""The command line: parses arguments, calls the library, prints results.

    inlay show nChw8c 2x17x5x4 --offsets
    inlay offset nChw8c 2x17x5x4 1,16,4,3
    inlay info "(m m4 m32) (k k4) -> m k m32 m4 k4" 300x20
    inlay diff nChw8c "n (c c8) h w -> n c h w c8" 2x17x5x4
    inlay names tensorrt:CHW32
    inlay infer table.csv 2x17x5x4
    inlay verify nChw8c 2x17x5x4 packed.npy --logical image.npy
    inlay convert weights.safetensors -o packed.safetensors --to 'conv*.weight=OIhw16i16o'
    inlay convert packed.safetensors -o weights.safetensors --to plain
    inlay info packed.safetensors
    inlay diff weights.safetensors packed.safetensors
    inlay emit nChw8c 2x17x5x4 --name act -o act.c
    inlay explore nChw8c 2x17x5x4
    inlay bench nchw nChw16c 8x64x56x56
    inlay plan resnet50.onnx --html resnet50.html
    inlay run resnet50.onnx --input photo.npy
    inlay plan resnet50.onnx -o resnet50.inlay
    inlay run resnet50.inlay --input photo.npy
    inlay bench model.onnx --batch 8
    inlay doctor
    inlay completion --install

The exit code is 0 after success, 2 after an error, with one message on the error stream, and 130 after Ctrl-C, except
for `inlay explore`, which Ctrl-C ends with 0. It is 1, without a message, if the reader of the output, such as `head`,
ends early, and if `inlay diff` finds that elements of two files differ, or `inlay doctor` finds a fault. With --json,
the output is one JSON document, for an error too. With INLAY_DEBUG in the environment, errors are reported with a
traceback.

Each module uses those before it:

    output              prints text and JSON on the output and the error stream
    overview            the text of `inlay` without a command
    suggestions         commands and options that a user may have meant, texts of errors about arguments
    error_documents     errors as JSON
    application         the application, argument types and progress of measurements, shared by all commands
    file_texts          texts of `inlay info` and `inlay diff` for files
    picture_options     options of `inlay show`: names, chosen coordinates, files
    name_lists          names that match a shell pattern: tags, vendors, types
    layout_documents    layouts, offsets and names as JSON
    layout_commands     `inlay show`, `inlay offset`, `inlay info`, `inlay diff`, `inlay names`
    inference_commands  `inlay infer`, `inlay verify`
    quantization_options
                        options of `inlay convert` that quantize tensors, and that compute floats from quants
    store_options       options of `inlay convert` for files, folders and URLs
    convert_options     options of `inlay convert` for types, limits, workers, checks and reports
    conversion_choices  the values of these options, as arguments of `inlay.storage`
    conversion_progress progress of `inlay convert`, and notes on runs that go on
    convert_command     `inlay convert`
    emit_command        `inlay emit`
    explore_command     `inlay explore`
    network_options     options of the commands on networks, checked and parsed
    precision_options   options of `inlay plan` and `inlay run` for the data types of tensors
    plan_page_options   the option --html of `inlay plan` and `inlay run`: the page of a plan
    profile_options     the options of `inlay run` for a table of steps, a trace and a page
    saved_plan_options  saved plans of `inlay plan -o` and `inlay run`
    run_results         run times and outputs of `inlay run`, as text and as JSON
    network_commands    `inlay plan`, `inlay run`
    bench_command       `inlay bench`
    completion          scripts that complete commands in bash, zsh and fish
    completion_command  `inlay completion`
    extras              the packages of Inlay and of its extras: which are installed
    installation        the facts of an installation: processor, memory, engine, cache directory
    doctor_command      `inlay doctor`

Terms: an *argument* is given by its position, an *option* by its name (POSIX, "Utility Argument Syntax"); a *tier* is
the source of kernel costs: measured, probed or analytic (see `inlay.graph.costs`).
"""

import os
import signal
import sys
import threading
from collections.abc import Sequence
from types import FrameType, TracebackType
from typing import Any

import typer

from inlay import interrupts
from inlay.cli import (  # each adds its commands
    bench_command,
    completion_command,
    convert_command,
    doctor_command,
    emit_command,
    explore_command,
    inference_commands,
    layout_commands,
    network_commands,
)
from inlay.cli.application import app
from inlay.cli.error_documents import error_document, is_json_requested
from inlay.cli.output import echo, open_closed_streams, print_json
from inlay.cli.suggestions import usage_text
from inlay.errors import InlayError

__all__ = ["app", "main"]
_COMMANDS = (
    layout_commands,
    explore_command,
    inference_commands,
    convert_command,
    emit_command,
    network_commands,
    bench_command,
    doctor_command,
    completion_command,
)


_MEMORY_REMEDIES = {
    "convert": "the boxes of a task have to fit: allow less memory for them (--memory 256MB), or free memory",
    "run": "give arrays of a smaller batch, or free memory",
    "plan": "plan a smaller batch (--batch N), or free memory",
    "bench": "give smaller dims or a smaller batch, or free memory",
}
"""Remedies for insufficient memory, by command."""


class _InterruptGuard:
    """A context manager in which Ctrl-C ends the block without a message.

    It suppresses any exception after an interrupt, because the initialization of an extension module turns
    KeyboardInterrupt into ImportError.
    """

    def __init__(self) -> None:
        self.was_interrupted = False
        self._previous: Any = None

    def __enter__(self) -> "_InterruptGuard":
        if threading.current_thread() is not threading.main_thread():
            return self  # only the main thread can install signal handlers
        self._previous = signal.getsignal(signal.SIGINT)
        # Interrupts stay ignored if they are ignored now, as in processes that a shell starts in the background.
        if self._previous in (signal.default_int_handler, interrupts.end):
            signal.signal(signal.SIGINT, self._interrupt)
        return self

    def __exit__(self, kind: type[BaseException] | None, _: BaseException | None, __: TracebackType | None) -> bool:
        if self._previous in (signal.default_int_handler, interrupts.end):
            signal.signal(signal.SIGINT, signal.default_int_handler)
        self.was_interrupted = kind is not None and (
            self.was_interrupted or issubclass(kind, (KeyboardInterrupt, typer.Abort))
        )
        return self.was_interrupted

    def _interrupt(self, _: int, __: FrameType | None) -> None:
        self.was_interrupted = True
        raise KeyboardInterrupt


def _exit_on_signal(signum: int, _: FrameType | None) -> None:
    """Signal handler: exit with the code that shells use for a process ended by this signal."""
    raise SystemExit(128 + signum)


def _report_internal_error(kind: type[BaseException], value: BaseException, _: TracebackType | None) -> None:
    """Handler of uncaught exceptions (`sys.excepthook`): print the exception without a traceback."""
    echo(
        f"internal error: {kind.__name__}: {value}\nthis is a defect of Inlay, please report it; "
        "INLAY_DEBUG=1 shows where it happened",
        err=True,
    )


def main(args: Sequence[str] | None = None) -> int:
    """Run the command line with these arguments (those of the process if None), and return the exit code.

    Errors of Inlay and wrong options are printed as one message on the error stream.
    """
    debug = bool(os.environ.get("INLAY_DEBUG"))
    if args is None:
        _set_up_process(debug)
    words = sys.argv[1:] if args is None else list(args)
    with _InterruptGuard():
        try:
            command = typer.main.get_command(app)
            result = command.main(args=words, prog_name="inlay", standalone_mode=False)
        except (typer.TyperException, InlayError, OSError, MemoryError) as error:
            if debug:
                raise
            message = _message(error, words)
            if is_json_requested(words):
                print_json(error_document(error, message))
            echo(f"error: {message}", err=True)
            return 2
        return result if isinstance(result, int) else 0
    return interrupts.INTERRUPTED


def _set_up_process(debug: bool) -> None:
    """Set up standard streams, signal handlers and the report of internal errors of this process."""
    open_closed_streams()
    if not debug:
        sys.excepthook = _report_internal_error
    # SIGTERM, and SIGHUP when the terminal closes, run the same clean-up as Ctrl-C.
    for name in ("SIGTERM", "SIGHUP"):
        number = getattr(signal, name, None)
        if number is not None and signal.getsignal(number) is signal.SIG_DFL:  # `nohup` ignores SIGHUP
            signal.signal(number, _exit_on_signal)


def _message(error: typer.TyperException | InlayError | OSError | MemoryError, words: Sequence[str]) -> str:
    """Return the message for an error, with a remedy; `words` are the arguments of the command line."""
    if isinstance(error, typer.TyperException):
        return usage_text(error)
    if isinstance(error, InlayError):
        return str(error)
    if isinstance(error, OSError):
        return f"the operating system refuses: {error}; check memory, disk and permissions"
    command = next((word for word in words if word in _MEMORY_REMEDIES), "bench")
    return f"the memory of this machine does not suffice: {_MEMORY_REMEDIES[command]}"
