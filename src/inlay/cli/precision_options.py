"""Options of `inlay plan` and `inlay run` for the data types of tensors: their declarations and checks."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, cast

import typer

from inlay.errors import InvalidArguments

if TYPE_CHECKING:
    from inlay.graph.precision import PrecisionName

PrecisionOption = Annotated[
    str | None,
    typer.Option(
        "--precision",
        metavar="PRECISION",
        help="Types of tensors: model (default), those of the file; f32, bf16, f16; auto, bf16 within --tolerance.",
    ),
]
ToleranceOption = Annotated[
    float | None,
    typer.Option(
        "--tolerance",
        metavar="E",
        help="Largest error of an output against f32, as part of its largest element; 0.01 with --precision auto.",
    ),
]
SamplesOption = Annotated[
    list[str] | None,
    typer.Option("--input", "-i", metavar="[NAME=]FILE", help="A .npy file for an input of --tolerance and --errors."),
]
ErrorsOption = Annotated[
    bool, typer.Option("--errors", help="Run the plan, and print the error of each layer and output against f32.")
]


@dataclass(frozen=True, slots=True)
class PrecisionOptions:
    """The checked options."""

    precision: str
    """The precision, as `inlay.plan` takes it."""
    tolerance: float | None
    """The limit of errors, as `inlay.plan` takes it."""
    is_limited: bool
    """True if the errors of the plan are limited, so that planning runs the network."""

    def arguments(self, samples: Mapping[str, Any] | None) -> dict[str, Any]:
        """Return the arguments of `inlay.plan`; errors are measured on `samples`, by the names of inputs."""
        known = {"precision": self.precision, "tolerance": self.tolerance}
        return known | ({"samples": samples} if self.is_limited else {})


def request_precision(
    precision: str | None,
    tolerance: float | None,
    isa: str | None = None,
    *,
    errors: bool = False,
    is_sampled: bool = False,
) -> PrecisionOptions:
    """Check the options of a plan for the processor `isa`, or for this one; `is_sampled` if files of inputs are given.

    Raises:
        InvalidArguments: there is no such precision; the tolerance is not positive, or for a precision without one;
            errors of a plan for another processor are to be measured; or nothing uses the files.

    >>> request_precision("auto", 0.001).arguments(None)
    {'precision': 'auto', 'tolerance': 0.001, 'samples': None}
    >>> request_precision(None, None).arguments(None)
    {'precision': 'model', 'tolerance': None}
    """
    from inlay.graph.precision import PrecisionRequest

    request = PrecisionRequest(cast("PrecisionName", precision or "model"), tolerance)
    try:
        request.require_valid()
    except InvalidArguments as error:
        raise InvalidArguments(f"--{error}".replace("precision='auto'", "--precision auto")) from error
    is_limited = request.limit is not None
    if isa is not None and errors:
        raise InvalidArguments(
            f"--errors runs the plan on this machine, and --isa {isa} plans for another one: leave one of them out"
        )
    if isa is not None and is_limited:
        raise InvalidArguments(
            f"--precision {request.name} with a tolerance runs the plan on this machine, and --isa {isa} plans for "
            "another one: leave it out, or give --precision bf16 alone"
        )
    if is_sampled and not (errors or is_limited):
        raise InvalidArguments("--input is for measuring errors: give --errors or --tolerance too, or leave it out")
    return PrecisionOptions(request.name, tolerance, is_limited)
