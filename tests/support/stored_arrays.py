"""Arrays to store in files of any format, and what tests of those files share."""

import json
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from safetensors.numpy import load_file, save_file

from inlay.storage import convert, plan
from inlay.storage.options import OpenOptions, WriteOptions
from tests.support.tensor_files import numbered

Arrays = dict[str, npt.NDArray[Any]]

READ = OpenOptions()
WRITE = WriteOptions()


def arrays() -> Arrays:
    """Arrays of several types and shapes: a scalar, one without elements, and names with dots and slashes."""
    return {
        "encoder.weight": numbered((33, 17)),
        "encoder.bias": numbered((33,), np.float16),
        "ids": np.arange(5, dtype=np.int64),
        "mask/0": np.array([True, False, True]),
        "scale": np.array(2.5, np.float32),
        "empty": np.zeros((0, 3), np.float64),
    }


def save_npz(path: str, given: Arrays, *, is_compressed: bool = False) -> None:
    """Save arrays by NumPy."""
    save: Any = np.savez_compressed if is_compressed else np.savez
    save(path, **given)


def run_with(
    source: str | Path, target: str | Path, *to: str, read: OpenOptions = READ, write: WriteOptions = WRITE
) -> None:
    """Convert with options of the source and of the target."""
    convert(plan(source, target, to, source_options=read, target_options=write), overwrite=True)


def assert_holds(path: str | Path, expected: Arrays) -> None:
    """Check by the safetensors library that a file holds exactly these arrays."""
    assert_equal(load_file(path), expected)


def assert_equal(found: Arrays, expected: Arrays) -> None:
    """Check names, types, shapes and bytes."""
    assert sorted(found) == sorted(expected)
    for name, array in expected.items():
        assert (found[name].dtype, found[name].shape) == (array.dtype, array.shape), name
        assert found[name].tobytes() == np.ascontiguousarray(array).tobytes(), name


def write_checkpoint(folder: str, shards: list[Arrays], index: Any = None) -> Path:
    """Write a sharded checkpoint by the safetensors library; `index`, if not None, in place of the right one."""
    Path(folder).mkdir(exist_ok=True)
    places = {}
    for i, shard in enumerate(shards):
        name = f"model-{i + 1:05d}-of-{len(shards):05d}.safetensors"
        save_file(shard, Path(folder) / name, {"format": "pt"})
        places.update(dict.fromkeys(shard, name))
    path = Path(folder) / "model.safetensors.index.json"
    path.write_text(json.dumps({"metadata": {}, "weight_map": places} if index is None else index))
    return path


class Bomb:
    """An object whose unpickling creates the file `executed`."""

    def __reduce__(self) -> tuple[Any, ...]:
        return Path.touch, (Path("executed"),)


def assert_not_executed() -> None:
    """Check that no `Bomb` was unpickled."""
    assert not Path("executed").exists()


def bomb() -> bytes:
    """A pickle that executes code."""
    return pickle.dumps({"w": Bomb()})
