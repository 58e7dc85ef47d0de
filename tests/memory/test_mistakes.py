"""Errors of memory, reorders, padding, arrays and orders of axes: golden/mistakes/memory.txt has calls and texts."""

import copy
import pickle
import sys
from collections.abc import Callable
from typing import Any

import ml_dtypes  # noqa: F401  calls of the file name it and what follows
import numpy as np
import numpy.typing as npt
import pytest

from inlay.descriptor import MemoryDesc
from inlay.errors import InvalidArguments, MissingExtra, NotationError
from inlay.layout import RUNTIME, Axis, Digit, Layout  # noqa: F401
from inlay.memory import Memory, Reorder, check_padding, map_padded, pack, reorder, sparse, zero_padding  # noqa: F401
from inlay.memory.axis_orders import (  # noqa: F401
    AxisOrder,
    conv_orders,
    framework_dims,
    framework_shape,
    from_logical,
    to_logical,
)
from inlay.memory.frameworks import (  # noqa: F401
    from_array,
    from_jax,
    from_torch,
    permute_with_reorder,
    to_jax,
    to_numpy,
    to_torch,
)
from inlay.memory.padding import find_dirty, preserves_padding  # noqa: F401
from tests.support.golden_mistakes import assert_mistake, read_mistakes
from tests.support.refusals import raises_exactly

ROWS = MemoryDesc((2, 3), "f32", "ab")
COLUMNS = MemoryDesc((2, 3), "f32", "ba")
NIBBLES = MemoryDesc((2, 4), "s4", "ab")
REPEATED = MemoryDesc((2, 4), "s4", strides=(0, 1))
PADDED = MemoryDesc((3,), "u8", "A4a")
BROADCAST = MemoryDesc((2, 3), "u8", strides=(0, 1), padded_dims=(3, 4))
BELOW = MemoryDesc.from_layout(Layout((4, 2), (Axis(-4, (Digit(2, 2),)), Axis(1))), "u8")
OPAQUE = MemoryDesc.opaque((4, 6), "f32", "wino", 1000)
GAPS = Memory(MemoryDesc((2, 3), "f32", strides=(5, 1)))
SHARED = np.zeros(9, np.float32)
THREE = pack(np.zeros((2, 3), np.float32), "ab")


def read_only() -> npt.NDArray[np.float32]:
    held = np.zeros(6, np.float32)
    held.flags.writeable = False
    return held


def misaligned() -> npt.NDArray[np.uint8]:
    held = np.zeros(64, np.uint8)
    return held[1 - held.ctypes.data % 4 :][:24]


class OnDevice:
    """A tensor in the memory of a device."""

    def __dlpack__(self, **options: Any) -> Any:
        raise BufferError("unsupported device")

    def __dlpack_device__(self) -> tuple[int, int]:
        return (2, 0)


@pytest.mark.parametrize(("call", "error"), read_mistakes("memory"))
def test_a_mistake_raises_this_error(call: str, error: str) -> None:
    assert_mistake(call, error, globals())


ORDERS_OF_ONEDNN = "logical orders are NCHW, OIHW, GOIW, LDNC, LDIO, LDGO, or say logical=..."


@pytest.mark.parametrize(
    ("order", "logical", "text"),
    [
        (
            "nChw8c",
            None,
            "an axis order is letters only, one per axis, and '8' is none; blocks are part of a format tag\n"
            "    nChw8c\n"
            "    ~~~~^",
        ),
        ("NHHC", None, "axis H appears twice\n    NHHC\n    ~~^"),
        ("NHWO", None, f"no tensor of oneDNN has just the axes N, H, W, O: {ORDERS_OF_ONEDNN}\n    NHWO\n    ^^^^"),
        ("", None, "an axis order has axes: logical orders are NC, NCW, NCHW, NCDHW, or say logical=...\n    \n    ^"),
        ("NHWC", "NCXY", "axis H is not in the logical order NCXY\n    NHWC\n    ~^"),
        ("BSD", "BHSD", "axis H of the logical order BHSD is missing\n    BSD\n    ~~~^"),
    ],
)
def test_a_wrong_letter_of_an_order_is_underlined(order: str, logical: str | None, text: str) -> None:
    with raises_exactly(NotationError, text):
        AxisOrder.parse(order, logical)


def test_a_wrong_letter_of_a_role_s_order_is_underlined() -> None:
    text = "an order is letters, two in parentheses for one axis that holds both, and * for spatial axes"
    with raises_exactly(NotationError, f"{text}\n    HW-IO\n    ~~^"):
        framework_dims("jax", "weights", (3, 3, 2, 2), order="HW-IO")


@pytest.mark.parametrize(
    ("function", "text"),
    [
        (from_torch, "from_torch needs torch, which is not installed: pip install torch"),
        (to_torch, "to_torch needs torch, which is not installed: pip install torch"),
        (from_jax, "from_jax needs jax, which is not installed: pip install jax"),
        (to_jax, "to_jax needs jax, which is not installed: pip install jax"),
        (sparse.from_scipy, "SciPy is not installed: pip install 'inlay[sparse]'"),
        (sparse.to_scipy, "SciPy is not installed: pip install 'inlay[sparse]'"),
        (sparse.from_torch, "torch is not installed: pip install torch"),
        (sparse.to_torch, "torch is not installed: pip install torch"),
    ],
)
def test_a_package_that_is_not_installed_is_named_with_the_command(
    monkeypatch: pytest.MonkeyPatch, function: Callable[[Any], object], text: str
) -> None:
    for name in ("torch", "jax", "scipy", "scipy.sparse"):
        monkeypatch.setitem(sys.modules, name, None)
    is_conversion = function.__name__.startswith("to_")
    memory = sparse.to_csr(np.eye(3)) if function.__module__ == sparse.__name__ else THREE
    with raises_exactly(MissingExtra, text):
        function(memory if is_conversion else np.zeros((2, 3), np.float32))


def test_a_wrong_permutation_is_refused_as_by_permute_axes() -> None:
    with pytest.raises(InvalidArguments) as rule:
        GAPS.desc.permute_axes((1, 1))
    with raises_exactly(type(rule.value), str(rule.value)):
        permute_with_reorder(GAPS, (1, 1))


@pytest.mark.parametrize("name", ["address", "begin", "end", "desc", "buffer", "other"])
def test_what_machine_code_relies_on_cannot_be_set_or_deleted(name: str) -> None:
    """With `address` at 0, unpack ended the process."""
    memory = Memory(COLUMNS, np.arange(6, dtype=np.float32))
    before = memory.address, memory.begin, memory.end
    text = f"{name} of a Memory cannot be set: make a new Memory of a descriptor and a buffer"
    with raises_exactly(AttributeError, text):
        setattr(memory, name, 0)
    with raises_exactly(AttributeError, f"{name} of a Memory cannot be deleted: delete the Memory"):
        delattr(memory, name)
    assert (memory.address, memory.begin, memory.end) == before
    assert memory.unpack().tolist() == [[0, 2, 4], [1, 3, 5]]


def test_the_value_of_a_host_scalar_can_still_be_set_and_memories_copied() -> None:
    scalar = Memory(MemoryDesc.host_scalar("s32"), 3)
    scalar.value = 4
    assert (int(scalar.value), int(copy.copy(scalar).value), int(pickle.loads(pickle.dumps(scalar)).value)) == (4, 4, 4)
