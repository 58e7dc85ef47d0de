"""The command that prints or writes code for others: `inlay emit`."""

from pathlib import Path
from typing import Annotated

import typer

from inlay.cli.application import (
    TYPE_HELP,
    CleanOption,
    DimsArgument,
    JsonOption,
    TypeOption,
    app,
    clear_abandoned,
    parse_dims,
)
from inlay.cli.output import echo, print_json, write
from inlay.descriptor import MemoryDesc
from inlay.descriptor.compound_desc import parse_desc
from inlay.errors import InvalidArguments, printable

_FORM_HELP = "c, object, numpy, onednn or words."
_TARGET_HELP = "With --form object: x86-64-v2, -v3, -v4, aarch64, aarch64-sve256 or -sve512; this machine if none."


@app.command("emit", short_help="Emit C, an object file, NumPy or oneDNN code for a layout or reorder.")
def emit_code(
    tag: Annotated[str, typer.Argument(metavar="TAG", help="Any text of a layout, or a name such as ggml:Q4_0.")],
    dims: DimsArgument,
    to: Annotated[str | None, typer.Option("--to", metavar="TAG", help="Destination: a reorder is emitted.")] = None,
    form: Annotated[str, typer.Option("--form", metavar="FORM", help=_FORM_HELP)] = "c",
    target: Annotated[str | None, typer.Option("--target", metavar="NAME", help=_TARGET_HELP)] = None,
    output: Annotated[
        Path | None, typer.Option("-o", "--output", metavar="FILE", help="Write FILE, and a header FILE.h beside it.")
    ] = None,
    name: Annotated[str, typer.Option("--name", metavar="NAME", help="Name of functions and variables.")] = "packed",
    data_type: TypeOption = "f32",
    to_type: Annotated[str | None, typer.Option("--to-dtype", metavar="TYPE", help=TYPE_HELP)] = None,
    clean: CleanOption = False,
    as_json: JsonOption = False,
) -> None:
    """Emit code for others: functions in C99 that pack, unpack and give offsets, or the same as an object file.

    Without --to, the code converts between TAG and row-major arrays; with --to, it is one function from TAG to the
    other format. From a compound format, the functions unpack floats and assemble streams. The other forms are the
    NumPy expressions, the C++ call that creates oneDNN's descriptor, and one sentence in words.

    For example:

      inlay emit nChw8c 2x17x5x4 --name act -o act.c

      inlay emit ggml:Q4_0 4096x4096 --name weights -o weights.c

      inlay emit nhwc 8x3x224x224 --to nchw --form object --target aarch64 -o move.o
    """
    # Imported here because it loads LLVM, which doubles the start-up time of other commands.
    from inlay.emission import emit

    src = parse_desc(tag, parse_dims(dims), data_type)
    if to_type is not None and to is None:
        raise InvalidArguments("--to-dtype is the type of the destination of a reorder: give --to TAG too")
    dst = None if to is None else MemoryDesc(parse_dims(dims), to_type or data_type, to)
    code = emit(src, dst, form=form, name=name, target=target)
    if output is None:
        if form == "object":
            raise InvalidArguments("an object file is not printed: name it with --output FILE")
        if as_json:
            print_json({"form": form, "code": str(code), "header": code.header or None, "files": []})
        else:
            write(str(code).removesuffix("\n"))
        return
    clear_abandoned(output, clean)
    files = [str(path) for path in code.save(output)]
    if as_json:
        print_json({"form": form, "code": None, "header": None, "files": files})
    else:
        echo("\n".join(f"wrote {printable(path)}" for path in files))
