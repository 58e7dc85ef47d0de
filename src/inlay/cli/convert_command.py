"""The command that converts the memory formats of tensors in files: `inlay convert`."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from inlay.cli.application import CleanOption, app
from inlay.cli.conversion_progress import ConversionProgress, clear_unfinished
from inlay.cli.convert_options import (
    AllowLossOption,
    DaskOption,
    DryRunOption,
    MemoryOption,
    NewTypeOption,
    OverwriteOption,
    PlanJsonOption,
    ReportOption,
    RestartOption,
    VerifyOption,
    WorkersOption,
)
from inlay.cli.output import echo
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
    parse_source_options,
    parse_target_options,
)
from inlay.errors import InvalidArguments, printable
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
    as_json: PlanJsonOption = False,
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
    options = dict(locals())  # each function below takes those that it needs
    _require_dry_run_for_json(as_json, dry_run)
    plan = _make_plan(**options)
    if dry_run:
        echo(json.dumps(plan.to_json(), indent=2) if as_json else str(plan))
        return
    _carry_out(plan, **options)
    if verify:
        _verify(plan)


def _make_plan(
    source: str,
    target: str,
    to: list[str] | None,
    from_: list[str] | None,
    data_type: str | None,
    dims: str | None,
    memory: str | None,
    chunks: list[str] | None,
    dequantize: bool,
    **options: Any,
) -> "ConversionPlan":
    """Return the plan for the options of the command."""
    # Imported here because it loads LLVM, which doubles the start-up time of other commands.
    from inlay.storage import plan
    from inlay.storage.planning import DEFAULT_MEMORY

    to, from_ = to or [], from_ or []
    given = options["source_type"], options["offset"]
    logical, read = parse_source_options(source, to, from_, data_type, dims, *given, is_dequantized=dequantize)
    return plan(
        source,
        target,
        to,
        from_=from_,
        data_type=data_type,
        dims=logical,
        memory=DEFAULT_MEMORY if memory is None else memory,
        chunks=chunks or (),
        dequantize=dequantize,
        source_options=read,
        target_options=parse_target_options(options["shard_size"], options["staging"]),
        **{name: options[name] for name in ("quantize", "scales", "scales_to", "scales_type")},
    )


def _carry_out(plan: "ConversionPlan", report: Path | None, clean: bool, **options: Any) -> None:
    """Execute a plan, and print and write what was done.

    Raises:
        FileError: the report cannot be written, or a reason of `inlay.storage.convert`.
    """
    from inlay.storage import convert
    from inlay.storage.used_files import require_free

    if report is not None:
        require_free(report, plan.source, plan.target)
    clear_unfinished(plan, clean)
    reports: list[ConversionReport] = []
    given = {name: options[name] for name in ("allow_loss", "overwrite", "workers", "dask", "restart")}
    with ConversionProgress(plan, plan.nbytes_of_passes) as bar:
        losses = convert(plan, bar.advance, on_resume=bar.note_resume, report=reports.append, **given)
    echo(_result_text(reports[0]))
    for loss in losses:
        echo(str(loss))
    if report is not None:
        _write_report(report, reports[0])


def _require_dry_run_for_json(as_json: bool, dry_run: bool) -> None:
    """Check that JSON is requested of a plan.

    Raises:
        InvalidArguments: it is requested of a conversion.
    """
    if as_json and not dry_run:
        raise InvalidArguments(
            "--json prints a plan: give --dry-run too, or write a report of the run with --report FILE"
        )


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


def _verify(plan: "ConversionPlan") -> None:
    """Compare the target with the source, and print that they agree.

    Raises:
        FileError: they do not agree.
    """
    from inlay.storage import verify

    with ConversionProgress(plan, plan.nbytes) as bar:
        seconds, _ = time_call(lambda: verify(plan, bar.advance))
    target = printable(plan.target.location)
    echo(f"verified {target}: every element is that of the source, in {seconds:.2f} s")
