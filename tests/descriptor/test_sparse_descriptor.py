"""Sparse descriptors: queries and errors, compared with oneDNN.

The comparison needs a library with the encoding: 3.2 has CSR, 3.13 also COO and packed. The tests under "Intended
differences" cover the cases where Inlay differs on purpose.
"""

import copy
import pickle
from collections.abc import Callable, Sequence
from ctypes import c_int64
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from inlay.data_type import DATA_TYPES
from inlay.descriptor import COO, CSR, MemoryDesc, Packed
from inlay.errors import InlayError, InvalidArguments, Unimplemented
from inlay.layout import RUNTIME
from inlay.render import show
from inlay.testing import sparse_descriptors
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
    assert desc.kind == "sparse"
    assert desc.padded_dims == desc.dims
    assert desc.padded_offsets == (0,) * desc.ndims
    assert desc.offset0 == 0
    assert desc.tag is None
    assert not desc.is_zero
    assert not desc.has_runtime
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


def test_values_of_4_bits_take_a_byte_each() -> None:
    assert MemoryDesc.csr((3, 4), "s4", 5).sizes == (5, 20, 16)


def test_dense_kinds_have_one_buffer() -> None:
    for desc in (
        MemoryDesc((3, 4), "f32"),
        MemoryDesc((3, 4), "f32", "any"),
        MemoryDesc.host_scalar("s4"),
        MemoryDesc(),
    ):
        assert (desc.num_handles, desc.sizes, desc.data_types) == (1, (desc.size,), (desc.data_type,))


def test_no_dims_give_the_zero_descriptor() -> None:
    assert (
        MemoryDesc.csr((), "f32", 0) == MemoryDesc.coo((), "f32", 5) == MemoryDesc.packed((), "f32", -1) == MemoryDesc()
    )
    assert MemoryDesc.csr((), "nonsense", 0).is_zero


@given(sparse_descriptors(packed=True))
def test_a_descriptor_is_restored_by_its_repr_pickle_and_copy(desc: MemoryDesc) -> None:
    assert eval(repr(desc)) == desc
    for restored in (pickle.loads(pickle.dumps(desc)), copy.copy(desc), copy.deepcopy(desc)):
        assert restored == desc
        assert hash(restored) == hash(desc)
        assert restored.layout == desc.layout


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
    assert str(show(ROWS, width=80, color=False)) == (
        "sparse csr, 3 x 4 of f32\n"
        "text    f32::sparse:csr::f0 3x4\n"
        "stored  2 of 12 elements (16.7%), the others are zero\n"
        "buffers values f32, 8 bytes; indices s32, 8 bytes; pointers s32, 16 bytes\n"
        "Row after row: pointers say where each row starts among the values, indices\n"
        "which column each belongs to."
    )
    assert str(show(POINTS, width=80, color=False, names="xyz")) == (
        "sparse coo, 3 x 4 x 5 of bf16\n"
        "text    bf16::sparse:coo::f0 3x4x5\n"
        "stored  2 of 60 elements (3.3%), the others are zero\n"
        "buffers values bf16, 4 bytes; x s64, 16 bytes; y s64, 16 bytes; z s64, 16 bytes\n"
        "Value after value, each with its coordinate along every axis."
    )
    assert str(show(CHOSEN, width=80, color=False)) == (
        "sparse packed, 64 x 64 of s8\n"
        "text    s8::sparse:packed::f0 64x64\n"
        "stored  1024 of 4096 elements (25.0%), the others are zero\n"
        "The order is not chosen yet: the primitive that takes this descriptor chooses\n"
        "it."
    )
    assert str(show(MemoryDesc.packed((64, 60), "s8", 960, "BA16a64b4a"), width=80, color=False)) == (
        "sparse packed, 64 x 60 of s8\n"
        "text    s8::sparse:packed::f0 64x60\n"
        "stored  960 of 3840 elements (25.0%), the others are zero\n"
        "order   BA16a64b4a\n"
        "buffers values s8, 960 bytes; block offsets s64, 8 bytes; bitmask u8, 512 bytes\n"
        "Block after block in the order of a tag, zeros left out: offsets say where each\n"
        "block starts among the values, bits which elements are stored."
    )
    assert "stored  7 elements, the others are zero" in str(show(MemoryDesc.coo((RUNTIME,), "f32", 7), color=False))
    assert "<svg" in show(ROWS, format="svg").svg()


