"""Wrong uses of sparse memory, each with the whole text of its error."""

import builtins
import sys
from collections.abc import Callable, Sequence
from typing import Any

import ml_dtypes
import numpy as np
import numpy.typing as npt
import pytest
import scipy.sparse

from inlay import Memory, MemoryDesc, MissingExtra, Reorder, pack, reorder, to_coo, to_csr, to_dense
from inlay.errors import InlayError, InvalidArguments, Unimplemented
from inlay.layout import RUNTIME
from inlay.memory import sparse

MATRIX = np.array([[0, 0, 5, 0], [0, 0, 0, 0], [7, 0, 0, 0]], np.float32)
ROWS = MemoryDesc.csr((3, 4), "f32", 2)
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
    return Memory(MemoryDesc.coo((3, 4), "f32", 2), [np.zeros(2, np.float32), held, np.zeros(2, np.int32)])


def sharing(memory: Memory) -> Memory:
    """COO memory whose last indices lie on the pointers of `memory`."""
    held = [np.zeros(2, np.float32), np.zeros(2, np.int32), memory.buffers[2][4:12]]
    return Memory(MemoryDesc.coo((3, 4), "f32", 2), held)


def fallen(position: int, value: int) -> Memory:
    pointers = [0, 1, 1, 2]
    pointers[position] = value
    return csr([2, 0], pointers)


WRAPPING: list[tuple[str, Callable[[], object], type[InlayError], str]] = [
    (
        "one_buffer_for_three",
        lambda: Memory(ROWS, VALUES),
        InvalidArguments,
        "buffers is of type ndarray: MemoryDesc.csr((3, 4), 'f32', 2) has 3, give a list of values, indices, pointers",
    ),
    (
        "two_buffers_for_three",
        lambda: Memory(ROWS, [VALUES, INDICES]),
        InvalidArguments,
        "MemoryDesc.csr((3, 4), 'f32', 2) has 3 buffers, not 2: give values, indices, pointers",
    ),
    (
        "coo_buffers",
        lambda: Memory(MemoryDesc.coo((3, 4), "f32", 2), [VALUES]),
        InvalidArguments,
        "MemoryDesc.coo((3, 4), 'f32', 2) has 3 buffers, not 1: give values, indices of axis 0, indices of axis 1",
    ),
    (
        "wrong_type",
        lambda: Memory(ROWS, [VALUES, INDICES.astype(np.int64), POINTERS]),
        InvalidArguments,
        "buffer 1 (indices) holds int64, the descriptor s32 (int32): convert values with astype, "
        "or pass the bits as they are with view('u1')",
    ),
    (
        "wrong_values",
        lambda: Memory(MemoryDesc.csr((3, 4), "s4", 2), [VALUES, INDICES, POINTERS]),
        InvalidArguments,
        "buffer 0 (values) holds float32, the descriptor s4 (int4): convert values with astype, "
        "or pass the bits as they are with view('u1')",
    ),
    (
        "too_small",
        lambda: Memory(ROWS, [VALUES, INDICES, POINTERS[:3]]),
        InvalidArguments,
        "buffer 2 (pointers) of 12 bytes is too small: 4 elements of s32 take 16 bytes",
    ),
    (
        "gaps",
        lambda: Memory(ROWS, [np.zeros(4, np.float32)[::2], INDICES, POINTERS]),
        InvalidArguments,
        "buffer 0 (values) of shape (2,) and byte strides (8,) is not contiguous: wrap the array it is a view of, "
        "or move its elements with inlay.pack",
    ),
    (
        "no_buffer",
        lambda: Memory(ROWS, [VALUES, [2, 0], POINTERS]),
        InvalidArguments,
        "buffer 1 (indices) of type list cannot be wrapped (it has neither the buffer protocol, nor "
        "__array_interface__, nor DLPack): pass a NumPy array or bytes",
    ),
    (
        "misaligned",
        lambda: Memory(ROWS, [VALUES, misaligned(), POINTERS]),
        InvalidArguments,
        "buffer 1 (indices) starts at an address that is no multiple of the 4 bytes of s32: "
        "copy it to an array of its own",
    ),
    (
        "packed",
        lambda: Memory(MemoryDesc.packed((3, 4), "f32", 2)),
        Unimplemented,
        "MemoryDesc.packed((3, 4), 'f32', 2) has no tag yet: take the descriptor of a primitive that was created with "
        "it, such as product.weights_desc, or use MemoryDesc.csr",
    ),
    (
        "csr_of_one_dim",
        lambda: Memory(MemoryDesc.csr((5,), "f32", 2)),
        Unimplemented,
        "MemoryDesc.csr((5,), 'f32', 2) has no rows to point to: use MemoryDesc.coo, or dims (1, 5)",
    ),
    (
        "runtime",
        lambda: Memory(MemoryDesc.coo((RUNTIME, 4), "f32", 2)),
        Unimplemented,
        "memory needs known dims: MemoryDesc.coo((RUNTIME, 4), 'f32', 2) has RUNTIME ones, bind them first",
    ),
    (
        "buffer_of_several",
        lambda: to_csr(MATRIX).buffer,
        InvalidArguments,
        "memory of MemoryDesc.csr((3, 4), 'f32', 2) has 3 buffers: read `buffers`",
    ),
]

