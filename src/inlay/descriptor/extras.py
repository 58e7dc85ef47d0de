"""What int8 weights carry beside their elements: `Extras`, oneDNN's extra flags and what they need.

A primitive that multiplies signed by unsigned bytes, or whose source has a zero point, must correct each output
channel by a sum over its weights. A reorder computes that sum once and keeps it behind the elements, one 32-bit number
per channel:

    32 x 16 x 3 x 3 s8 weights, channels along axis 0       4608 bytes of elements
    flag 1, mask 0b1: one number per entry of axis 0         + 128 bytes of compensation

    flag   what it means                                    what it needs
    1      -128 times the sum of the weights (s8 sources)   compensation_mask
    2      weights were multiplied by a factor              scale_adjust
    4      the sum, as f32 (RNN, u8 sources)                compensation_mask
    8      minus the sum (sources with a zero point)        asymmetric_mask
    16     RNN, s8 sources                                  nothing
    32     the GPU's own form of 8; 64 and 128 refine it    gpu_geometry, gpu_nbytes

A mask has bit i set where there is one number for each entry of axis i, padding included. The numbers follow the
elements in the order of the table, from the next multiple of 4 bytes.

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
"""oneDNN's flags by their bits, `dnnl_memory_extra_flag_*`."""

ALIGNMENT = 4
"""The numbers behind the elements start at a multiple of so many bytes."""

_ALL = 255
_WITH_BUFFERS = S8S8 | RNN_U8S8 | ASYMMETRIC_SRC | GPU
_LARGEST_MASK = 2**12 - 1
_LARGEST_SCALE = float(np.finfo(np.float32).max)
_GEOMETRY = ("zid", "zih", "ziw", "zod", "zoh", "zow", "zpd", "zph", "zpw", "zdd", "zdh", "zdw")


