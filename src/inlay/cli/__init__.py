"""The command line: parse, call, print.

    inlay show nChw8c 2x17x5x4 --offsets
    inlay offset nChw8c 2x17x5x4 1,16,4,3
    inlay convert weights.safetensors -o packed.safetensors --to 'conv*.weight=OIhw16i16o'
    inlay convert packed.safetensors -o weights.safetensors --to plain
    inlay bench nchw nChw16c 8x64x56x56
    inlay plan resnet50.onnx --picture resnet50.html
    inlay run resnet50.onnx --input photo.npy
    inlay bench model.onnx --batch 8

The exit code is 0 when all went well, 2 with one message on the error stream when it did not, and 130 after Ctrl-C; it
is 1, without a message, where the reader of the output, such as `head`, stops early. With INLAY_DEBUG set in the
environment an error keeps its traceback.

`application` has the application and the kinds of arguments that commands share, `output` prints; the commands are in
`describing` (show, offset, names), `converting`, `networks` (plan, run) and `timing` (bench).
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
from inlay.cli import bench_command, convert_command, layout_commands, network_commands  # each adds its commands
from inlay.cli.application import app
from inlay.cli.output import echo, open_closed_streams
from inlay.errors import InlayError

__all__ = ["app", "main"]
_COMMANDS = (layout_commands, convert_command, network_commands, bench_command)


_MEMORY = {
    "convert": "the largest tensor and its result have to fit; free memory, or convert to a smaller type",
    "run": "give arrays of a smaller batch, or free memory",
    "plan": "plan a smaller batch (--batch N), or free memory",
    "bench": "give smaller dims or a smaller batch, or free memory",
}
"""What helps where memory does not suffice, by command."""


class _Interrupts:
    """A block that Ctrl-C ends without a word, whatever became of the interrupt on its way out.

    In an extension module that is being loaded it turns into an import that failed.
    """

    def __init__(self) -> None:
        self.happened = False
        self._before: Any = None

    def __enter__(self) -> "_Interrupts":
        if threading.current_thread() is not threading.main_thread():
            return self  # which alone hears of signals
        self._before = signal.getsignal(signal.SIGINT)
        # A shell starts what it puts in the background with interrupts ignored: that stays.
        if self._before in (signal.default_int_handler, interrupts.end):
            signal.signal(signal.SIGINT, self._interrupt)
        return self

    def __exit__(self, kind: type[BaseException] | None, _: BaseException | None, __: TracebackType | None) -> bool:
        if self._before in (signal.default_int_handler, interrupts.end):
            signal.signal(signal.SIGINT, signal.default_int_handler)
        self.happened = kind is not None and (self.happened or issubclass(kind, (KeyboardInterrupt, typer.Abort)))
        return self.happened

    def _interrupt(self, _: int, __: FrameType | None) -> None:
        self.happened = True
        raise KeyboardInterrupt


def _stop(signum: int, _: FrameType | None) -> None:
    raise SystemExit(128 + signum)


def _report_defect(kind: type[BaseException], value: BaseException, _: TracebackType | None) -> None:
    echo(
        f"internal error: {kind.__name__}: {value}\nthis is a defect of Inlay, please report it; "
        "INLAY_DEBUG=1 shows where it happened",
        err=True,
    )


def main(args: Sequence[str] | None = None) -> int:
    """Run the command line `args` (those of the process by default) and return its exit code.

    Every error that Inlay raises on purpose, and every misuse of an option, is one message on the error stream.
    """
    debug = bool(os.environ.get("INLAY_DEBUG"))
    if args is None:
        _take_over(debug)
    words = sys.argv[1:] if args is None else list(args)
    with _Interrupts():
        try:
            command = typer.main.get_command(app)
            result = command.main(args=words, prog_name="inlay", standalone_mode=False)
        except (typer.TyperException, InlayError, OSError, MemoryError) as error:
            if debug:
                raise
            echo(f"error: {_message(error, words)}", err=True)
            return 2
        return result if isinstance(result, int) else 0
    return interrupts.INTERRUPTED


def _take_over(debug: bool) -> None:
    """Make this process that of a command: its streams, its requests to end, its defects."""
    open_closed_streams()
    if not debug:
        sys.excepthook = _report_defect
    # A polite request to end, or a terminal that closes, runs the same clean-up as Ctrl-C.
    for name in ("SIGTERM", "SIGHUP"):
        number = getattr(signal, name, None)
        if number is not None and signal.getsignal(number) is signal.SIG_DFL:  # `nohup` ignores the second
            signal.signal(number, _stop)


def _message(error: typer.TyperException | InlayError | OSError | MemoryError, words: Sequence[str]) -> str:
    """What is wrong and what helps."""
    if isinstance(error, typer.TyperException):
        context = getattr(error, "ctx", None)
        remedy = f"\nsee `{context.command_path} --help`" if context else ""
        return f"{error.format_message()}{remedy}"
    if isinstance(error, InlayError):
        return str(error)
    if isinstance(error, OSError):
        return f"the operating system refuses: {error}; check memory, disk and permissions"
    command = next((word for word in words if word in _MEMORY), "bench")
    return f"the memory of this machine does not suffice: {_MEMORY[command]}"