POSITIONS: list[tuple[str, Callable[[], Memory], str]] = [
    ("first_pointer", lambda: fallen(0, 1), "pointers[0] is 1: the first row starts at entry 0"),
    (
        "falling_pointers",
        lambda: fallen(2, 0),
        "pointers[2] is 0, less than pointers[1], which is 1: each row starts where the one before it ends",
    ),
    ("last_pointer", lambda: fallen(3, 9), "pointers[3] is 9, but nnz is 2: the last row ends with the values"),
    (
        "column_too_large",
        lambda: csr([2, 4], [0, 1, 1, 2]),
        "entry 1 has coordinate 4 along axis 1 (b): its dim is 4",
    ),
    (
        "column_negative",
        lambda: csr([-1, 4], [0, 1, 1, 2]),
        "entry 0 has coordinate -1 along axis 1 (b): its dim is 4",
    ),
    ("coordinate_outside", lambda: coo((0, 1), (3, 0)), "entry 1 has coordinate 3 along axis 0 (a): its dim is 3"),
    (
        "twice_in_a_row",
        lambda: csr([1, 1], [0, 0, 2, 2]),
        "entries 0 and 1 are both for element (1, 1): each is stored once; add them up first, "
        "as sum_duplicates() of SciPy and coalesce() of torch do",
    ),
    (
        "twice_in_order",
        lambda: coo((0, 0), (1, 2), (1, 2), (2, 2)),
        "entries 1 and 2 are both for element (1, 2): each is stored once; add them up first, "
        "as sum_duplicates() of SciPy and coalesce() of torch do",
    ),
]
"""Errors that every reader of sparse memory raises."""

