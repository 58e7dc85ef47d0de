"""The command that converts the memory formats of tensors in files: `inlay convert`."""

import json
from pathlib import Path
from typing import TYPE_CHECKING

from inlay.cli.application import CleanOption, JsonOption, app
from inlay.cli.conversion_choices import ExecutionChoices, FormatChoices, StoreChoices, make_plan
from inlay.cli.conversion_progress import ConversionProgress
from inlay.cli.convert_options import (
    AllowLossOption,
    DaskOption,
    DryRunOption,
    MemoryOption,
    NewTypeOption,
    OverwriteOption,
    ReportOption,
    RestartOption,
    VerifyOption,
    WorkersOption,
)
from inlay.cli.output import echo, print_json
from inlay.cli.quantization_options import (
    DequantizeOption,
    QuantizeOption,
    ScalesFormatOption,
    ScalesOption,
    ScalesTypeOption,
    TargetFormatOption,
)
from inlay.cli.store_options import (
    ChunksOption,
    OffsetOption,
    ShardSizeOption,
    SourceDimsOption,
    SourceFormatOption,
    SourceTypeOption,
    StagingOption,
    StoreArgument,
    TargetStoreOption,
)
from inlay.errors import printable
from inlay.files import atomic_write
from inlay.measure.interleaved import time_call

if TYPE_CHECKING:
    from inlay.storage import ConversionPlan, ConversionReport


@app.command(short_help="Convert the tensors of a file to another format.")
def convert(
    source: StoreArgument,
    target: TargetStoreOption,
    to: TargetFormatOption = None,
    from_: SourceFormatOption = None,
    data_type: NewTypeOption = None,
    dims: SourceDimsOption = None,
    source_type: SourceTypeOption = None,
    offset: OffsetOption = None,
    shard_size: ShardSizeOption = None,
    staging: StagingOption = None,
    chunks: ChunksOption = None,
    quantize: QuantizeOption = None,
    scales: ScalesOption = "{name}_scale",
    scales_to: ScalesFormatOption = None,
    scales_type: ScalesTypeOption = None,
    dequantize: DequantizeOption = False,
    allow_loss: AllowLossOption = False,
    memory: MemoryOption = None,
    overwrite: OverwriteOption = False,
    verify: VerifyOption = False,
    report: ReportOption = None,
    workers: WorkersOption = None,
    dask: DaskOption = None,
    restart: RestartOption = False,
    clean: CleanOption = False,
    dry_run: DryRunOption = False,
    as_json: JsonOption = False,
) -> None:
    """Convert the tensors of a file to another format; padding is added and removed as the format requires.

    IN and OUT are files, folders of sharded checkpoints, or URLs. A .bin, .raw or .dat file of raw bytes needs --dims
    and --dtype. Without --to, tensors are copied to a file of another kind.

    PATTERN is a shell pattern for tensor names. The first --to that matches a tensor applies; tensors that no --to
    matches are copied unchanged. Descriptors of packed tensors are stored in the .safetensors file, so --to plain
    restores the original bit for bit.

    If over 0.1 % of the non-zero elements of a tensor would become 0 or saturate in the type of --dtype, nothing is
    written, unless --allow-loss is given.

    With --quantize, the elements of a tensor, of each coordinate of AXIS, or of each group along the last axis share a
    scale, their greatest magnitude divided by that of the type. A --to without PATTERN quantizes tensors of floats with
    two axes or more. The error of each tensor is printed.

    For example:

      inlay convert image.npy -o image.safetensors --to nChw16c

      inlay convert w.safetensors -o p.safetensors --to plain --dtype bf16 --memory 256MB --verify

      inlay convert w.safetensors -o p.safetensors --to 'conv*=OIhw16i16o'

      inlay convert p.safetensors -o w.safetensors --to plain

      inlay convert w.safetensors -o p.safetensors --to 'fc*=(o o16) i -> o i o16'

      inlay convert nhwc.npy -o nchw.npy --from nhwc --to nchw

      inlay convert llama/ -o packed/ --to '*proj.weight=BA16a64b2a' --shard-size 5GB

      inlay convert weights.bin -o weights.npy --dims 64x3x7x7 --dtype f32

      inlay convert a.zarr -o b.zarr --to ba --chunks -1,256 --memory 256MB

      inlay convert s3://bucket/model.pt -o s3://bucket/model.safetensors

      inlay convert w.safetensors -o q.safetensors --to plain --quantize absmax:group=128 --dtype s4

      inlay convert w.safetensors -o q.gguf --to ggml:Q8_0 --quantize absmax

      inlay convert q.gguf -o w.safetensors --dequantize --dtype bf16
    """
    stores = StoreChoices(source, target, dims, source_type, offset, shard_size, staging, chunks or ())
    formats = FormatChoices(to or [], from_ or [], data_type, quantize, scales, scales_to, scales_type, dequantize)
    execution = ExecutionChoices(allow_loss, overwrite, workers, dask, restart, clean)
    plan = make_plan(stores, formats, memory)
    if dry_run:
        _print_plan(plan, as_json=as_json)
    else:
        _convert(plan, execution, report, verify=verify, as_json=as_json)


def _print_plan(plan: "ConversionPlan", *, as_json: bool) -> None:
    """Print a plan as text or as JSON."""
    if as_json:
        print_json(plan.to_json())
    else:
        echo(str(plan))


def _convert(
    plan: "ConversionPlan", execution: ExecutionChoices, report_file: Path | None, *, verify: bool, as_json: bool
) -> None:
    """Execute a plan; print what was done, or its report as JSON; write the report, and verify the target.

    Raises:
        FileError: the report cannot be written, or a reason of `inlay.storage.convert`.
    """
    if report_file is not None:
        from inlay.storage.used_files import require_free

        require_free(report_file, plan.source, plan.target)
    report, losses = execution.execute(plan)
    if not as_json:
        echo("\n".join([_result_text(report), *map(str, losses)]))
    if report_file is not None:
        _write_report(report_file, report)
    seconds = _verify(plan) if verify else None
    if as_json:
        print_json(report.to_json() | {"verification_seconds": seconds})
    elif seconds is not None:
        target = printable(plan.target.location)
        echo(f"verified {target}: every element is that of the source, in {seconds:.2f} s")


def _result_text(report: "ConversionReport") -> str:
    """Return the line that says what was written."""
    from rich.filesize import decimal

    plan = report.plan
    count = f"{plan.converted} of {len(plan.tensors)} tensor{'s' * (len(plan.tensors) != 1)}"
    moved = f"{decimal(plan.nbytes)} in {report.seconds:.2f} s"
    return f"wrote {printable(plan.target.location)}: {count} converted, {moved}"


def _write_report(path: Path, report: "ConversionReport") -> None:
    """Write the report of a conversion as JSON.

    Raises:
        FileError: the file cannot be written.
    """
    with atomic_write(path) as file:
        file.write(json.dumps(report.to_json(), indent=2).encode())


def _verify(plan: "ConversionPlan") -> float:
    """Compare the target with the source; return the run time in seconds.

    Raises:
        FileError: they do not agree.
    """
    from inlay.storage import verify

    with ConversionProgress(plan, plan.nbytes) as bar:
        seconds, _ = time_call(lambda: verify(plan, bar.advance))
    return seconds
