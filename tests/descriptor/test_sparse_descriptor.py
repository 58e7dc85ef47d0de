"""Sparse descriptors: queries compared with oneDNN; their errors are in golden/mistakes/descriptors.txt.

The comparison needs a library with the encoding: 3.2 has CSR, 3.13 also COO and packed. `tests/parity` compares valid
descriptors. The tests under "Intended differences" cover the cases where Inlay differs on purpose.
"""

from collections.abc import Callable, Sequence
from ctypes import c_int64
from math import prod
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from inlay.data_type import DATA_TYPES
from inlay.descriptor import COO, CSR, MemoryDesc, Packed
from inlay.descriptor.sparsity import sparse_counts
from inlay.errors import InlayError
from inlay.layout import RUNTIME
from inlay.render import show
from tests.oracles import onednn

S32, S64, U8 = (DATA_TYPES[name] for name in ("s32", "s64", "u8"))
ROWS = MemoryDesc.csr((3, 4), "f32", 2)
POINTS = MemoryDesc.coo((3, 4, 5), "bf16", 2, "s64")
CHOSEN = MemoryDesc.packed((64, 64), "s8", 1024)
EACH = pytest.mark.parametrize("desc", [ROWS, POINTS, CHOSEN], ids=["csr", "coo", "packed"])

# Answers


def test_placements_are_values_of_their_own() -> None:
    assert ROWS.layout == CSR(2, S32, S32)
    assert POINTS.layout == COO(2, S64)
    assert CHOSEN.layout == Packed(1024)


@EACH
def test_what_every_sparse_descriptor_answers(desc: MemoryDesc) -> None:
    assert (desc.kind, desc.padded_dims, desc.padded_offsets) == ("sparse", desc.dims, (0,) * desc.ndims)
    assert (desc.offset0, desc.tag, desc.is_zero, desc.has_runtime) == (0, None, False, False)
    assert desc.size == desc.sizes[0]
    assert len(desc.sizes) == len(desc.data_types) == desc.num_handles
    assert desc.data_types[0] == desc.data_type


def test_sizes_and_types_are_those_of_each_buffer() -> None:
    wide = MemoryDesc.csr((3, 4), "f32", 2, "u8", "s64")
    assert (wide.nnz, wide.num_handles, wide.sparse_encoding) == (2, 3, "csr")
    assert wide.sizes == (2 * 4, 2 * 1, 4 * 8)
    assert wide.data_types == (DATA_TYPES["f32"], U8, S64)
    assert (POINTS.nnz, POINTS.num_handles, POINTS.sparse_encoding) == (2, 4, "coo")
    assert POINTS.sizes == (4, 16, 16, 16)
    assert POINTS.data_types == (DATA_TYPES["bf16"], S64, S64, S64)
    assert (CHOSEN.nnz, CHOSEN.num_handles, CHOSEN.sparse_encoding) == (1024, 3, "packed")
    assert CHOSEN.sizes == (0, 0, 0)
    assert CHOSEN.data_types == (DATA_TYPES["s8"], None, None)


def test_a_dim_of_0_empties_every_buffer_and_a_runtime_dim_leaves_sizes_open() -> None:
    assert MemoryDesc.csr((0, 4), "f32", 0).sizes == (0, 0, 0)
    assert MemoryDesc.coo((4, 0), "f32", 0).sizes == (0, 0, 0)
    assert MemoryDesc.csr((RUNTIME, 4), "f32", 7).sizes == (2**63,) * 3
    assert MemoryDesc.coo((RUNTIME, 0), "f32", 7).sizes == (0, 0, 0)
    assert MemoryDesc.coo((4, RUNTIME), "f32", 7).has_runtime


def test_no_buffer_of_an_empty_sparse_tensor_has_elements() -> None:
    assert sparse_counts((0, 4), CSR(0, S32, S32)) == (0, 0, 0)
    assert sparse_counts((3, 0), COO(0, S32)) == (0, 0, 0)


def test_values_of_4_bits_take_a_byte_each() -> None:
    assert MemoryDesc.csr((3, 4), "s4", 5).sizes == (5, 20, 16)


@pytest.mark.parametrize(
    "desc",
    [MemoryDesc((3, 4), "f32"), MemoryDesc((3, 4), "f32", "any"), MemoryDesc.host_scalar("s4"), MemoryDesc()],
)
def test_dense_kinds_have_one_buffer(desc: MemoryDesc) -> None:
    assert (desc.num_handles, desc.sizes, desc.data_types) == (1, (desc.size,), (desc.data_type,))


