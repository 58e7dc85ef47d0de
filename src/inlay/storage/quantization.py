"""Quantization of tensors by their greatest magnitudes: element formats, schemes, scales.

The elements of a group share a scale, and each is stored as a quant of few bits:

    scale = greatest magnitude of the group / greatest quant        value = quant * scale

    absmax              one group: the whole tensor
    absmax:0            one group for each coordinate along axis 0
    absmax:group=128    groups of 128 along the last axis

A quant is the element divided by the scale in f32, rounded to the nearest number of its type, ties to even. A scale is
rounded to the nearest number of its own type; where the greatest element would saturate by over half a step then, as
among subnormal numbers, the next greater number is taken. Groups of zeros have the scale 1, so that readers may divide
by any scale. NaN and infinities are refused.

Two element formats define their groups and the types of their scales themselves:

    mxfp4   FP4 E2M1, groups of 32, scales of E8M0: 2 to the floor of log2(greatest magnitude), minus 2
            (OCP Microscaling Formats 1.0, section 6.3); elements beyond 6 scales saturate
    nvfp4   FP4 E2M1, groups of 16, scales of E4M3, and one f32 scale of the tensor: greatest magnitude / (448 * 6)
            value = quant * scale * second scale

>>> parse_scheme("absmax:group=128")
QuantizationScheme(axis=None, group=128)
>>> ELEMENT_FORMATS["s8"].scales(np.array([254, 0, 1e-45], np.float32), DATA_TYPES["f32"]).tolist()
[2.0, 1.0, 1.401298464324817e-45]
"""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

import ml_dtypes
import numpy as np
import numpy.typing as npt

from inlay.data_type import DATA_TYPES, DataType, DataTypeLike, as_data_type
from inlay.errors import InvalidArguments, shown
from inlay.layout import Dims
from inlay.storage.rules import FormatRule, parse_rule

Floats = npt.NDArray[np.float32]

SCALE_TYPES = ("f32", "bf16", "f16")
"""Data types that the scales of s8, s4 and f8 may have."""

DEFAULT_SCALES = "{name}_scale"
"""Names of scales: those of compressed-tensors, vLLM and ModelOpt, where `fc.weight` has `fc.weight_scale`."""

NAME = "{name}"
"""Part of a pattern that stands for the name of the quantized tensor."""


@dataclass(frozen=True, slots=True)
class QuantizationScheme:
    """The elements that share a scale: all, those of a coordinate along an axis, or a group along the last axis."""

    axis: int | None = None
    """Axis with one scale for each coordinate; None if there is none."""
    group: int | None = None
    """Number of consecutive elements along the last axis that share a scale; None if there are no groups."""

    def __str__(self) -> str:
        """Return the text of which `parse_scheme` returns this scheme."""
        if self.group is not None:
            return f"absmax:group={self.group}"
        return "absmax" if self.axis is None else f"absmax:{self.axis}"

    def groups(self, dims: Dims, label: str) -> Dims:
        """Return the number of elements along each axis that share a scale; `label` names the tensor in messages.

        Raises:
            InvalidArguments: the tensor has no such axis, or the group does not divide the last axis.

        >>> parse_scheme("absmax:1").groups((3, 5, 7), "w")
        (3, 1, 7)
        """
        if self.group is not None:
            if dims[-1] % self.group:
                raise InvalidArguments(
                    f"axis {len(dims) - 1} of tensor {label} has {dims[-1]} elements, no multiple of the group of "
                    f"{self.group}: choose a group that divides it"
                )
            return (*(1,) * (len(dims) - 1), self.group)
        whole = tuple(max(n, 1) for n in dims)
        if self.axis is None:
            return whole
        if not -len(dims) <= self.axis < len(dims):
            raise InvalidArguments(
                f"tensor {label} has dims {dims}, and no axis {self.axis} for {self}: name an axis below {len(dims)}"
            )
        return tuple(1 if i == self.axis % len(dims) else n for i, n in enumerate(whole))