USE: list[tuple[str, Callable[[], object], type[InlayError], str]] = [
    (
        "unsorted_columns",
        lambda: sparse.check(csr([3, 1], [0, 0, 2, 2])),
        InvalidArguments,
        "entry 1 is for element (1, 1), after one for (1, 3): entries are in row-major order; "
        "inlay.reorder(memory, memory.desc) sorts them",
    ),
    (
        "unsorted_coo",
        lambda: sparse.check(coo((0, 1), (2, 0), (1, 3))),
        InvalidArguments,
        "entry 2 is for element (1, 3), after one for (2, 0): entries are in row-major order; "
        "inlay.reorder(memory, memory.desc) sorts them",
    ),
    (
        "check_of_dense",
        lambda: sparse.check(pack(MATRIX, "ab")),
        InvalidArguments,
        "check is for sparse memory: MemoryDesc((3, 4), 'f32', 'ab') is of kind blocked",
    ),
    (
        "check_of_an_array",
        lambda: sparse.check(MATRIX),  # type: ignore[arg-type]
        InvalidArguments,
        "memory is a ndarray: make it with Memory(desc, buffers) or inlay.to_csr",
    ),
    (
        "to_dense_of_an_array",
        lambda: to_dense(MATRIX),  # type: ignore[arg-type]
        InvalidArguments,
        "memory is a ndarray: make it with Memory(desc, buffers) or inlay.to_csr",
    ),
    (
        "csr_of_3_dims",
        lambda: to_csr(np.zeros((2, 3, 4), np.float32)),
        Unimplemented,
        "dims (2, 3, 4) are 3: CSR has rows and columns only; MemoryDesc.coo takes any number",
    ),
    (
        "csr_of_1_dim",
        lambda: to_csr(np.zeros(3, np.float32)),
        Unimplemented,
        "MemoryDesc.csr((3,), 'f32', 0) has no rows to point to: use MemoryDesc.coo, or dims (1, 3)",
    ),
    (
        "scalar",
        lambda: to_coo(np.float32(1)),
        InvalidArguments,
        "array is a scalar, which has no axes to place: give it one with reshape(1)",
    ),
    (
        "narrow_indices",
        lambda: to_coo(np.ones((1, 300), np.float32), index_type="s8"),
        InvalidArguments,
        "indices of axis 1 reach 299, more than s8 holds (127): describe it with a wider type",
    ),
    (
        "narrow_pointers",
        lambda: to_csr(np.ones((1, 300), np.float32), pointer_type="u8"),
        InvalidArguments,
        "pointers reach 300, more than u8 holds (255): describe it with a wider type",
    ),
    (
        "other_nnz",
        lambda: pack(MATRIX, MemoryDesc.csr((3, 4), "f32", 3)),
        InvalidArguments,
        "the source stores 2 elements, but MemoryDesc.csr((3, 4), 'f32', 3) has nnz 3: describe it with nnz=2, or use "
        "inlay.to_csr, which counts them",
    ),
    (
        "other_dims",
        lambda: reorder(to_csr(MATRIX), MemoryDesc((4, 3), "f32")),
        InvalidArguments,
        "a reorder keeps the dims: source (3, 4), destination (4, 3)",
    ),
    (
        "to_packed",
        lambda: reorder(to_csr(MATRIX), MemoryDesc.packed((3, 4), "f32", 2)),
        Unimplemented,
        "MemoryDesc.packed((3, 4), 'f32', 2) has no tag yet: take the descriptor of a primitive that was created with "
        "it, such as product.weights_desc, or use MemoryDesc.csr",
    ),
    (
        "to_host_scalar",
        lambda: reorder(to_coo(np.ones(1, np.float32)), MemoryDesc.host_scalar("f32")),
        InvalidArguments,
        "memory needs a layout: MemoryDesc.host_scalar('f32') is of kind host_scalar; "
        "its value is passed with the call",
    ),
    (
        "compiled",
        lambda: Reorder(ROWS, MemoryDesc((3, 4), "f32")),
        Unimplemented,
        "no move between two addresses exists for MemoryDesc.csr((3, 4), 'f32', 2), which has several buffers: "
        "inlay.reorder(memory, dst) converts sparse memory",
    ),
    (
        "out_read_only",
        lambda: reorder(to_csr(MATRIX), read_only().desc, out=read_only()),
        InvalidArguments,
        "the destination is read-only: give a writable buffer, or none to have one allocated",
    ),
    (
        "out_is_other",
        lambda: reorder(to_csr(MATRIX), MemoryDesc.coo((3, 4), "f32", 2, "s64"), out=coo((0, 0), (1, 1))),
        InvalidArguments,
        "out is MemoryDesc.coo((3, 4), 'f32', 2), but the destination is MemoryDesc.coo((3, 4), 'f32', 2, "
        "index_type='s64'): give both the same descriptor",
    ),
    (
        "scipy_of_bf16",
        lambda: sparse.to_scipy(to_csr(MATRIX.astype(ml_dtypes.bfloat16))),
        Unimplemented,
        "SciPy's sparse arrays hold f32, f64, s8, u8, s32, s64, not bf16: convert to one of these first",
    ),
    (
        "scipy_of_dense",
        lambda: sparse.to_scipy(pack(MATRIX, "ab")),
        InvalidArguments,
        "check is for sparse memory: MemoryDesc((3, 4), 'f32', 'ab') is of kind blocked",
    ),
    (
        "from_scipy_dense",
        lambda: sparse.from_scipy(MATRIX),
        InvalidArguments,
        "array is a ndarray, not a sparse array of SciPy: inlay.to_csr and to_coo take dense ones",
    ),
    (
        "from_scipy_columns",
        lambda: sparse.from_scipy(scipy.sparse.csc_array(MATRIX)),
        InvalidArguments,
        "array is a csc_array in format csc: convert it with tocsr() or tocoo()",
    ),
    (
        "from_scipy_twice",
        lambda: sparse.from_scipy(scipy.sparse.coo_array((np.ones(3), ([1, 0, 1], [2, 0, 2])), shape=(3, 4))),
        InvalidArguments,
        "entries 0 and 2 are both for element (1, 2): each is stored once; add them up first, "
        "as sum_duplicates() of SciPy and coalesce() of torch do",
    ),
    (
        "from_scipy_complex",
        lambda: sparse.from_scipy(scipy.sparse.csr_array(MATRIX.astype(np.complex64))),
        InvalidArguments,
        "sparse tensors hold numbers: complex64 only moves, use one of f16, bf16, f32, s32, s8, u8, f64, f8_e5m2, "
        "f8_e4m3, s4, u4, e8m0, f4_e2m1, s64",
    ),
]


