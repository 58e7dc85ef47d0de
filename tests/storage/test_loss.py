"""The loss of a conversion to another data type is reported, and more than 0.1 % is refused."""

from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from inlay.data_type import DATA_TYPES, DataType
from inlay.descriptor import MemoryDesc
from inlay.errors import InvalidArguments
from inlay.memory import Memory, pack, reorder
from inlay.storage import convert, plan, save_memories
from inlay.storage.loss import LossScan, can_lose, count_loss
from tests.support.command_line import Capture, complaint, outputs
from tests.support.refusals import raises_exactly
from tests.support.tensor_files import Array, numbered

WEIGHTS = np.linspace(-0.06, 0.06, 4096, dtype=np.float32).reshape(64, 64)


def refusal(name: str, zeroed: str, nonzero: int, saturated: str, data_type: str) -> str:
    return (
        f"tensor {name}: {zeroed} % of {nonzero} non-zero elements become 0 and {saturated} % saturate in {data_type}, "
        "and 0.1 % may be lost: scale its values into the range of the type first, choose another type, or allow the "
        "loss (--allow-loss, in Python allow_loss=True)"
    )


def test_weights_that_would_all_become_zero_are_refused_before_the_target_is_touched() -> None:
    np.save("w.npy", WEIGHTS)
    Path("q.npy").write_text("the old content")
    with raises_exactly(InvalidArguments, refusal("w", "100", 4096, "0", "s8")):
        convert(plan("w.npy", "q.npy", ["plain"], data_type="s8"), overwrite=True)
    assert sorted(path.name for path in Path().iterdir()) == ["q.npy", "w.npy"]
    assert Path("q.npy").read_text() == "the old content"


def test_the_command_refuses_and_allows(monkeypatch: pytest.MonkeyPatch, capsys: Capture) -> None:
    save_file({"fine": np.arange(-100, 100, dtype=np.float32), "small": WEIGHTS}, "w.safetensors")
    command = ["convert", "w.safetensors", "-o", "q.safetensors", "--to", "plain", "--dtype", "s8"]
    assert complaint(capsys, *command) == refusal("small", "100", 4096, "0", "s8")
    assert not Path("q.safetensors").exists()
    lines = outputs(capsys, *command, "--allow-loss")[0].splitlines()
    assert lines[0].startswith("wrote q.safetensors: 2 of 2 tensors converted, ")
    assert lines[1:] == ["small: 100 % of 4096 non-zero elements become 0 and 0 % saturate in s8"]
    assert not load_file("q.safetensors")["small"].any()


def test_a_loss_of_a_thousandth_is_told_and_more_is_refused() -> None:
    values = np.full(3000, 7, np.float32)
    values[:3] = 300, -300, 0.25
    np.save("w.npy", values)
    (loss,) = convert(plan("w.npy", "q.npy", ["plain"], data_type="s8"))
    assert (loss.name, loss.nonzero, loss.zeroed, loss.saturated) == ("w", 3000, 1, 2)
    assert np.load("q.npy").tolist() == [127, -128, 0] + [7] * 2997
    np.save("w.npy", values[:-1])
    planned = plan("w.npy", "r.npy", ["plain"], data_type="s8")
    with raises_exactly(InvalidArguments, refusal("w", "0.0333", 2999, "0.0667", "s8")):
        convert(planned)
    assert convert(planned, allow_loss=True)[0].share == 3 / 2999


def test_zeros_are_no_loss_and_what_is_only_reordered_loses_nothing() -> None:
    np.save("z.npy", np.zeros((8, 8), np.float32))
    assert convert(plan("z.npy", "q.npy", ["plain"], data_type="s8")) == ()
    np.save("w.npy", WEIGHTS)
    assert convert(plan("w.npy", "p.safetensors", ["Ab16a"])) == ()