def parse_scheme(text: str) -> QuantizationScheme:
    """Parse `absmax`, `absmax:AXIS` or `absmax:group=N`.

    Raises:
        InvalidArguments: it is none of them.
    """
    method, colon, detail = text.partition(":")
    name, equals, number = detail.partition("=")
    digits = number if equals else detail
    is_number = digits.removeprefix("-").isascii() and digits.removeprefix("-").isdecimal() and len(digits) < 20
    if method != "absmax" or (colon and not is_number) or (equals and (name != "group" or int(number) < 1)):
        raise InvalidArguments(
            f"{text!r} is no way to quantize: write absmax for one scale of a tensor, absmax:0 for one of each "
            "coordinate of axis 0, or absmax:group=128 for one of each group along the last axis"
        )
    if equals:
        return QuantizationScheme(group=int(number))
    return QuantizationScheme(axis=int(detail) if colon else None)


@dataclass(frozen=True, slots=True)
class ElementFormat:
    """A format of quants, and the rule of its scales."""

    name: str
    """Name, as `--dtype` takes it."""
    data_type: DataType
    """Data type of the quants."""
    greatest: float
    """Greatest quant; the least is its negative."""
    half_step: float
    """Half of the step between the two greatest quants, or what would follow the greatest one."""
    group: int | None = None
    """Size of the groups that the format defines; None if the caller chooses."""
    scale_type: str | None = None
    """Data type of the scales that the format defines; None if the caller chooses."""
    has_second: bool = False
    """True if a scale of the tensor multiplies the scales of the groups."""

    def scales(self, magnitudes: Floats, scale_type: DataType) -> Floats:
        """Return the scales of groups with these greatest magnitudes: numbers of `scale_type`, as f32.

        Raises:
            InvalidArguments: a scale is greater than the greatest number of `scale_type`.
        """
        if scale_type.is_exponent:
            return self._exponent_scales(magnitudes)
        exact = magnitudes / np.float32(self.greatest)
        with np.errstate(over="ignore"):
            rounded = exact.astype(scale_type.dtype)
        if not np.isfinite(rounded.astype(np.float32)).all():
            raise InvalidArguments(
                f"a scale is {exact.max()}, and the greatest number of {scale_type} is {scale_type.highest:g}: "
                "store scales in f32 (--scales-dtype)"
            )
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
            is_small = magnitudes / rounded.astype(np.float32) > self.greatest + self.half_step
        bits = rounded.view(f"u{rounded.dtype.itemsize}")
        bits += is_small
        scales = rounded.astype(np.float32)
        scales[magnitudes == 0] = 1
        return scales

    def _exponent_scales(self, magnitudes: Floats) -> Floats:
        """Return the powers of two of OCP's rule for groups with these greatest magnitudes."""
        _, exponents = np.frexp(magnitudes)
        _, top = np.frexp(np.float32(self.greatest))
        exponents = np.clip(exponents - top, -127, 127)
        return np.where(magnitudes == 0, np.float32(1), np.ldexp(np.float32(1), exponents)).astype(np.float32)

    def second_scale(self, magnitude: float) -> np.float32:
        """Return the scale of a tensor with this greatest magnitude, for a format that has one."""
        if magnitude == 0:
            return np.float32(1)
        exact = np.float32(magnitude) / np.float32(DATA_TYPES[self.scale_type or "f32"].highest * self.greatest)
        return exact or np.finfo(np.float32).smallest_subnormal


def _element(name: str, data_type: str, greatest: float, half_step: float, *more: object) -> ElementFormat:
    return ElementFormat(name, DATA_TYPES[data_type], greatest, half_step, *more)  # type: ignore[arg-type]


_E5M2 = float(ml_dtypes.finfo(ml_dtypes.float8_e5m2).max)  # type: ignore[no-untyped-call]

ELEMENT_FORMATS: Mapping[str, ElementFormat] = MappingProxyType(
    {
        each.name: each
        for each in (
            _element("s8", "s8", 127, 0.5),
            _element("s4", "s4", 7, 0.5),
            _element("f8_e4m3", "f8_e4m3", 448, 16),
            _element("f8_e5m2", "f8_e5m2", _E5M2, 4096),
            _element("mxfp4", "f4_e2m1", 6, 1, 32, "e8m0"),
            _element("nvfp4", "f4_e2m1", 6, 1, 16, "f8_e4m3", True),
        )
    }
)
"""The formats of quants with scales beside them, by name."""