def refusal(make: Callable[[], object]) -> InlayError:
    with pytest.raises(InlayError) as caught:
        make()
    return caught.value


@pytest.mark.parametrize(
    ("make", "kind", "text"), [case[1:] for case in WRAPPING + USE], ids=[case[0] for case in WRAPPING + USE]
)
def test_mistakes_are_told(make: Callable[[], object], kind: type[InlayError], text: str) -> None:
    error = refusal(make)
    assert type(error) is kind
    assert str(error) == text


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


@pytest.mark.parametrize(("make", "text"), [case[1:] for case in POSITIONS], ids=[case[0] for case in POSITIONS])
def test_wrong_positions_reach_no_reader(make: Callable[[], Memory], text: str) -> None:
    for read in READERS:
        error = refusal(lambda read=read: read(make()))  # type: ignore[misc]
        assert type(error) is InvalidArguments
        assert str(error) == text


def test_of_many_duplicates_the_first_in_memory_is_named() -> None:
    error = refusal(lambda: coo((2, 2), (0, 1), (2, 2), (0, 1), (2, 2)).unpack())
    assert str(error).startswith("entries 0 and 2 are both for element (2, 2): ")


def test_order_is_not_asked_for_where_it_does_not_matter() -> None:
    sparse.check(csr([3, 1], [0, 0, 2, 2]), ordered=False)
    sparse.check(coo((2, 0), (0, 1)), ordered=False)


def test_buffers_that_lie_on_one_another_are_refused() -> None:
    rows = to_csr(MATRIX)
    error = refusal(lambda: reorder(rows, MemoryDesc.coo((3, 4), "f32", 2), out=sharing(rows)))
    assert str(error) == (
        "source and destination share 8 bytes of memory: a reorder is not done in place, give another buffer"
    )