def test_no_dims_give_the_zero_descriptor() -> None:
    for desc in (MemoryDesc.csr((), "nonsense", 0), MemoryDesc.coo((), "f32", 5), MemoryDesc.packed((), "f32", -1)):
        assert desc == MemoryDesc()


def test_equality_is_of_dims_types_encoding_and_nnz() -> None:
    assert MemoryDesc.csr((3, 4), "f32", 2) == ROWS
    assert MemoryDesc.csr([3, 4], "f32", 2, "s32", "s32") == ROWS
    others = [
        MemoryDesc.csr((4, 3), "f32", 2),
        MemoryDesc.csr((3, 4), "s32", 2),
        MemoryDesc.csr((3, 4), "f32", 3),
        MemoryDesc.csr((3, 4), "f32", 2, "s64"),
        MemoryDesc.csr((3, 4), "f32", 2, "s32", "s64"),
        MemoryDesc.coo((3, 4), "f32", 2),
        MemoryDesc.packed((3, 4), "f32", 2),
        MemoryDesc((3, 4), "f32"),
    ]
    assert ROWS not in others
    assert len({*others, ROWS}) == len(others) + 1
    assert not any(ROWS.equivalent(other) for other in others)
    assert ROWS.equivalent(MemoryDesc.csr((3, 4), "f32", 2))


def test_texts() -> None:
    assert [str(desc) for desc in (ROWS, POINTS, CHOSEN)] == [
        "f32::sparse:csr::f0",
        "bf16::sparse:coo::f0",
        "s8::sparse:packed::f0",
    ]
    assert repr(MemoryDesc.csr((RUNTIME, 4), "f32", 2, "s64", "u8")) == (
        "MemoryDesc.csr((RUNTIME, 4), 'f32', 2, index_type='s64', pointer_type='u8')"
    )
    assert repr(POINTS) == "MemoryDesc.coo((3, 4, 5), 'bf16', 2, index_type='s64')"
    assert repr(CHOSEN) == "MemoryDesc.packed((64, 64), 's8', 1024)"


def test_a_picture_of_a_sparse_descriptor_is_in_words() -> None:
    """`tests/golden` has the pictures of each encoding."""
    assert "; x s64, 16 bytes; y s64, 16 bytes; z s64" in str(show(POINTS, width=80, color=False, names="xyz"))
    assert "stored  7 elements, the others are zero" in str(show(MemoryDesc.coo((RUNTIME,), "f32", 7), color=False))
    assert "<svg" in show(ROWS, format="svg").svg()


def test_with_allow_empty_every_error_is_the_zero_descriptor() -> None:
    assert MemoryDesc.csr((2, 3, 4), "f32", 1, allow_empty=True).is_zero
    assert MemoryDesc.coo((2, 3), "f32", -1, allow_empty=True).is_zero
    assert MemoryDesc.packed((2, -3), "f32", 1, allow_empty=True).is_zero
    assert MemoryDesc.csr((2, 3), "f32", 1, allow_empty=True) == MemoryDesc.csr((2, 3), "f32", 1)


# The live library

live = pytest.mark.skipif(onednn.why_unavailable() is not None, reason=str(onednn.why_unavailable()))
Answer = tuple[str, dict[str, Any]]
ENCODINGS = ("csr", "coo", "packed")
MODERN = not onednn.why_unavailable() and onednn.version() >= (3, 13)
TYPES = [] if onednn.why_unavailable() else [t for t in DATA_TYPES.values() if onednn.knows(t.code)]
INTEGERS = [t for t in TYPES if t.name in ("s32", "s64", "s8", "u8")]
DIMS = st.lists(st.sampled_from((0, 1, 2, 3, 5, 8, -1, RUNTIME)), max_size=4).map(tuple)


def has_encoding(encoding: str) -> bool:
    """Return True if the library has the encoding."""
    return hasattr(onednn.library(), f"dnnl_memory_desc_create_with_{encoding}_encoding")


def their_sparse(encoding: str, dims: Sequence[int], data_type: int, nnz: int, *types: int) -> onednn.Desc:
    make = getattr(onednn.library(), f"dnnl_memory_desc_create_with_{encoding}_encoding")
    return onednn.Desc(lambda out: make(out, len(dims), (c_int64 * 12)(*dims), data_type, c_int64(nnz), *types))


