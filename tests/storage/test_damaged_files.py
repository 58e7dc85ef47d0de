"""Damaged archives, models and indexes: each is read, or refused with an error of Inlay, and nothing is executed."""

import json
import random
import secrets
import sys
import zipfile
from collections.abc import Callable
from io import BytesIO
from pathlib import Path

import numpy as np
import pytest
from onnx import external_data_helper, helper, numpy_helper

from inlay.errors import InlayError
from inlay.storage import convert, open_store, plan
from tests.support.fuzz_files import mutant, mutant_json
from tests.support.networks import torch_or_skip
from tests.support.stored_arrays import arrays, assert_not_executed, save_npz, write_checkpoint

LARGEST_RESULT = 1 << 20
"""Bytes of a conversion that is carried out."""


def good_npz() -> Path:
    save_npz("good.npz", arrays(), is_compressed=True)
    with zipfile.ZipFile("good.npz", "a") as archive:
        stream = BytesIO()
        np.save(stream, np.arange(12).reshape(3, 4))
        archive.writestr("stored.npy", stream.getvalue())
    return Path("good.npz")


def good_onnx() -> Path:
    protos = [numpy_helper.from_array(array, name) for name, array in arrays().items()]
    Path("weights.data").write_bytes(protos[0].raw_data)
    external_data_helper.set_external_data(protos[0], "weights.data", 0, len(protos[0].raw_data))
    protos[0].ClearField("raw_data")
    model = helper.make_model(helper.make_graph([], "g", [], [], protos))
    Path("good.onnx").write_bytes(model.SerializeToString())
    return Path("good.onnx")


def good_torch() -> Path:
    torch = torch_or_skip()
    base = torch.arange(24.0).reshape(2, 3, 4)
    torch.save({"a": base, "b": {"c": base.transpose(0, 2), "n": 3}, "d": base.half()[1:]}, "good.pt")
    return Path("good.pt")


def good_index() -> Path:
    items = list(arrays().items())
    return write_checkpoint(".", [dict(items[:2]), dict(items[2:])])


def damage_json(data: bytes, draw: random.Random) -> bytes:
    return json.dumps(mutant_json(json.loads(data), draw)).encode()


def damage_members(data: bytes, draw: random.Random) -> bytes:
    """Damage one member of an archive, whose checksum then is right."""
    with zipfile.ZipFile(BytesIO(data)) as archive:
        members = [(info.filename, archive.read(info)) for info in archive.infolist()]
    number, stream = draw.randrange(len(members)), BytesIO()
    with zipfile.ZipFile(stream, "w") as archive:
        for i, (name, content) in enumerate(members):
            archive.writestr(name, mutant(content, draw) if i == number else content)
    return stream.getvalue()


KINDS: dict[str, tuple[Callable[[], Path], Callable[[bytes, random.Random], bytes]]] = {
    "npz": (good_npz, damage_members),
    "onnx": (good_onnx, mutant),
    "pt": (good_torch, damage_members),
    "index": (good_index, damage_json),
}


def read_mutants(kind: str, seed: int, count: int) -> tuple[int, int]:
    """Return the numbers of mutants that were read and that were refused."""
    make, damage = KINDS[kind]
    path = make()
    good, refused = path.read_bytes(), 0
    for number in range(count):
        draw = random.Random(seed * 1_000_003 + number)
        path.write_bytes(damage(good, draw) if draw.random() < 0.6 else mutant(good, draw))
        sys.stdout.write(f"mutant {number} of seed {seed}\n")  # the last one is printed where a test fails
        try:
            convert_small(path)
        except InlayError:
            refused += 1
    return count - refused, refused


def convert_small(path: Path) -> None:
    target = Path("out.safetensors")
    target.unlink(missing_ok=True)
    if sum(tensor.nbytes for tensor in open_store(path).tensors) <= LARGEST_RESULT:
        made = plan(path, target, memory=4 * LARGEST_RESULT)
        if made.nbytes <= LARGEST_RESULT:  # strides of 0 make gigabytes of a few bytes
            convert(made)


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "pt"])
def test_a_hundred_mutants_are_refused_or_read(kind: str) -> None:
    read, refused = read_mutants(kind, 20, 100)
    assert read > 2
    assert refused > 20
    assert_not_executed()


@pytest.mark.heavy
@pytest.mark.parametrize("kind", KINDS)
def test_a_thousand_new_mutants_are_refused_or_read(kind: str) -> None:
    """Another seed each time; a failure names it."""
    read, refused = read_mutants(kind, secrets.randbelow(10**9), 1000)
    assert read > 20
    assert refused > 200
    assert_not_executed()
