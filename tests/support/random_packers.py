"""Random layouts as lists of memory digits, with packers in NumPy and C that share no code with Inlay.

A digit is (axis, weight, extent, stride): coordinate x of the axis contributes `x // weight % extent * stride` to the
offset. A packer writes elements, then zeros into padding, and nothing else.
"""

import ctypes
import random
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from inlay import Axis, Digit, Layout, MemoryDesc, Swizzle
from inlay.data_type import DATA_TYPES, DataType

KINDS = ("tag", "pattern", "header", "pitch", "swizzle")
TYPES = tuple(DATA_TYPES.values())


@dataclass(frozen=True)
class RandomLayout:
    """A layout, known by its digits."""

    kind: str
    data_type: DataType
    dims: tuple[int, ...]
    padded: tuple[int, ...]
    digits: tuple[tuple[int, int, int, int], ...]
    """Axis, weight, extent and stride of each digit, outermost in memory first."""
    header: int
    length: int
    swizzle: tuple[int, int, int] | None

    def places(self, dims: tuple[int, ...]) -> npt.NDArray[np.int64]:
        """The place of each coordinate of `dims`."""
        total = np.zeros(dims, np.int64)
        coordinates = np.indices(dims)
        for axis, weight, extent, stride in self.digits:
            total += coordinates[axis] // weight % extent * stride
        if self.swizzle is not None:
            bits, base, shift = self.swizzle
            total ^= (total >> (base + shift) & (1 << bits) - 1) << base
        return total + self.header

    @property
    def is_visible(self) -> bool:
        """True if every digit takes two values in the data, so that nothing is ambiguous."""
        return all(self.dims[axis] > weight for axis, weight, _, _ in self.digits) and min(self.dims) > 1

    @property
    def desc(self) -> MemoryDesc:
        """The descriptor, from the digits of each axis."""
        axes = []
        for i in range(len(self.dims)):
            own = sorted((d for d in self.digits if d[0] == i), key=lambda d: -d[1])
            axes.append(Axis(own[0][3], tuple(Digit(extent, stride) for _, _, extent, stride in own[1:])))
        return MemoryDesc.from_layout(
            Layout(self.padded, tuple(axes)),
            self.data_type,
            dims=self.dims,
            offset0=self.header,
            swizzle=None if self.swizzle is None else Swizzle(*self.swizzle),
        )

    def pack(self, array: npt.NDArray[Any], buffer: npt.NDArray[Any]) -> None:
        """Write elements and zeros in the padding of `buffer`."""
        if self.data_type.bits < 8:
            self._pack_nibbles(array, buffer)
            return
        buffer.view(f"u{buffer.itemsize}")[self.places(self.padded)] = 0
        buffer[self.places(self.dims)] = array

    def _pack_nibbles(self, array: npt.NDArray[Any], buffer: npt.NDArray[np.uint8]) -> None:
        codes = array.view(np.uint8) & 15
        for place in self.places(self.padded).reshape(-1).tolist():
            buffer[place // 2] &= 0xF0 if place % 2 == 0 else 0x0F
        for place, code in zip(self.places(self.dims).reshape(-1).tolist(), codes.reshape(-1).tolist(), strict=True):
            buffer[place // 2] |= code << 4 * (place % 2)

    def c_source(self, name: str) -> str:
        """The packer as a C function of the two addresses; elements have whole bytes."""
        bits = self.data_type.bits
        coordinates = [f"x{i}" for i in range(len(self.dims))]
        loops = " ".join(f"for (long {x} = 0; {x} < {n}; {x}++)" for x, n in zip(coordinates, self.padded, strict=True))
        terms = " + ".join(f"x{axis} / {weight} % {extent} * {stride}L" for axis, weight, extent, stride in self.digits)
        index = "0"
        for x, n in zip(coordinates, self.dims, strict=True):
            index = f"({index}) * {n} + {x}"
        swap = ""
        if self.swizzle is not None:
            b, m, s = self.swizzle
            swap = f"p ^= (p >> {m + s} & {(1 << b) - 1}) << {m};"
        inside = " && ".join(f"{x} < {n}" for x, n in zip(coordinates, self.dims, strict=True))
        return (
            f"void {name}(const uint{bits}_t *src, uint{bits}_t *dst) {{ {loops} {{ long p = {terms}; {swap}"
            f" dst[p + {self.header}] = {inside} ? src[{index}] : 0; }} }}\n"
        )


def draw_packed_layout(rng: random.Random, kind: str) -> RandomLayout:
    """Draw a layout of one kind with at most a few thousand elements."""
    while True:
        drawn = _draw(rng, kind)
        if prod(drawn.padded) <= 4096 and drawn.length <= 20_000:
            return drawn


def _draw(rng: random.Random, kind: str) -> RandomLayout:
    count = rng.randint(1, 4)
    if kind == "swizzle":
        return _draw_swizzled(rng)
    inner: list[list[int]] = [rng.choices((2, 3, 4, 5, 8, 16), k=rng.choice((0, 0, 1, 1, 2))) for _ in range(count)]
    dims = tuple(rng.randint(1, 4) * prod(sizes) + rng.choice((0, 0, -1, 1)) * (len(sizes) > 0) for sizes in inner)
    padded = tuple(-(-n // prod(sizes)) * prod(sizes) for n, sizes in zip(dims, inner, strict=True))
    lead = [(i, prod(sizes), padded[i] // prod(sizes)) for i, sizes in enumerate(inner)]
    blocks = [(i, prod(sizes[k + 1 :]), sizes[k]) for i, sizes in enumerate(inner) for k in range(len(sizes))]
    rng.shuffle(lead)
    order = [*lead, *blocks]
    if kind == "pattern":
        rng.shuffle(order)
    else:
        # The blocks of one axis are in the order of their weight, as in tags; those of different axes interleave.
        axes = [i for i, _, _ in blocks]
        rng.shuffle(axes)
        queues = {i: [b for b in blocks if b[0] == i] for i in axes}
        order = [*lead, *(queues[i].pop(0) for i in axes)]
    digits, stride = [], 1
    for place, (axis, weight, extent) in reversed(list(enumerate(order))):
        if kind == "pitch" and place < len(lead) and rng.random() < 0.5:
            stride += rng.randint(1, 9) * 2
        digits.append((axis, weight, extent, stride))
        stride *= extent
    header = rng.randint(1, 40) * 2 if kind == "header" or (kind == "pitch" and rng.random() < 0.3) else 0
    data_type = rng.choice(TYPES)
    if any(d[3] % 2 and d[3] > 1 for d in digits) and data_type.bits < 8:
        data_type = DATA_TYPES["u8"]
    return RandomLayout(kind, data_type, dims, padded, tuple(digits[::-1]), header, header + stride, None)


def _draw_swizzled(rng: random.Random) -> RandomLayout:
    """Draw a layout of powers of two with a swizzle of its offset bits."""
    count = rng.randint(1, 3)
    bits = [rng.randint(1, 4) for _ in range(count)]
    while sum(bits) < 5:
        bits[rng.randrange(count)] += 1
    split = [rng.choice((0, 0, 1)) if n > 1 else 0 for n in bits]
    order = [(i, 1 << s, 1 << n - s) for i, (n, s) in enumerate(zip(bits, split, strict=True))]
    order += [(i, 1, 1 << s) for i, s in enumerate(split) if s]
    rng.shuffle(order)
    digits, stride = [], 1
    for axis, weight, extent in reversed(order):
        digits.append((axis, weight, extent, stride))
        stride *= extent
    total = sum(bits)
    width = rng.randint(1, min(3, total // 2))
    shift = rng.randint(width, total - width)
    base = rng.randint(0, total - width - shift)
    dims = tuple(1 << n for n in bits)
    header = rng.choice((0, 0, stride, 24))
    data_type = rng.choice(TYPES)
    if data_type.bits < 8 and not base:  # a byte holds two elements, which stay together
        data_type = DATA_TYPES["u8"]
    return RandomLayout(
        "swizzle", data_type, dims, dims, tuple(digits[::-1]), header, header + stride, (width, base, shift)
    )


def compile_packers(layouts: list[RandomLayout], directory: Path) -> list[Callable[..., Any]]:
    """Compile one C function for each layout with gcc."""
    source, library = directory / "packers.c", directory / "packers.so"
    texts = [one.c_source(f"pack{i}") for i, one in enumerate(layouts)]
    source.write_text("#include <stdint.h>\n" + "".join(texts))
    subprocess.run(["gcc", "-O1", "-shared", "-fPIC", "-o", str(library), str(source)], check=True)
    loaded = ctypes.CDLL(str(library))
    return [loaded[f"pack{i}"] for i in range(len(layouts))]
