"""`Extras`: oneDNN's extra flags of int8 weights, and the compensation buffers behind their elements.

A primitive that multiplies signed by unsigned bytes, or whose source has a zero point, must correct each output
channel by a sum over its weights (compensation). A reorder computes this sum once and stores it behind the elements,
one 32-bit number per channel:

    32 x 16 x 3 x 3 s8 weights, channels along axis 0       4608 bytes of elements
    flag 1, mask 0b1: one number per entry of axis 0         + 128 bytes of compensation

    flag   meaning                                          fields used
    1      -128 times the sum of the weights (s8 sources)   compensation_mask
    2      the weights were multiplied by a factor          scale_adjust
    4      the sum, as f32 (RNN, u8 sources)                compensation_mask
    8      minus the sum (sources with a zero point)        asymmetric_mask
    16     RNN, s8 sources                                  none
    32     flag 8 for GPUs; 64 and 128 are variants of it   gpu_geometry, gpu_nbytes

Bit i of a mask is set if there is one number for each entry of axis i, padding included. The buffers of numbers follow
the elements in the order of the table, from the next multiple of 4 bytes.

Source: oneDNN, `memory_extra_desc_t` and `memory_desc_wrapper::additional_buffer_size`.
"""

from dataclasses import dataclass
from math import prod
from typing import Any, NoReturn

import numpy as np

from inlay.arguments import as_integer
from inlay.errors import InvalidArguments, shown
from inlay.layout import Dims
from inlay.layout.address import as_numbers

S8S8, SCALE_ADJUST, RNN_U8S8, ASYMMETRIC_SRC, RNN_S8S8, GPU, GPU_BACKWARD, GPU_SWAPPED = (2**i for i in range(8))
"""oneDNN's flags, each one bit: `dnnl_memory_extra_flag_*`."""

ALIGNMENT = 4
"""Alignment of the first buffer behind the elements, in bytes."""

_ALL = 255
_WITH_BUFFERS = S8S8 | RNN_U8S8 | ASYMMETRIC_SRC | GPU
_LARGEST_MASK = 2**12 - 1
_LARGEST_SCALE = float(np.finfo(np.float32).max)
_GEOMETRY = ("zid", "zih", "ziw", "zod", "zoh", "zow", "zpd", "zph", "zpw", "zdd", "zdh", "zdw")