# Refusals

MISTAKES: list[tuple[str, Callable[[], object], type[InlayError], str]] = [
    (
        "csr_of_3_dims",
        lambda: MemoryDesc.csr((2, 3, 4), "f32", 1),
        Unimplemented,
        "dims (2, 3, 4) are 3: CSR has rows and columns only; MemoryDesc.coo takes any number",
    ),
    (
        "csr_of_3_dims_comes_first",
        lambda: MemoryDesc.csr((2, -3, 4), "boolean", -1, "f32"),
        Unimplemented,
        "dims (2, -3, 4) are 3: CSR has rows and columns only; MemoryDesc.coo takes any number",
    ),
    (
        "too_many_dims",
        lambda: MemoryDesc.coo((1,) * 13, "f32", 1),
        InvalidArguments,
        "13 dims are too many: a descriptor has at most 12",
    ),
    (
        "negative_dim",
        lambda: MemoryDesc.packed((2, -3), "f32", 1),
        InvalidArguments,
        "dim 1 (b) is -3: dims are 0 or more, or RUNTIME",
    ),
    (
        "negative_nnz",
        lambda: MemoryDesc.csr((2, 3), "f32", -1),
        InvalidArguments,
        "nnz is -1: a sparse tensor stores a known number of elements, 0 or more",
    ),
    (
        "runtime_nnz",
        lambda: MemoryDesc.coo((2, 3), "f32", RUNTIME),
        InvalidArguments,
        "nnz is RUNTIME: a sparse tensor stores a known number of elements, 0 or more",
    ),
    (
        "nnz_beyond_the_volume",
        lambda: MemoryDesc.packed((2, 3), "f32", 7),
        InvalidArguments,
        "nnz is 7: dims (2, 3) have 6 elements, and each is stored once at most",
    ),
    (
        "fractional_nnz",
        lambda: MemoryDesc.csr((2, 3), "f32", 1.0),  # type: ignore[arg-type]
        InvalidArguments,
        "nnz is 1.0: give the number of stored elements as an integer",
    ),
    (
        "true_nnz",
        lambda: MemoryDesc.csr((2, 3), "f32", True),
        InvalidArguments,
        "nnz is True: give the number of stored elements as an integer",
    ),
    (
        "float_indices",
        lambda: MemoryDesc.coo((2, 3), "f32", 1, "f32"),
        InvalidArguments,
        "index_type is f32: positions are integers of whole bytes, one of s32, s8, u8, s64",
    ),
    (
        "pointers_of_4_bits",
        lambda: MemoryDesc.csr((2, 3), "f32", 1, "s32", "u4"),
        InvalidArguments,
        "pointer_type is u4: positions are integers of whole bytes, one of s32, s8, u8, s64",
    ),
    (
        "no_data_type",
        lambda: MemoryDesc.csr((2, 3), "boolean", 1),
        InvalidArguments,
        "no descriptor can be made of data type boolean: boolean (code 8) is the result type of oneDNN's "
        "comparisons only; bool stores truth values",
    ),
    (
        "strides",
        lambda: ROWS.strides,
        InvalidArguments,
        "strides belong to blocked layouts: MemoryDesc.csr((3, 4), 'f32', 2) is of kind sparse; "
        "inlay.to_dense(memory) has a layout",
    ),
    (
        "inner_blocks",
        lambda: ROWS.inner_nblks,
        InvalidArguments,
        "inner blocks belong to blocked layouts: MemoryDesc.csr((3, 4), 'f32', 2) is of kind sparse; "
        "inlay.to_dense(memory) has a layout",
    ),
    (
        "offset",
        lambda: ROWS.offset((0, 0)),
        InvalidArguments,
        "offset needs a layout: MemoryDesc.csr((3, 4), 'f32', 2) is of kind sparse; "
        "inlay.to_dense(memory) has a layout",
    ),
    (
        "nnz_of_a_layout",
        lambda: MemoryDesc((2, 3), "f32").nnz,
        InvalidArguments,
        "nnz belongs to sparse descriptors: MemoryDesc((2, 3), 'f32', 'ab') is of kind blocked",
    ),
    (
        "encoding_of_any",
        lambda: MemoryDesc((2, 3), "f32", "any").sparse_encoding,
        InvalidArguments,
        "sparse_encoding belongs to sparse descriptors: MemoryDesc((2, 3), 'f32', 'any') is of kind any",
    ),
]