def every_value(source: DataType) -> Array:
    """All bit patterns of a type of up to 16 bits; of a wider one, its neighbors of every limit of every other type."""
    if source.bits <= 16:
        codes = np.arange(1 << source.bits, dtype=np.uint16 if source.bits == 16 else np.uint8)
        return codes.view(source.dtype) if not source.is_sub_byte else codes.astype(source.dtype)
    kind = source.dtype
    edges = [0.0, 0.5, 1.5, 2.0**-127, 2.0**128, 65520.0, 61440.0, 464.0, 7.0, 0.25, 2.0**-10, 2.0**-25, 2.0**-17]
    edges += [t.highest + 0.5 for t in DATA_TYPES.values()] + [t.highest for t in DATA_TYPES.values()]
    if source.kind != "float":
        near = {int(edge) + step for edge in edges for step in (-1, 0, 1)}
        kept = [v for n in near for v in (n, -n) if source.lowest <= v <= source.highest]
        return np.array(kept, kind)
    with np.errstate(over="ignore"):
        middle = np.array(edges, kind)
        around = [middle, np.nextafter(middle, kind.type(0)), np.nextafter(middle, kind.type(np.inf))]
    return np.concatenate([*around, *(-x for x in around), np.array([np.inf, -np.inf, np.nan], kind)])


def counted_by_converting(values: Array, dst: DataType) -> tuple[int, int, int]:
    """Classify the elements by the result of the conversion and exact numbers."""
    flat = pack(values, "a")
    result = reorder(flat, MemoryDesc(flat.desc.dims, dst, "a")).unpack()
    with np.errstate(invalid="ignore"):  # a signaling NaN is a NaN
        numbers = result.astype(np.float64).tolist()
    nonzero = zeroed = saturated = 0
    for before, after in zip(values.tolist(), numbers, strict=True):
        if before == 0:
            continue
        nonzero += 1
        if before != before:
            zeroed += after == 0
            saturated += after == after and after != 0
        elif not in_range(before, after, dst):
            saturated += 1
        else:
            zeroed += after == 0
    return nonzero, zeroed, saturated


def in_range(before: float, after: float, dst: DataType) -> bool:
    """Return True if rounding alone leads from one number to the other."""
    if before == after:
        return True
    if not np.isfinite(before) or not np.isfinite(after):
        return False
    if dst.name == "e8m0":
        return dst.lowest <= before
    if dst.kind != "float":
        return dst.lowest <= round(before) <= dst.highest
    if abs(after) != dst.highest or dst.name == "f64":
        return True
    below = float(np.nextafter(np.array(dst.highest, dst.dtype), dst.dtype.type(0)))
    half = (dst.highest - below) / 2
    return abs(before) < dst.highest + half or (dst.name == "f8_e4m3" and abs(before) == dst.highest + half)


OFTEN = ("f32", "bf16", "s32")
SOURCES = [t if t.name in OFTEN else pytest.param(t, marks=pytest.mark.heavy) for t in DATA_TYPES.values()]


