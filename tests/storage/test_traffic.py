"""Traffic of a plan: what it counts is what a conversion reads and writes, and plans are values."""

import json
import pickle
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.numpy import save_file

from inlay.data_type import DATA_TYPES
from inlay.descriptor import MemoryDesc
from inlay.memory import pack
from inlay.storage import convert, cutting, open_memories, plan, positioned_io, save_memories, source_files
from inlay.storage.box import iterate_boxes
from inlay.storage.operation import ReorderOperation
from inlay.storage.store import StoredTensor
from inlay.storage.target import TargetTensor
from inlay.storage.traffic import ConversionTraffic, count_traffic
from tests.support.tensor_files import numbered


@pytest.fixture
def small_boxes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cutting, "BOX_NBYTES", 1000)
    monkeypatch.setattr(cutting, "RUN_NBYTES", 16)
    cutting.cut_extents.cache_clear()


@pytest.fixture
def counted(monkeypatch: pytest.MonkeyPatch) -> dict[str, int]:
    """The bytes that reads and writes of files moved."""
    moved = {"read": 0, "written": 0}

    def read_at(descriptor: int, data: memoryview, offset: int) -> int:
        moved["read"] += len(data)
        return positioned_io.read_at(descriptor, data, offset)

    def write_at(descriptor: int, data: memoryview, offset: int) -> None:
        moved["written"] += len(data)
        positioned_io.write_at(descriptor, data, offset)

    monkeypatch.setattr(source_files, "read_at", read_at)
    monkeypatch.setattr("inlay.storage.file_target.write_at", write_at)
    return moved


TENSORS = [
    ("a", (50, 33), "aB16b", "aB8b"),
    ("b", (77, 33, 4), "ABc16b4a", "bAc8a"),
    ("c", (99, 7), "ab", "ba"),
    ("d", (4099,), "a", "a"),
]


@pytest.mark.usefixtures("small_boxes")
def test_counted_bytes_are_those_that_are_moved(counted: dict[str, int]) -> None:
    memories = {name: pack(numbered(dims), src) for name, dims, src, _ in TENSORS}
    save_memories("a.safetensors", memories)
    planned = plan("a.safetensors", "b.safetensors", [f"{name}={dst}" for name, _, _, dst in TENSORS])
    convert(planned)
    traffic = planned.traffic
    # The file ends tensors at multiples of 64 bytes; what lies behind their last elements is neither read nor written.
    sizes = [(memories[each.new.name].desc.size, each.new.bytes_desc.size) for each in planned.tensors]
    assert (counted["read"], traffic.read, traffic.read_again) == (sum(n for n, _ in sizes), counted["read"], 0)
    assert counted["written"] == sum(n for _, n in sizes)
    assert 0 <= traffic.written - counted["written"] < 64 * len(TENSORS)
    assert traffic.tasks == planned.count == len(list(planned.tasks())) > 20


@pytest.mark.usefixtures("small_boxes")
def test_gaps_between_elements_are_not_read(counted: dict[str, int]) -> None:
    desc = MemoryDesc((40, 12), "f32", strides=(100, 1))
    save_memories("a.safetensors", {"t": pack(numbered((40, 12)), desc)})
    planned = plan("a.safetensors", "b.safetensors", ["ba"])
    convert(planned)
    assert counted["read"] == planned.traffic.read == 40 * 12 * 4 < planned.source.tensors[0].nbytes


@pytest.mark.parametrize("memory", ["300 B", "2kB", "1 GB"])
@pytest.mark.usefixtures("small_boxes")
def test_no_task_takes_more_than_the_plan_says(memory: str) -> None:
    save_memories("a.safetensors", {name: pack(numbered(dims), src) for name, dims, src, _ in TENSORS})
    planned = plan("a.safetensors", "b.safetensors", [f"{n}={dst}" for n, _, _, dst in TENSORS], memory=memory)
    with planned.source.open() as reader:
        for task in planned.tasks():
            each = planned.tensors[task.tensor]
            src = reader.read_box(each.tensor, each.src, task.box).buffer.size
            assert src < each.traffic.task_nbytes <= planned.traffic.task_nbytes <= planned.memory
    convert(planned)
    with Path("b.safetensors").open("rb"):
        found = open_memories("b.safetensors")
    for name, dims, _, _ in TENSORS:
        assert found[name].unpack().tobytes() == numbered(dims).tobytes()


@settings(max_examples=200)
@given(st.lists(st.tuples(st.integers(1, 20), st.integers(1, 9), st.integers(1, 9)), min_size=1, max_size=3))
def test_chunks_are_read_as_a_whole(axes: list[tuple[int, int, int]]) -> None:
    dims, chunks, extents = (tuple(values) for values in zip(*axes, strict=True))
    desc = MemoryDesc(dims, "s16", strides=None)
    tensor = StoredTensor("t", "<i2", dims, 0, desc.size, desc, chunks=chunks)
    operation = ReorderOperation(TargetTensor("t", desc, desc.size), DATA_TYPES["s8"])
    touched = 0
    for box in iterate_boxes(dims, extents):
        for chunk in iterate_boxes(dims, chunks):
            sides = zip(box.begin, box.end, chunk.begin, chunk.end, strict=True)
            if all(max(b, c) < min(e, f) for b, e, c, f in sides):
                touched += 2 * chunk.size
    traffic = count_traffic(tensor, desc, extents, operation)
    assert (traffic.read, traffic.read_again, traffic.written) == (touched, touched - desc.size, desc.size)


def test_a_plan_is_json_and_can_be_pickled() -> None:
    save_file({"w": numbered((30, 17, 2, 2)), "s": np.array(1, np.float16)}, "a.safetensors")
    planned = plan("a.safetensors", "p.safetensors", ["w=nChw16c"], memory="64kB")
    described = json.loads(json.dumps(planned.to_json()))
    assert {key: value for key, value in described.items() if key != "tensors"} == {
        "source": "a.safetensors",
        "target": "p.safetensors",
        "memory": 64000,
        "bytes_read": 8162,
        "bytes_read_again": 0,
        "bytes_written": 15362,
        "tasks": 2,
        "task_bytes": 23520,
        "first_pass": None,
    }
    assert described["tensors"][0] == {
        "name": "w",
        "stored_type": "F32",
        "shape": [30, 17, 2, 2],
        "action": "convert",
        "source": "f32::blocked:abcd::f0",
        "target": "f32:p:blocked:aBcd16b::f0",
        "beside": {},
        "bytes_read": 8160,
        "bytes_read_again": 0,
        "bytes_written": 15360,
        "box": [30, 17, 2, 2],
        "tasks": 1,
        "task_bytes": 23520,
    }
    assert [described["tensors"][1][key] for key in ("action", "source", "target")] == ["copy", None, None]
    again = pickle.loads(pickle.dumps(planned))
    assert again == planned
    assert str(again) == str(planned)


def test_traffic_in_words() -> None:
    assert str(ConversionTraffic(2_000, 0, 1_500, 1, 3_500)) == "reads 2.0 kB and writes 1.5 kB in 1 task of 3.5 kB"
    text = "reads 2.0 kB (500 bytes of them again) and writes 1.5 kB in 4 tasks of up to 600 bytes"
    assert str(ConversionTraffic(2_000, 500, 1_500, 4, 600)) == text
