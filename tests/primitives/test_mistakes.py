"""Errors of primitives: golden/mistakes/primitives.txt has calls and the whole text of their errors.

The mistakes: wrong ranks, channels, windows and types; `any` for an argument that needs a format; missing hints and
hints of other shapes; invalid attributes; and calls with memory that is missing, of another format, too small,
read-only or overlapping.
"""

import mmap
from typing import Any

import numpy as np
import pytest

import inlay
from inlay import primitives as p
from inlay.descriptor import MemoryDesc as M
from inlay.primitives import attributes  # noqa: F401  calls of the file name it
from inlay.primitives.attributes import PrimitiveAttributes as Attributes
from inlay.primitives.engine import Engine
from tests.support.golden_mistakes import assert_mistake, read_mistakes


class Silent(Engine):
    """An engine that must not be called."""

    name = "silent"

    def create(self, operation: object) -> Any:
        raise AssertionError("the engine must not be called")


def anyf(*dims: int) -> M:
    return M(dims, "f32", "any")


def plain(*dims: int) -> M:
    return M(dims, "f32")


def memory(*dims: int) -> inlay.Memory:
    return inlay.Memory(plain(*dims))


def read_only(*dims: int) -> inlay.Memory:
    buffer = np.zeros(dims, np.float32)
    buffer.flags.writeable = False
    return inlay.Memory(plain(*dims), buffer)


def overlapping() -> dict[str, inlay.Memory]:
    """Memory of (2, 3), and memory that begins four bytes later."""
    buffer = np.zeros(7, np.float32)
    return {"src": inlay.Memory(plain(2, 3), buffer[:6]), "dst": inlay.Memory(plain(2, 3), buffer[1:])}


def same(*dims: int) -> dict[str, inlay.Memory]:
    one = memory(*dims)
    return {"src": one, "dst": one}


def conv(src: Any = None, weights: Any = None, **options: Any) -> p.Convolution:
    """A convolution 3 x 3 of (2, 16, 8, 8) to 32 channels, with one thing changed."""
    src = anyf(2, 16, 8, 8) if src is None else src
    weights = anyf(32, 16, 3, 3) if weights is None else weights
    return p.Convolution(src, weights, **{"engine": "reference", **options})


def relu(*dims: int) -> p.Eltwise:
    return p.Eltwise(plain(*dims), algorithm="relu", prop_kind="forward_training", engine="reference")


def shuffle(*dims: int) -> p.Shuffle:
    return p.Shuffle(plain(*dims), axis=1, group_size=2, engine="reference")


def pool_gradient(**given: Any) -> Any:
    """The gradient of max pooling, called with some of its arguments."""
    options: Any = {"kernel": 2, "strides": 2, "prop_kind": "forward_training", "engine": "reference"}
    pool = p.Pooling(plain(1, 2, 4, 4), algorithm="max", **options)
    return p.PoolingBackward(hint_forward=pool)(diff_dst=memory(1, 2, 2, 2), **given)


def scaled(**given: Any) -> Any:
    """A product of bytes with a scale for each of two rows, called with scales."""
    src, weights = M((2, 4), "s8", "ab"), M((4, 3), "s8", "ab")
    scales = Attributes(scales={"src": inlay.Scales(mask=1)})
    product = p.MatMul(src, weights, attributes=scales, engine="reference")
    return product(src=inlay.Memory(src), weights=inlay.Memory(weights), **given)


@pytest.mark.parametrize(("call", "error"), read_mistakes("primitives"))
def test_a_mistake_raises_this_error(call: str, error: str) -> None:
    assert_mistake(call, error, globals())


def test_valid_calls_raise_no_error() -> None:
    conv(dst=anyf(2, 32, 8, 8), padding_l=1)
    relu(2, 3)(src=memory(2, 3))
    relu(2, 3)(**same(2, 3))


def test_bound_memory_cannot_be_freed() -> None:
    pages = mmap.mmap(-1, 4096)
    source = inlay.Memory(plain(2, 3), pages)
    run = relu(2, 3).bind(src=source, dst=memory(2, 3))
    del source
    with pytest.raises(BufferError, match="exported pointers exist"):
        pages.close()
    run()


def test_a_bound_function_keeps_its_primitive_and_memories_alive() -> None:
    source, result = inlay.pack(np.array([[1, -2, 3]], np.float32), "ab"), memory(1, 3)
    run = relu(1, 3).bind(src=source, dst=result)
    del source
    run()
    assert result.unpack().tolist() == [[1, 0, 3]]