@pytest.mark.parametrize(("make", "kind", "text"), [case[1:] for case in MISTAKES], ids=[case[0] for case in MISTAKES])
def test_mistakes_are_told(make: Callable[[], object], kind: type[InlayError], text: str) -> None:
    with pytest.raises(kind) as caught:
        make()
    assert str(caught.value) == text


@EACH
def test_views_are_refused_and_name_the_way_out(desc: MemoryDesc) -> None:
    views: list[tuple[str, type[InlayError], Callable[[], object]]] = [
        ("reshape", InvalidArguments, lambda: desc.reshape(desc.dims)),
        ("permute_axes", InvalidArguments, lambda: desc.permute_axes(range(desc.ndims))),
        ("rename_axes", InvalidArguments, lambda: desc.rename_axes(range(desc.ndims))),
        ("submemory", Unimplemented, lambda: desc.submemory(desc.dims, (0,) * desc.ndims)),
    ]
    for name, kind, make in views:
        with pytest.raises(kind) as caught:
            make()
        assert str(caught.value).startswith(f"{name} needs a layout")
        assert str(caught.value).endswith(f": {desc!r} is of kind sparse; inlay.to_dense(memory) has a layout")


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
    count = desc.num_handles
    if isinstance(desc, MemoryDesc):
        sizes, types = desc.sizes, [0 if t is None else t.code for t in desc.data_types]
    else:
        sizes = tuple(desc.size_of(i) for i in range(count))
        # One type is asked for per kind of buffer: values, indices, pointers.
        types = [desc.data_type_of(min(i, 2)) for i in range(count)]
    return {
        "kind": desc.kind,
        "dims": desc.dims,
        "padded_dims": desc.padded_dims,
        "padded_offsets": desc.padded_offsets,
        "offset0": desc.offset0,
        "encoding": desc.sparse_encoding,
        "nnz": desc.nnz,
        "sizes": sizes,
        "types": types,
    }


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
    volume = 1
    for n in dims:
        volume *= 5 if n == RUNTIME else max(n, 0)
    nnz = data.draw(st.integers(0, volume))
    ours = run_creation(lambda: getattr(MemoryDesc, encoding)(dims, data_type, nnz, *types))
    theirs = run_creation(lambda: their_sparse(encoding, dims, data_type.code, nnz, *(t.code for t in types)))
    assert ours == theirs


@live
@pytest.mark.parity
@given(st.data())
def test_equality_answers_as_onednn(data: st.DataObject) -> None:
    def draw() -> tuple[MemoryDesc, onednn.Desc]:
        dims = data.draw(st.sampled_from(((3, 4), (4, 3))))
        types = [data.draw(st.sampled_from(INTEGERS[:2])) for _ in range(2)]
        nnz = data.draw(st.integers(1, 2))
        element = data.draw(st.sampled_from(TYPES[:2]))
        ours = MemoryDesc.csr(dims, element, nnz, *types)
        return ours, their_sparse("csr", dims, element.code, nnz, *(t.code for t in types))

    (one, their_one), (two, their_two) = draw(), draw()
    assert (one == two) == (their_one == their_two)


@live
@pytest.mark.parity
@pytest.mark.parametrize("encoding", ENCODINGS)
def test_views_and_blocked_queries_answer_as_onednn(encoding: str) -> None:
    if not has_encoding(encoding):
        pytest.skip(f"this oneDNN has no {encoding}")
    count = {"csr": 2, "coo": 1, "packed": 0}[encoding]
    ours = getattr(MemoryDesc, encoding)((3, 4), "f32", 2, *["s32"] * count)
    theirs = their_sparse(encoding, (3, 4), 3, 2, *[4] * count)
    asked: list[Callable[[Any], Any]] = [
        lambda desc: desc.reshape((4, 3)),
        lambda desc: desc.permute_axes((1, 0)),
        lambda desc: desc.submemory((1, 1), (0, 0)),
        lambda desc: desc.submemory((4, 4), (0, 0)),
        lambda desc: desc.strides,
        lambda desc: desc.inner_blocks,
    ]
    for ask in asked:
        assert run_creation(lambda ask=ask: ask(ours)) == run_creation(lambda ask=ask: ask(theirs))  # type: ignore[misc]


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