@dataclass(frozen=True, slots=True)
class Extras:
    """Flags and what they need; a field that no flag uses has its default, so equal values mean the same.

    >>> Extras(flags=1, compensation_mask=0b11).buffer_sizes((4, 32, 16, 3, 3))
    {1: 512}
    """

    flags: int = 0
    """Sum of the flags."""
    compensation_mask: int = 0
    """The axes along which flag 1 or 4 has numbers."""
    scale_adjust: float = 1.0
    """The factor of flag 2, an f32."""
    asymmetric_mask: int = 0
    """The axes along which flag 8 has numbers."""
    gpu_geometry: tuple[int, ...] = ()
    """Flag 32: input, output, padding and dilation of the convolution, depth, height and width of each; or nothing."""
    gpu_nbytes: int = 0
    """Flag 32: the bytes that the GPU keeps."""

    def __post_init__(self) -> None:
        """Refuse flags that mean nothing, masks that select nothing, and fields that no flag uses.

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
        object.__setattr__(self, "scale_adjust", self._checked_scale())
        self._require_gpu()

    def _require_mask(self, what: str, mask: int, users: int, said: str) -> None:
        _require_integer(what, mask, _LARGEST_MASK)
        if mask and not self.flags & users:
            raise InvalidArguments(f"{what} is {mask}, but flags {self.flags} do not have {said}: leave it out")
        if not mask and self.flags & users:
            raise InvalidArguments(f"{what} is missing: flag {said} needs the axes that have numbers, such as 0b1")

    def _checked_scale(self) -> float:
        scale: Any = self.scale_adjust
        if type(scale) is not int and not isinstance(scale, (float, np.floating)):
            _refuse_scale(scale)
        if not 0 < scale <= _LARGEST_SCALE or np.float32(scale) == 0:
            _refuse_scale(scale)
        if scale != 1 and not self.flags & SCALE_ADJUST:
            raise InvalidArguments(f"scale_adjust is {scale}, but flags {self.flags} do not have 2: leave it out")
        return float(np.float32(scale))

    def _require_gpu(self) -> None:
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
        """Whether any flag is set."""
        return self.flags != 0

    @property
    def may_be_permuted(self) -> bool:
        """Whether the axes may be relabeled though there are extras: those of the GPU do not count along axes."""
        return self.flags in (0, GPU, GPU | GPU_BACKWARD, GPU | GPU_BACKWARD | GPU_SWAPPED)

    def require_axes(self, ndims: int) -> None:
        """Refuse masks that select axes beyond the last.

        Raises:
            InvalidArguments: a mask has a bit for an axis that a tensor of `ndims` axes does not have, or `ndims` is no
                number of axes.
        """
        if type(ndims) is not int or ndims < 0:
            ndims = as_integer("ndims", ndims, 0)
        for what, mask in (("compensation_mask", self.compensation_mask), ("asymmetric_mask", self.asymmetric_mask)):
            if mask >> ndims:
                raise InvalidArguments(
                    f"{what} {mask:#b} selects axis {mask.bit_length() - 1}: {ndims} dims have axes 0..{ndims - 1}"
                )

    def buffer_sizes(self, padded_dims: Dims) -> dict[int, int]:
        """Bytes behind the elements by flag, in the order they lie there.

        Raises:
            InvalidArguments: `padded_dims` are no sequence of integers.

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
        """The byte at which the numbers behind `nbytes` of elements start; `nbytes` itself where there are none.

        Raises:
            InvalidArguments: `nbytes` is no integer of 0 or more.
        """
        if type(nbytes) is not int or nbytes < 0:
            nbytes = as_integer("nbytes", nbytes, 0)
        return -(-nbytes // ALIGNMENT) * ALIGNMENT if self.flags & _WITH_BUFFERS else nbytes

    def size_with(self, nbytes: int, padded_dims: Dims) -> int:
        """Bytes of `nbytes` of elements with everything behind them.

        Raises:
            InvalidArguments: as `start` and `buffer_sizes`.

        >>> Extras(flags=1, compensation_mask=1).size_with(33, (11, 3))
        80
        """
        return self.start(nbytes) + sum(self.buffer_sizes(padded_dims).values())

    def __str__(self) -> str:
        """oneDNN's notation, the last field of a descriptor's text: `f3:s8m1:sa0.5`."""
        text = f"f{self.flags}"
        if self.flags & S8S8:
            text += f":s8m{self.compensation_mask}"
        if self.flags & ASYMMETRIC_SRC:
            text += f":zpm{self.asymmetric_mask}"
        if self.flags & GPU:
            geometry = self.gpu_geometry or (0,) * len(_GEOMETRY)
            text += "".join(f":{name}{value}" for name, value in zip(_GEOMETRY, geometry, strict=True))
            text += f":zs{self.gpu_nbytes}"
        # As C++ streams print an f32.
        return text if self.scale_adjust == 1 else f"{text}:sa{self.scale_adjust:g}"

    def __repr__(self) -> str:
        """The call that creates this value; fields with their default are left out."""
        said = [f"flags={self.flags}"] if self.flags else []
        for name in ("compensation_mask", "asymmetric_mask"):
            if mask := getattr(self, name):
                said.append(f"{name}={mask:#b}")
        if self.scale_adjust != 1:
            said.append(f"scale_adjust={self.scale_adjust!r}")
        if self.gpu_geometry:
            said.append(f"gpu_geometry={self.gpu_geometry}")
        if self.gpu_nbytes:
            said.append(f"gpu_nbytes={self.gpu_nbytes}")
        return f"Extras({', '.join(said)})"


def _require_integer(what: str, value: object, most: int) -> None:
    if type(value) is not int or not 0 <= value <= most:
        raise InvalidArguments(f"{what} is {shown(value)}: give an integer from 0 to {most}")


def _refuse_scale(scale: object) -> NoReturn:
    raise InvalidArguments(f"scale_adjust is {shown(scale)}: give a positive number that an f32 can hold")


NO_EXTRAS = Extras()
"""No flag: what nearly every descriptor has."""


def require_extras(extras: object, has_layout: bool, ndims: int) -> None:
    """Refuse what a descriptor of `ndims` dims cannot have as extras.

    Raises:
        InvalidArguments: `extras` is no `Extras`, there is no layout that they could lie behind, or they name an axis
            that is none.
    """
    if not isinstance(extras, Extras):
        raise InvalidArguments(
            f"extras is {shown(extras)}: give inlay.Extras(flags=1, compensation_mask=1) or the like"
        )
    if extras and not has_layout:
        raise InvalidArguments("extras lie behind the elements of a layout, and the format any has none yet")
    extras.require_axes(ndims)