@pytest.mark.parametrize("src", SOURCES, ids=str)
@pytest.mark.parametrize("dst", DATA_TYPES.values(), ids=str)
def test_losses_are_those_of_the_conversion(src: DataType, dst: DataType) -> None:
    """Value by value: an exact look at one, and the quick look at pieces without a loss."""
    if src == dst:
        assert not can_lose(src, dst)
        return
    values = every_value(src)
    loss = count_loss("t", pack(values, "a"), dst)
    nonzero, zeroed, saturated = counted_by_converting(values, dst)
    if not can_lose(src, dst):
        assert (zeroed, saturated) == (0, 0)
        return
    assert (loss.nonzero, loss.zeroed, loss.saturated) == (nonzero, zeroed, saturated)
    for value in values[:: max(len(values) // 20, 1)]:
        one = np.array([value, value], values.dtype)
        alone = count_loss("t", pack(one, "a"), dst)
        assert (alone.nonzero, alone.zeroed, alone.saturated) == counted_by_converting(one, dst), value


LAYOUTS = [
    MemoryDesc((3, 37, 5), "f32", "aBc16b"),
    MemoryDesc((3, 37, 5), "f32", strides=(400, 8, 1)),
    MemoryDesc((3, 64, 5), "f32", "aBc16b").submemory((3, 32, 5), (0, 16, 0)),
    MemoryDesc((5, 3, 70000), "f32", strides=(1, 5, 16)),
    MemoryDesc((2, 70003), "f32", "aB16b"),
    MemoryDesc((4, 6), "f32", "ba"),
]


@pytest.mark.parametrize("desc", LAYOUTS, ids=str)
def test_padding_and_gaps_are_not_counted_whatever_is_in_them(desc: MemoryDesc) -> None:
    layout, _ = desc.require_layout("test")
    junk = np.full(max(desc.size // 4, desc.offset0 + layout.span[1]), 1e9, np.float32)
    values = np.random.default_rng(5).choice([0.0, 0.1, 5.0, 1000.0], desc.dims).astype(np.float32)
    reachable = np.indices(desc.dims).reshape(len(desc.dims), -1).T
    junk[desc.offset(reachable)] = values.ravel()
    loss = count_loss("t", Memory(desc, junk), DATA_TYPES["s8"])
    expected = [int((values == v).sum()) for v in (0.0, 0.1, 1000.0)]
    assert [values.size - loss.nonzero, loss.zeroed, loss.saturated] == expected


def test_types_of_4_bits_are_counted() -> None:
    values = np.array([[1, -1, 0, 7], [-8, -8, 2, 3]], ml_dtypes.int4)
    save_memories("a.safetensors", {"q": pack(values, "ab")})
    planned = plan("a.safetensors", "b.safetensors", ["plain"], data_type="u4")
    (loss,) = convert(planned, allow_loss=True)
    assert (loss.nonzero, loss.zeroed, loss.saturated) == (7, 0, 3)


def test_little_memory_is_held_beside_the_tensor() -> None:
    """Pieces are counted: no copy of the tensor, in whatever type, is made."""
    import tracemalloc

    memory: Any = pack(numbered((1 << 12, 1 << 10), "uint8").astype(np.float32), "ab")
    tracemalloc.start()
    count_loss("t", memory, DATA_TYPES["s8"])
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < memory.desc.size // 4


@pytest.mark.parametrize("tag", ["ab", "aB16b"])
@pytest.mark.parametrize("data_type", ["f32", "f16", "bf16"])
def test_a_signaling_nan_is_counted_without_a_warning(tag: str, data_type: str) -> None:
    desc = MemoryDesc((2, 17), data_type, tag)
    pattern = np.array(
        {"f32": 0x7F800001, "f16": 0x7C01, "bf16": 0x7F81}[data_type], "u4" if data_type == "f32" else "u2"
    )
    memory = Memory(desc, np.full(desc.size // pattern.itemsize, pattern).view(np.uint8))
    loss = count_loss("t", memory, DATA_TYPES["s8"])
    assert (loss.nonzero, loss.zeroed, loss.saturated) == (34, 34, 0)


@pytest.mark.parametrize("size", [0, 1, 15, 16, 17, 1000])
def test_counts_are_those_of_numpy(size: int) -> None:
    numbers = np.array([0.0, -0.0, 1e-45, -1e-45, 0.5, -0.5, 3.0, -3.0, 3.5, np.inf, -np.inf, np.nan], np.float32)
    values = np.random.default_rng(size).choice(numbers, size)
    found = LossScan(((3.0, np.inf), (-np.inf, -3.0)), 0.5).count(values)
    exact = values.astype(np.float64)
    assert found.nonzero == np.count_nonzero(exact)
    assert found.vanishing == np.count_nonzero((exact != 0) & (np.abs(exact) <= 0.5))
    assert found.saturated == np.count_nonzero(np.abs(exact) >= 3)
    assert found.nan == np.count_nonzero(np.isnan(exact))