@pytest.fixture
def without(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Makes a package look as if it were not installed."""

    def hide(package: str) -> None:
        for name in [name for name in sys.modules if name.split(".")[0] == package]:
            monkeypatch.setitem(sys.modules, name, None)
        real = builtins.__import__

        def refusing(name: str, *args: Any, **kwargs: Any) -> Any:
            if name.split(".")[0] == package:
                raise ModuleNotFoundError(name)
            return real(name, *args, **kwargs)

        monkeypatch.setattr(builtins, "__import__", refusing)
        monkeypatch.setitem(sys.modules, package, None)

    return hide


@pytest.mark.parametrize("use", [lambda: sparse.from_scipy(MATRIX), lambda: sparse.to_scipy(to_csr(MATRIX))])
def test_without_scipy_the_error_says_how_to_install_it(
    without: Callable[[str], None], use: Callable[[], object]
) -> None:
    without("scipy")
    error = refusal(use)
    assert type(error) is MissingExtra
    assert str(error) == "SciPy is not installed: pip install 'inlay[sparse]'"


@pytest.mark.parametrize("use", [lambda: sparse.from_torch(MATRIX), lambda: sparse.to_torch(to_csr(MATRIX))])
def test_without_torch_the_error_says_how_to_install_it(
    without: Callable[[str], None], use: Callable[[], object]
) -> None:
    without("torch")
    error = refusal(use)
    assert type(error) is MissingExtra
    assert str(error) == "torch is not installed: pip install torch"


TORCH: list[tuple[str, Callable[[Any], object], type[InlayError], str]] = [
    (
        "dense",
        lambda torch: sparse.from_torch(torch.ones(2, 3)),
        InvalidArguments,
        "tensor is torch.strided, neither torch.sparse_csr nor torch.sparse_coo: "
        "convert it with to_sparse_csr() or to_sparse()",
    ),
    (
        "numpy",
        lambda torch: sparse.from_torch(MATRIX),
        InvalidArguments,
        "tensor is ndarray, neither torch.sparse_csr nor torch.sparse_coo: "
        "convert it with to_sparse_csr() or to_sparse()",
    ),
    (
        "elsewhere",
        lambda torch: sparse.from_torch(torch.ones(2, 3).to_sparse().to("meta")),
        InvalidArguments,
        "tensor is on meta: copy it to the CPU with cpu()",
    ),
    (
        "hybrid",
        lambda torch: sparse.from_torch(torch.sparse_coo_tensor(torch.tensor([[0]]), torch.ones(1, 3), (2, 3))),
        Unimplemented,
        "tensor of shape (2, 3) stores 1 of its dims densely: here each entry is one element",
    ),
    (
        "batch",
        lambda torch: sparse.from_torch(torch.ones(2, 2, 2).to_sparse_csr()),
        Unimplemented,
        "tensor of shape (2, 2, 2) is a batch of matrices: convert one by one, or use to_sparse()",
    ),
    (
        "twice",
        lambda torch: sparse.from_torch(torch.sparse_coo_tensor(torch.tensor([[0, 0], [1, 1]]), torch.ones(2), (2, 3))),
        InvalidArguments,
        "entries 0 and 1 are both for element (0, 1): each is stored once; add them up first, "
        "as sum_duplicates() of SciPy and coalesce() of torch do",
    ),
    (
        "four_bits",
        lambda torch: sparse.to_torch(to_coo(MATRIX.astype(ml_dtypes.int4))),
        Unimplemented,
        "torch has no sparse tensors of s4: reorder to a type of a byte or more first",
    ),
    (
        "unsorted",
        lambda torch: sparse.to_torch(csr([3, 1], [0, 0, 2, 2])),
        InvalidArguments,
        "entry 1 is for element (1, 1), after one for (1, 3): entries are in row-major order; "
        "inlay.reorder(memory, memory.desc) sorts them",
    ),
]


@pytest.mark.heavy
@pytest.mark.filterwarnings("ignore:Sparse CSR tensor support", "ignore:Sparse invariant checks")
@pytest.mark.parametrize(("make", "kind", "text"), [case[1:] for case in TORCH], ids=[case[0] for case in TORCH])
def test_what_torch_and_memory_do_not_share(make: Callable[[Any], object], kind: type[InlayError], text: str) -> None:
    torch = pytest.importorskip("torch")
    error = refusal(lambda: make(torch))
    assert type(error) is kind
    assert str(error) == text
