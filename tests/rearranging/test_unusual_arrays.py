"""Arrays and destinations that are unusual: types that descriptors lack, odd addresses, subclasses, other libraries."""

import gc
import weakref
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import inlay
from inlay.memory import pack

X = np.arange(12, dtype=np.float32).reshape(3, 4)


@pytest.mark.parametrize("dtype", [ml_dtypes.int4, ml_dtypes.float8_e3m4, "S1", ">f4", "M8[s]", "?"])
@pytest.mark.parametrize("source", ["f4", "u1", "i4"])
def test_out_of_another_type_is_never_written_as_bits(dtype: Any, source: str) -> None:
    """A type that no reorder converts to is refused by its own name, and `out` keeps its bytes."""
    out = np.zeros((4, 3), dtype)
    before = out.tobytes()
    text = f"elements of {np.dtype(source)} are never converted to {out.dtype}: convert the array first"
    with pytest.raises(inlay.InvalidArguments) as error:
        inlay.rearrange(X.astype(source), "a b -> b a", out=out)
    assert str(error.value) == text
    assert out.tobytes() == before


def test_a_type_by_name_is_not_that_of_bits() -> None:
    """Big-endian elements are moved as u32, which they are not."""
    swapped = X.astype(">f4")
    with pytest.raises(inlay.InvalidArguments, match="elements of >f4 are never converted to u32"):
        inlay.rearrange(swapped, "a b -> b a", dtype="u32")
    with pytest.raises(inlay.InvalidArguments, match="dtype is u32, but out holds >f4"):
        inlay.rearrange(swapped, "a b -> b a", dtype="u32", out=np.zeros((4, 3), ">f4"))
    with pytest.raises(inlay.InvalidArguments, match="elements of bool have no scale: convert the array first"):
        inlay.rearrange(np.ones((2, 3), bool), "a b -> b a", scale=2)


@pytest.mark.parametrize("dtype", ["bool", "uint16", "uint64", "float32"])
def test_equal_types_of_two_libraries_are_moved(dtype: str) -> None:
    """An array of NumPy is written to a tensor of the same type, and the reverse, for types that are only moved too."""
    torch = pytest.importorskip("torch")
    x = (X % 2).astype(dtype)
    tensor = torch.zeros(4, 3, dtype=getattr(torch, dtype))
    inlay.rearrange(x, "a b -> b a", out=tensor)
    assert np.array_equal(tensor.numpy(), x.T)
    assert np.array_equal(inlay.rearrange(tensor, "a b -> b a", out=np.empty_like(x)), x)


def test_a_tensor_as_scale_is_read_in_each_call() -> None:
    """A scale may be changed in place between two calls."""
    torch = pytest.importorskip("torch")
    x, scale = torch.from_numpy(X), torch.tensor(2.0)
    for factor in (2, 20):
        scale.fill_(factor)
        assert np.array_equal(inlay.rearrange(x, "a b -> b a", scale=scale).numpy(), X.T * factor)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_tensors_at_odd_addresses_are_moved(dtype: str) -> None:
    """A tensor need not begin at a multiple of its elements."""
    torch = pytest.importorskip("torch")
    expected = torch.arange(12).reshape(3, 4).to(getattr(torch, dtype))
    raw = bytearray(b"\0" + expected.view(torch.uint8).numpy().tobytes())
    x = torch.frombuffer(raw, dtype=expected.dtype, offset=1).reshape(3, 4)[:, ::2]
    assert torch.equal(inlay.rearrange(x, "a b -> b a", copy=True), expected[:, ::2].T)
    out = torch.zeros(2, 3, dtype=x.dtype)
    assert torch.equal(inlay.rearrange(x, "a b -> b a", out=out), expected[:, ::2].T)


def test_scales_of_zero_keep_their_sign() -> None:
    for scale in (0, -0.0, 0.0, np.float32(-0.0), 0):
        scaled = inlay.rearrange(X.astype(np.float32), "a b -> b a", scale=scale)
        assert (np.signbit(scaled) == np.signbit(scale)).all()


