"""The options of `inlay convert` as values: what is planned, and how the plan is executed."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from inlay.cli.conversion_progress import ConversionProgress, clear_unfinished
from inlay.cli.store_options import parse_source_options, parse_target_options

if TYPE_CHECKING:
    from inlay.storage import ConversionLoss, ConversionPlan, ConversionReport


@dataclass(frozen=True, slots=True)
class StoreChoices:
    """The source and the target of a conversion, and what their formats of files need."""

    source: str
    """Path or URL of the source."""
    target: str
    """Path or URL of the target."""
    dims: str | None
    """Dims of raw bytes, or logical dims of memory whose shape in the file is a single axis."""
    source_type: str | None
    """Data type of the elements of raw bytes; None: `FormatChoices.data_type`."""
    offset: int | None
    """Offset of the tensor in raw bytes, in bytes."""
    shard_size: str | None
    """Maximum size of a shard, such as `5GB`."""
    staging: Path | None
    """Folder where a target at a URL is written before it is uploaded."""
    chunks: Sequence[str]
    """Chunks of a Zarr target: `[PATTERN=]N,N...`."""


@dataclass(frozen=True, slots=True)
class FormatChoices:
    """The formats and data types of a conversion."""

    to: Sequence[str]
    """New formats: `[PATTERN=]TAG`."""
    from_: Sequence[str]
    """Formats of memory that the source does not describe: `[PATTERN=]TAG`."""
    data_type: str | None
    """New data type of the tensors that `to` matches."""
    quantize: str | None
    """Quantization: `absmax[:AXIS|:group=N]`."""
    scales: str
    """Pattern of the names of scales."""
    scales_to: str | None
    """Format of scales; None: row-major."""
    scales_type: str | None
    """Data type of scales; None: f32."""
    dequantize: bool
    """True if quants with scales, and blocks, become floats."""


@dataclass(frozen=True, slots=True)
class ExecutionChoices:
    """The execution of the plan of a conversion."""

    allow_loss: bool
    """True if elements may become zero or saturate."""
    overwrite: bool
    """True if a target that exists is replaced."""
    workers: int | None
    """Number of processes; None: this process."""
    dask: str | None
    """Address of a cluster of Dask, or `local`."""
    restart: bool
    """True if an interrupted run is not resumed."""
    clean: bool
    """True if files of killed processes are removed first."""

    def execute(self, plan: "ConversionPlan") -> "tuple[ConversionReport, tuple[ConversionLoss, ...]]":
        """Execute a plan with a progress bar; return its report, and the loss of each tensor.

        Raises:
            InvalidArguments, FileError, OutOfMemory, MissingExtra: as `inlay.storage.convert`.
        """
        from inlay.storage import convert

        clear_unfinished(plan, self.clean)
        reports: list[ConversionReport] = []
        with ConversionProgress(plan, plan.nbytes_of_passes) as bar:
            losses = convert(
                plan,
                bar.advance,
                allow_loss=self.allow_loss,
                overwrite=self.overwrite,
                workers=self.workers,
                dask=self.dask,
                restart=self.restart,
                on_resume=bar.note_resume,
                report=reports.append,
            )
        return reports[0], losses


def make_plan(stores: StoreChoices, formats: FormatChoices, memory: str | None) -> "ConversionPlan":
    """Return the plan of a conversion whose boxes take at most `memory`; None is the default of `inlay.storage`.

    Raises:
        InvalidArguments, Unimplemented, FileError, MissingExtra: as `inlay.storage.plan`.
    """
    # Imported here because it loads LLVM, which doubles the start-up time of other commands.
    from inlay.storage import plan
    from inlay.storage.planning import DEFAULT_MEMORY

    logical, source_options = parse_source_options(
        stores.source,
        formats.to,
        formats.from_,
        formats.data_type,
        stores.dims,
        stores.source_type,
        stores.offset,
        is_dequantized=formats.dequantize,
    )
    return plan(
        stores.source,
        stores.target,
        formats.to,
        from_=formats.from_,
        data_type=formats.data_type,
        dims=logical,
        memory=DEFAULT_MEMORY if memory is None else memory,
        chunks=stores.chunks,
        quantize=formats.quantize,
        scales=formats.scales,
        scales_to=formats.scales_to,
        scales_type=formats.scales_type,
        dequantize=formats.dequantize,
        source_options=source_options,
        target_options=parse_target_options(stores.shard_size, stores.staging),
    )