@dataclass(frozen=True, slots=True)
class Extras:
    """Extra flags of int8 weights and their parameters; a field that no flag uses has its default value.

    >>> Extras(flags=1, compensation_mask=0b11).buffer_sizes((4, 32, 16, 3, 3))
    {1: 512}
    """

    flags: int = 0
    """Sum of the flags; 0 for no extras."""
    compensation_mask: int = 0
    """Bit mask of the axes along which the compensation of flag 1 or 4 has one number per entry."""
    scale_adjust: float = 1.0
    """Factor of flag 2, an f32."""
    asymmetric_mask: int = 0
    """Bit mask of the axes along which the compensation of flag 8 has one number per entry."""
    gpu_geometry: tuple[int, ...] = ()
    """Input, output, padding and dilation of the convolution of flag 32, each as depth, height, width; may be empty."""
    gpu_nbytes: int = 0
    """Size of the buffer of flag 32, in bytes."""

    def __post_init__(self) -> None:
        """Check that flags, masks and other fields are consistent.

        Raises:
            InvalidArguments: an entry has the wrong type or range, or does not fit the flags.
        """
        _require_integer("flags", self.flags, _ALL)
        if self.flags & GPU_BACKWARD and not self.flags & GPU:
            raise InvalidArguments(f"flags {self.flags} have 64, which refines 32: set both")
        if self.flags & GPU_SWAPPED and not self.flags & GPU_BACKWARD:
            raise InvalidArguments(f"flags {self.flags} have 128, which refines 32 and 64: set all three")
        self._require_mask("compensation_mask", self.compensation_mask, S8S8 | RNN_U8S8, "1 or 4")
        self._require_mask("asymmetric_mask", self.asymmetric_mask, ASYMMETRIC_SRC, "8")
        object.__setattr__(self, "scale_adjust", self._validate_scale())
        self._require_gpu()

    def _require_mask(self, what: str, mask: int, users: int, users_text: str) -> None:
        """Check that a mask is present exactly if one of the flags `users` is set."""
        _require_integer(what, mask, _LARGEST_MASK)
        if mask and not self.flags & users:
            raise InvalidArguments(f"{what} is {mask}, but flags {self.flags} do not have {users_text}: leave it out")
        if not mask and self.flags & users:
            raise InvalidArguments(
                f"{what} is missing: flag {users_text} needs the axes that have numbers, such as 0b1"
            )

    def _validate_scale(self) -> float:
        """Return `scale_adjust` rounded to f32, after checking it."""
        scale: Any = self.scale_adjust
        if type(scale) is not int and not isinstance(scale, (float, np.floating)):
            _refuse_scale(scale)
        if not 0 < scale <= _LARGEST_SCALE or np.float32(scale) == 0:
            _refuse_scale(scale)
        if scale != 1 and not self.flags & SCALE_ADJUST:
            raise InvalidArguments(f"scale_adjust is {scale}, but flags {self.flags} do not have 2: leave it out")
        return float(np.float32(scale))

    def _require_gpu(self) -> None:
        """Check the fields of flag 32."""
        geometry: Any = self.gpu_geometry
        if not isinstance(geometry, tuple) or len(geometry) not in (0, len(_GEOMETRY)):
            raise InvalidArguments(
                f"gpu_geometry is {shown(geometry)}: give a tuple of {len(_GEOMETRY)} integers, or none"
            )
        for i, value in enumerate(geometry):
            _require_integer(f"gpu_geometry[{i}]", value, 2**63 - 1)
        _require_integer("gpu_nbytes", self.gpu_nbytes, 2**63 - 1)
        if (geometry or self.gpu_nbytes) and not self.flags & GPU:
            raise InvalidArguments(f"gpu_geometry and gpu_nbytes belong to flag 32, which flags {self.flags} lack")

    def __bool__(self) -> bool:
        """Return True if any flag is set."""
        return self.flags != 0

    @property
    def may_be_permuted(self) -> bool:
        """True if a descriptor with these extras may be permuted: no flag but those for GPUs is set."""
        return self.flags in (0, GPU, GPU | GPU_BACKWARD, GPU | GPU_BACKWARD | GPU_SWAPPED)

    def require_axes(self, ndims: int) -> None:
        """Check that the masks select axes below `ndims` only.

        Raises:
            InvalidArguments: a mask has a bit for an axis that a tensor of `ndims` axes does not have, or `ndims` is
                not an integer of 0 or more.
        """
        if type(ndims) is not int or ndims < 0:
            ndims = as_integer("ndims", ndims, 0)
        for what, mask in (("compensation_mask", self.compensation_mask), ("asymmetric_mask", self.asymmetric_mask)):
            if mask >> ndims:
                raise InvalidArguments(
                    f"{what} {mask:#b} selects axis {mask.bit_length() - 1}: {ndims} dims have axes 0..{ndims - 1}"
                )

    def buffer_sizes(self, padded_dims: Dims) -> dict[int, int]:
        """Return the size in bytes of the buffer of each flag, in memory order.

        Raises:
            InvalidArguments: `padded_dims` is not a sequence of integers.

        >>> Extras(flags=9, compensation_mask=1, asymmetric_mask=1).buffer_sizes((32, 16))
        {1: 128, 8: 128}
        """
        padded_dims = as_numbers("padded dim", padded_dims)
        masks = {S8S8: self.compensation_mask, RNN_U8S8: self.compensation_mask, ASYMMETRIC_SRC: self.asymmetric_mask}
        sizes = {
            flag: 4 * prod(dim for i, dim in enumerate(padded_dims) if mask >> i & 1)
            for flag, mask in masks.items()
            if self.flags & flag
        }
        return sizes | {GPU: self.gpu_nbytes} if self.flags & GPU else sizes

    def start(self, nbytes: int) -> int:
        """Return the offset in bytes of the first buffer behind `nbytes` of elements; `nbytes` if there is no buffer.

        Raises:
            InvalidArguments: `nbytes` is not an integer of 0 or more.
        """
        if type(nbytes) is not int or nbytes < 0:
            nbytes = as_integer("nbytes", nbytes, 0)
        return -(-nbytes // ALIGNMENT) * ALIGNMENT if self.flags & _WITH_BUFFERS else nbytes

    def size_with(self, nbytes: int, padded_dims: Dims) -> int:
        """Return the size in bytes of `nbytes` of elements together with the buffers behind them.

        Raises:
            InvalidArguments: as `start` and `buffer_sizes`.

        >>> Extras(flags=1, compensation_mask=1).size_with(33, (11, 3))
        80
        """
        return self.start(nbytes) + sum(self.buffer_sizes(padded_dims).values())

    def __str__(self) -> str:
        """Return oneDNN's notation, the last field of a descriptor's text: `f3:s8m1:sa0.5`."""
        text = f"f{self.flags}"
        if self.flags & S8S8:
            text += f":s8m{self.compensation_mask}"
        if self.flags & ASYMMETRIC_SRC:
            text += f":zpm{self.asymmetric_mask}"
        if self.flags & GPU:
            geometry = self.gpu_geometry or (0,) * len(_GEOMETRY)
            text += "".join(f":{name}{value}" for name, value in zip(_GEOMETRY, geometry, strict=True))
            text += f":zs{self.gpu_nbytes}"
        # The format of an f32 in C++ streams.
        return text if self.scale_adjust == 1 else f"{text}:sa{self.scale_adjust:g}"

    def __repr__(self) -> str:
        """Return the call that creates this value, without arguments that have their default."""
        arguments = [f"flags={self.flags}"] if self.flags else []
        for name in ("compensation_mask", "asymmetric_mask"):
            if mask := getattr(self, name):
                arguments.append(f"{name}={mask:#b}")
        if self.scale_adjust != 1:
            arguments.append(f"scale_adjust={self.scale_adjust!r}")
        if self.gpu_geometry:
            arguments.append(f"gpu_geometry={self.gpu_geometry}")
        if self.gpu_nbytes:
            arguments.append(f"gpu_nbytes={self.gpu_nbytes}")
        return f"Extras({', '.join(arguments)})"


def _require_integer(what: str, value: object, largest: int) -> None:
    """Check that `value` is an integer from 0 to `largest`; `what` names it in the error."""
    if type(value) is not int or not 0 <= value <= largest:
        raise InvalidArguments(f"{what} is {shown(value)}: give an integer from 0 to {largest}")


def _refuse_scale(scale: object) -> NoReturn:
    """Raise the error for a scale that is not a positive f32."""
    raise InvalidArguments(f"scale_adjust is {shown(scale)}: give a positive number that an f32 can hold")


NO_EXTRAS = Extras()
"""The extras of a descriptor without flags."""


def require_extras(extras: object, has_layout: bool, ndims: int) -> None:
    """Check that a descriptor of `ndims` dims can have `extras`.

    Raises:
        InvalidArguments: `extras` is not an `Extras`, has flags although there is no layout, or has a mask with a bit
            for an axis of `ndims` or more.
    """
    if not isinstance(extras, Extras):
        raise InvalidArguments(
            f"extras is {shown(extras)}: give inlay.Extras(flags=1, compensation_mask=1) or the like"
        )
    if extras and not has_layout:
        raise InvalidArguments("extras follow the elements of a layout, and the format any has no layout yet")
    extras.require_axes(ndims)
