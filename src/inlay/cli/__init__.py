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
"""

import os
import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from types import FrameType, TracebackType

import typer

from inlay.cli import converting, describing, networks, timing  # each adds its commands
from inlay.cli.application import app
from inlay.errors import InlayError
from inlay.files import file_error

__all__ = ["app", "main"]
_COMMANDS = (describing, converting, networks, timing)


def _stop(signum: int, _: FrameType | None) -> None:
    raise SystemExit(128 + signum)


def _report_defect(kind: type[BaseException], value: BaseException, _: TracebackType | None) -> None:
    print(
        f"internal error: {kind.__name__}: {value}\nthis is a defect of Inlay, please report it; "
        "INLAY_DEBUG=1 shows where it happened",
        file=sys.stderr,
    )


def main(args: Sequence[str] | None = None) -> int:
    """Run the command line `args` (those of the process by default) and return its exit code.

    Every error that Inlay raises on purpose, and every misuse of an option, is one message on the error stream.
    """
    debug = bool(os.environ.get("INLAY_DEBUG"))
    if args is None and not debug:
        sys.excepthook = _report_defect
    if args is None:
        # A polite request to end runs the same clean-up as Ctrl-C.
        signal.signal(signal.SIGTERM, _stop)
    try:
        command = typer.main.get_command(app)
        result = command.main(args=None if args is None else list(args), prog_name="inlay", standalone_mode=False)
    except (typer.TyperException, InlayError, OSError, MemoryError) as error:
        if debug:
            raise
        print(f"error: {_message(error)}", file=sys.stderr)
        return 2
    except (KeyboardInterrupt, typer.Abort):
        return 130
    return result if isinstance(result, int) else 0


def _message(error: typer.TyperException | InlayError | OSError | MemoryError) -> str:
    """What is wrong and what helps."""
    if isinstance(error, typer.TyperException):
        context = getattr(error, "ctx", None)
        remedy = f"\nsee `{context.command_path} --help`" if context else ""
        return f"{error.format_message()}{remedy}"
    if isinstance(error, InlayError):
        return str(error)
    if isinstance(error, OSError):
        return str(file_error("write", Path("the output"), error))
    return "the memory of this machine does not suffice; convert fewer tensors at once"
