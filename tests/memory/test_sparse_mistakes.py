"""Errors of sparse memory: golden/mistakes/sparse_memory.txt has calls and the whole text of their errors.

Positions that are out of range, repeated or out of order are refused by every reader.
"""

from collections.abc import Callable, Sequence

import ml_dtypes  # noqa: F401  calls of the file name it and what follows
import numpy as np
import numpy.typing as npt
import pytest
import scipy.sparse  # noqa: F401

from inlay import Memory, MemoryDesc, Reorder, pack, reorder, to_coo, to_csr, to_dense  # noqa: F401
from inlay.errors import InvalidArguments
from inlay.layout import RUNTIME  # noqa: F401
from inlay.memory import sparse
from tests.support.golden_mistakes import assert_mistake, read_mistakes
from tests.support.refusals import raises_exactly

MATRIX = np.array([[0, 0, 5, 0], [0, 0, 0, 0], [7, 0, 0, 0]], np.float32)
ROWS = MemoryDesc.csr((3, 4), "f32", 2)
POINTS = MemoryDesc.coo((3, 4), "f32", 2)
VALUES, INDICES, POINTERS = np.array([5, 7], np.float32), np.array([2, 0], np.int32), np.array([0, 1, 1, 2], np.int32)


def csr(indices: Sequence[int], pointers: Sequence[int]) -> Memory:
    """A matrix of 3 rows and 4 columns with these indices."""
    desc = MemoryDesc.csr((3, 4), "f32", len(indices))
    return Memory(desc, [np.ones(len(indices), np.float32), np.array(indices, np.int32), np.array(pointers, np.int32)])


def coo(*coordinates: tuple[int, int]) -> Memory:
    """A matrix of 3 rows and 4 columns with entries there."""
    held = [np.array(along, np.int32) for along in zip(*coordinates, strict=True)]
    return Memory(MemoryDesc.coo((3, 4), "f32", len(coordinates)), [np.ones(len(coordinates), np.float32), *held])


def misaligned() -> npt.NDArray[np.uint8]:
    held = np.zeros(64, np.uint8)
    return held[1 - held.ctypes.data % 4 :][:8]


def read_only() -> Memory:
    held = np.zeros(2, np.int32)
    held.flags.writeable = False
    return Memory(POINTS, [np.zeros(2, np.float32), held, np.zeros(2, np.int32)])


@pytest.mark.parametrize(("call", "error"), read_mistakes("sparse_memory"))
def test_a_mistake_raises_this_error(call: str, error: str) -> None:
    assert_mistake(call, error, globals())


READERS: list[Callable[[Memory], object]] = [
    sparse.check,
    lambda memory: sparse.check(memory, ordered=False),
    Memory.unpack,
    to_dense,
    to_coo,
    to_csr,
    lambda memory: reorder(memory, memory.desc),
    sparse.to_scipy,
]
ADD_UP = "each is stored once; add them up first, as sum_duplicates() of SciPy and coalesce() of torch do"


@pytest.mark.parametrize(
    ("memory", "text"),
    [
        (csr([2, 0], [1, 1, 1, 2]), "pointers[0] is 1: the first row starts at entry 0"),
        (
            csr([2, 0], [0, 1, 0, 2]),
            "pointers[2] is 0, less than pointers[1], which is 1: each row starts where the one before it ends",
        ),
        (csr([2, 0], [0, 1, 1, 9]), "pointers[3] is 9, but nnz is 2: the last row ends with the values"),
        (csr([2, 4], [0, 1, 1, 2]), "entry 1 has coordinate 4 along axis 1 (b): its dim is 4"),
        (csr([-1, 4], [0, 1, 1, 2]), "entry 0 has coordinate -1 along axis 1 (b): its dim is 4"),
        (coo((0, 1), (3, 0)), "entry 1 has coordinate 3 along axis 0 (a): its dim is 3"),
        (csr([1, 1], [0, 0, 2, 2]), f"entries 0 and 1 are both for element (1, 1): {ADD_UP}"),
        (coo((0, 0), (1, 2), (1, 2), (2, 2)), f"entries 1 and 2 are both for element (1, 2): {ADD_UP}"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_every_reader_refuses_wrong_positions(memory: Memory, text: str) -> None:
    for read in READERS:
        with raises_exactly(InvalidArguments, text):
            read(memory)


def test_of_many_duplicates_the_first_in_memory_is_named() -> None:
    with raises_exactly(InvalidArguments, f"entries 0 and 2 are both for element (2, 2): {ADD_UP}"):
        coo((2, 2), (0, 1), (2, 2), (0, 1), (2, 2)).unpack()


def test_check_accepts_any_order_if_order_is_not_required() -> None:
    sparse.check(csr([3, 1], [0, 0, 2, 2]), ordered=False)
    sparse.check(coo((2, 0), (0, 1)), ordered=False)


def test_a_destination_that_shares_bytes_with_its_source_is_refused() -> None:
    rows = to_csr(MATRIX)
    out = Memory(POINTS, [np.zeros(2, np.float32), np.zeros(2, np.int32), rows.buffers[2][4:12]])
    text = "source and destination share 8 bytes of memory: a reorder is not done in place, give another buffer"
    with raises_exactly(InvalidArguments, text):
        reorder(rows, POINTS, out=out)


def test_a_destination_whose_buffers_share_bytes_is_refused() -> None:
    both = np.zeros(2, np.int32)
    text = "two buffers of the destination share 8 bytes of memory: give each its own"
    with raises_exactly(InvalidArguments, text):
        reorder(to_csr(MATRIX), POINTS, out=Memory(POINTS, [np.zeros(2, np.float32), both, both]))
    # Sources may share: here the rows are the columns.
    diagonal = Memory(POINTS, [np.array([5, 7], np.float32), *[np.array([0, 2], np.int32)] * 2])
    assert diagonal.unpack()[2, 2] == 7