def query_results(desc: MemoryDesc | onednn.Desc) -> dict[str, Any]:
    """Return the query results of a sparse descriptor of either library."""
    if desc.ndims == 0:
        return {"ndims": 0}
    if isinstance(desc, MemoryDesc):
        sizes, types = desc.sizes, [0 if t is None else t.code for t in desc.data_types]
    else:
        count = desc.num_handles
        sizes = tuple(desc.size_of(i) for i in range(count))
        # One type is asked for per kind of buffer: values, indices, pointers.
        types = [desc.data_type_of(min(i, 2)) for i in range(count)]
    names = ("kind", "dims", "padded_dims", "padded_offsets", "offset0", "sparse_encoding", "nnz")
    return {name: getattr(desc, name) for name in names} | {"sizes": sizes, "types": types}


def run_creation(make: Callable[[], MemoryDesc | onednn.Desc]) -> Answer:
    try:
        return "success", query_results(make())
    except InlayError as error:
        return str(error.status), {}
    except onednn.Refused as refused:
        return refused.status, {}


@live
@pytest.mark.parity
@pytest.mark.parametrize("encoding", ENCODINGS)
@given(st.data())
def test_create_and_query_answer_as_onednn(encoding: str, data: st.DataObject) -> None:
    """Over valid and invalid dims, with an `nnz` and metadata types that Inlay takes, and at most 2 dims of COO."""
    if not has_encoding(encoding):
        pytest.skip(f"this oneDNN has no {encoding}")
    dims = data.draw(DIMS) if encoding != "coo" else data.draw(DIMS)[:2]
    # 3.2 counts three buffers for CSR of one dim, its successors two.
    assume(MODERN or len(dims) != 1)
    data_type = data.draw(st.sampled_from(TYPES))
    count = {"csr": 2, "coo": 1, "packed": 0}[encoding]
    types = [data.draw(st.sampled_from(INTEGERS)) for _ in range(count)]
    nnz = data.draw(st.integers(0, prod(5 if n == RUNTIME else max(n, 0) for n in dims)))
    ours = run_creation(lambda: getattr(MemoryDesc, encoding)(dims, data_type, nnz, *types))
    theirs = run_creation(lambda: their_sparse(encoding, dims, data_type.code, nnz, *(t.code for t in types)))
    assert ours == theirs


# Intended differences


@live
@pytest.mark.parity
def test_coo_takes_any_number_of_dims() -> None:
    assert MemoryDesc.coo((2, 3, 4), "f32", 1).num_handles == 4
    if has_encoding("coo"):
        with pytest.raises(onednn.Refused, match="unimplemented"):
            their_sparse("coo", (2, 3, 4), 3, 1, 4)


@live
@pytest.mark.parity
@pytest.mark.parametrize("nnz", [-1, 13])
def test_nnz_is_checked(nnz: int) -> None:
    assert run_creation(lambda: MemoryDesc.csr((3, 4), "f32", nnz))[0] == "invalid_arguments"
    assert their_sparse("csr", (3, 4), 3, nnz, 4, 4).nnz == nnz


@live
@pytest.mark.parity
@pytest.mark.parametrize("metadata", [0, 3], ids=["undef", "f32"])
def test_metadata_types_are_checked(metadata: int) -> None:
    assert run_creation(lambda: MemoryDesc.csr((3, 4), "f32", 1, "f32"))[0] == "invalid_arguments"
    assert run_creation(lambda: MemoryDesc.csr((3, 4), "f32", 1, "undef"))[0] == "invalid_arguments"
    assert their_sparse("csr", (3, 4), 3, 1, metadata, metadata).data_type_of(1) == metadata


@live
@pytest.mark.parity
def test_csr_of_one_dim_has_two_buffers_and_no_third_size() -> None:
    """oneDNN counts two, and answers the size of a third all the same."""
    ours, theirs = MemoryDesc.csr((5,), "f32", 2), their_sparse("csr", (5,), 3, 2, 4, 4)
    assert ours.num_handles == 2
    assert theirs.num_handles == (2 if MODERN else 3)
    assert ours.sizes == (theirs.size_of(0), theirs.size_of(1))
    assert theirs.size_of(2) == 6 * 4