def test_a_remembered_call_does_not_keep_out_alive() -> None:
    """The destination of a call by the functions of a framework is freed with its last reference."""

    class Destination(np.ndarray[Any, Any]):
        """An array that weak references may refer to."""

    out = np.empty((4, 3), object).view(Destination)
    inlay.rearrange(X.astype(object), "a b -> b a", out=out)
    assert out[1, 2] == 9
    reference = weakref.ref(out)
    del out
    gc.collect()
    assert reference() is None


def test_a_memory_map_is_a_destination(tmp_path: Path) -> None:
    """Subclasses of NumPy's arrays are written like arrays, apart from masked ones."""
    out = np.memmap(tmp_path / "result.bin", np.float32, "w+", shape=(4, 3))
    assert inlay.rearrange(X, "a b -> b a", out=out) is out
    assert np.array_equal(np.fromfile(tmp_path / "result.bin", np.float32).reshape(4, 3), X.T)
    with pytest.raises(inlay.InvalidArguments, match="out is a MaskedArray, which cannot be written in place"):
        inlay.rearrange(X, "a b -> b a", out=np.ma.zeros((4, 3), np.float32))


def test_errors_of_a_framework_name_out() -> None:
    """Read-only and uncastable destinations of arrays that no reorder moves."""
    read_only = np.empty((4, 3), object)
    read_only.flags.writeable = False
    for out in (read_only, np.empty((4, 3), np.float32)):
        with pytest.raises(inlay.InvalidArguments, match="out cannot be written by the framework of the array: "):
            inlay.rearrange(X.astype(object), "a b -> b a", out=out)


def test_plain_memory_is_rearranged_and_blocked_memory_names_the_remedy() -> None:
    """A `Memory` is an array where it has strides, for types without DLPack too."""
    memory = pack(X.astype(ml_dtypes.bfloat16), "ba")
    assert np.array_equal(inlay.rearrange(memory, "a b -> b a"), X.T.astype(ml_dtypes.bfloat16))
    with pytest.raises(inlay.InvalidArguments, match=r"m\.numpy\(\) is a view.*m\.unpack\(\) copies the elements"):
        inlay.rearrange(pack(X, "aB8b"), "a b -> b a")


def test_random_keys_of_jax_are_rearranged() -> None:
    """Elements without numbers are moved by the functions of JAX."""
    jax = pytest.importorskip("jax")
    keys = jax.random.split(jax.random.key(0), 4)
    data = jax.random.key_data(inlay.rearrange(keys, "(a b) -> b a", a=2))
    assert np.array_equal(data, jax.random.key_data(keys).reshape(2, 2, -1).swapaxes(0, 1))


@settings(max_examples=60, deadline=None)
@given(
    st.integers(1, 9),
    st.integers(1, 40),
    st.integers(1, 40),
    st.sampled_from(["u1", "f4", "c16"]),
    st.booleans(),
)
def test_interleaved_parts_of_one_array_are_apart(
    rows: int, width: int, gap: int, dtype: str, transposes: bool
) -> None:
    """`out` may lie between the rows of the array, and nothing between them is written."""
    whole = np.arange(rows * (2 * width + gap)).reshape(rows, -1).astype(dtype)
    before = whole.copy()
    x, out = whole[:, :width], whole[:, width : 2 * width]
    if transposes:
        x, out = x[::-1].T, out.T
    assert inlay.rearrange(x, "a b -> a b", out=out) is out
    assert np.array_equal(out, x)
    assert np.array_equal(whole[:, :width], before[:, :width])
    assert np.array_equal(whole[:, 2 * width :], before[:, 2 * width :])


def test_one_shared_byte_is_refused() -> None:
    """Rows that cross are not apart."""
    whole = np.arange(64, dtype=np.float32).reshape(8, 8)
    for out in (whole[:, 2:5], whole[::-1, 2:5], whole[1:6, 2:].T):
        with pytest.raises(inlay.InvalidArguments, match="out shares bytes with the array"):
            inlay.rearrange(whole[: out.shape[0], : out.shape[1]], "a b -> a b", out=out)
