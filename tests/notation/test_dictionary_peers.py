"""Rows of the dictionary against the vendor's own library, where it is installed: gguf for ggml, torch for PyTorch."""

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from inlay.notation.dictionary import named

Bytes = npt.NDArray[np.uint8]
ONE = np.array([1], np.float16).view(np.uint8)


def joined(*parts: npt.ArrayLike) -> Bytes:
    return np.concatenate([np.asarray(part, np.uint8) for part in parts])


# The bytes of one block whose scales are 1, around the bytes of its elements, and what is added to each element.
BLOCKS: dict[str, tuple[str, int, Callable[[Bytes], Bytes], int]] = {
    "ggml:Q4_0_qs": ("Q4_0", 32, lambda quants: joined(ONE, quants), -8),
    "ggml:Q4_K_qs": (
        "Q4_K",
        256,
        lambda quants: joined(ONE, [0, 0], [1] * 4, [0] * 4, [1] * 4, quants),
        0,
    ),
    "ggml:Q6_K_ql": ("Q6_K", 256, lambda quants: joined(quants, [0] * 64, [1] * 16, ONE), -32),
}


@pytest.mark.parametrize("name", BLOCKS)
def test_ggml_reads_the_elements_where_the_row_has_them(name: str) -> None:
    gguf: Any = pytest.importorskip("gguf")
    kind, size, block, bias = BLOCKS[name]
    values = np.random.default_rng(3).integers(0, 16, size, np.uint8)
    places = named(name).layout((1, size)).offset(np.moveaxis(np.indices((1, size)), 0, -1))[0]
    quants = np.zeros(size // 2, np.uint8)
    np.bitwise_or.at(quants, places // 2, values << (4 * (places % 2)).astype(np.uint8))
    read = gguf.quants.dequantize(block(quants)[None], gguf.GGMLQuantizationType[kind])
    np.testing.assert_array_equal(read[0], values.astype(np.float32) + bias)


@pytest.mark.parametrize(
    ("name", "dims"),
    [("contiguous", (2, 3, 4, 5)), ("channels_last", (2, 3, 4, 5)), ("channels_last_3d", (2, 3, 4, 5, 6))],
)
def test_torch_gives_the_strides_of_the_row(name: str, dims: tuple[int, ...]) -> None:
    torch: Any = pytest.importorskip("torch")
    memory_format = getattr(torch, f"{name}_format" if name == "contiguous" else name)
    tensor = torch.empty(dims).contiguous(memory_format=memory_format)
    assert named(f"torch:{name}").layout(dims).strides == tensor.stride()
