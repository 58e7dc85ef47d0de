"""Options of `inlay convert` that quantize tensors, and that compute floats from quants."""

from typing import Annotated

import typer

TargetFormatOption = Annotated[
    list[str] | None,
    typer.Option(
        "--to",
        metavar="[PATTERN=]TAG",
        help="New format: tag, pattern, shape:stride or blocks (ggml:Q8_0); `plain` is row-major.",
    ),
]
QuantizeOption = Annotated[
    str | None,
    typer.Option(
        "--quantize",
        metavar="absmax[:AXIS|:group=N]",
        help="Quantize floats to --dtype s8, s4, f8_e4m3, f8_e5m2, mxfp4 or nvfp4, or to blocks (--to ggml:Q8_0).",
    ),
]
ScalesOption = Annotated[
    str, typer.Option("--scales", metavar="PATTERN", help="Names of scales; {name} is that of the tensor.")
]
ScalesFormatOption = Annotated[
    str | None, typer.Option("--scales-to", metavar="TAG", help="Format of scales; row-major unless given.")
]
ScalesTypeOption = Annotated[
    str | None, typer.Option("--scales-dtype", metavar="TYPE", help="Data type of scales: f32, bf16 or f16.")
]
DequantizeOption = Annotated[
    bool, typer.Option("--dequantize", help="Convert quants with scales, and blocks, to floats (of --dtype).")
]