@dataclass(frozen=True, slots=True)
class Quantization:
    """The quantization of a conversion: scheme, element format, and how scales are stored."""

    scheme: QuantizationScheme
    """The elements that share a scale."""
    element: ElementFormat | None
    """Format of the quants; None if the caller named none, as for compound formats."""
    names: str
    """Pattern of the names of scales, which contains `{name}`."""
    format: FormatRule | None
    """Format of the scales; None for row-major."""
    scale_type: DataType
    """Data type of the scales."""

    def name_scales(self, name: str) -> tuple[str, ...]:
        """Return the names of the scales of the tensor `name`: of the groups, and of the tensor if it has a second."""
        first = self.names.replace(NAME, name)
        return (first, f"{first}_2") if self.element is not None and self.element.has_second else (first,)


def require_scale_names(names: str) -> None:
    """Check a pattern of names of scales.

    Raises:
        InvalidArguments: it does not contain `{name}`, or nothing else.
    """
    if NAME not in names or names == NAME:
        raise InvalidArguments(
            f"{names!r} does not name scales: write {NAME} for the name of the tensor, as in {DEFAULT_SCALES}"
        )


def parse_quantization(
    scheme: str,
    element: DataTypeLike | None,
    names: str = DEFAULT_SCALES,
    format: str | None = None,
    scale_type: str | None = None,
) -> Quantization:
    """Parse the options of a quantization.

    Raises:
        InvalidArguments: the scheme, the element format or the type of the scales is unknown, they do not go together,
            or `names` is no pattern.
        FormatTagError, PatternError, NotationError: `format` is no format tag, nor of another notation.

    >>> parse_quantization("absmax", "mxfp4").scheme
    QuantizationScheme(axis=None, group=32)
    """
    parsed, chosen = parse_scheme(scheme), None if element is None else _find_element(element)
    require_scale_names(names)
    if scale_type is not None and scale_type not in SCALE_TYPES:
        raise InvalidArguments(f"scales cannot be {shown(scale_type)}: choose one of {', '.join(SCALE_TYPES)}")
    if chosen is not None and chosen.group is not None:
        parsed = _require_own_groups(chosen, parsed, scale_type)
    stored = (None if chosen is None else chosen.scale_type) or scale_type or "f32"
    rule = None if format is None else parse_rule(format)
    if rule is not None and (rule.pattern is not None or rule.compound is not None):
        raise InvalidArguments(f"{format!r} is no format of scales: write a tag, as in --scales-to ba")
    return Quantization(parsed, chosen, names, rule, DATA_TYPES[stored])


def as_unscaled_type(data_type: DataTypeLike) -> DataType:
    """Return the data type of a conversion without scales.

    Raises:
        InvalidArguments: the type is unknown, or its quants have scales.

    >>> as_unscaled_type("bf16").name
    'bf16'
    """
    element = ELEMENT_FORMATS.get(data_type) if isinstance(data_type, str) else None
    if element is not None and element.scale_type is not None:
        raise InvalidArguments(f"{element.name} has scales: quantize to it (--quantize absmax)")
    return as_data_type(data_type)


def _find_element(element: DataTypeLike) -> ElementFormat:
    """Return the element format of this name or data type."""
    found = ELEMENT_FORMATS.get(str(element))
    if found is None:
        raise InvalidArguments(
            f"floats cannot be quantized to {shown(str(element))}: choose one of {', '.join(ELEMENT_FORMATS)} "
            "(--dtype), or blocks such as --to ggml:Q8_0"
        )
    return found


def _require_own_groups(
    element: ElementFormat, scheme: QuantizationScheme, scale_type: str | None
) -> QuantizationScheme:
    """Return the scheme of a format that defines its groups, after checking the one that the caller named."""
    own = QuantizationScheme(group=element.group)
    if scheme not in (QuantizationScheme(), own):
        raise InvalidArguments(f"{scheme} does not fit {element.name}, which has {own}: write absmax alone")
    if scale_type is not None:
        raise InvalidArguments(f"the scales of {element.name} are {element.scale_type}: leave out {scale_type}")
    return own
