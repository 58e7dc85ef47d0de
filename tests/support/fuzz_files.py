"""Files that come from anywhere, damaged in every way: a program that reads mutants and judges what comes of each.

    python -m tests.support.fuzz_files safetensors 1234 2000

reads 2,000 mutants of good files of one kind, drawn from the seed. Each must be refused with an InlayError, or read,
and then be written and read back equal. It ends with 1 and says which mutant, where another exception gets out, one
takes 20 seconds, or the process needs over 2 GB. The number of the mutant at hand is always in the file `case` of its
directory, for whoever finds the process dead. It prints how many were read and how many refused.
"""

import hashlib
import json
import os
import random
import resource
import signal
import struct
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np
from safetensors.numpy import save_file

from inlay import cache
from inlay.descriptor import MemoryDesc
from inlay.errors import InlayError, InvalidArguments
from inlay.graph.costs.machine import read_figures
from inlay.graph.costs.timing_records import KernelTiming, RelativeTime, TimingRecords
from inlay.machine import assume_model, model_to_json, parse_model, reported_caches
from inlay.memory import pack
from inlay.reordering import choice
from inlay.reordering.choice import Choice, Decision
from inlay.storage import convert, open_memories, plan, save_memories

Damage = Callable[[random.Random, list[bytes]], bytes]

SECONDS = 20
BYTES = 2 << 30
LARGEST_RESULT = 1 << 24
"""Bytes of a conversion that is carried out: strides of 0 make gigabytes of a few bytes, by design."""

NUMBERS = [0, -1, 1, 2, 7, 63, 2**31 - 1, 2**31, 2**32, 2**53 + 1, 2**63 - 1, -(2**63), 2**64 - 1, 10**40, 1.5, -0.0]
TOKENS = [
    *(b"{", b"}", b"[", b"]", b'"', b",", b":", b"null", b"true", b"-", b"1e999", b"NaN", b"\\ud800", b"\0", b"\xff"),
    *(b"'", b"(", b")", b"'O'", b"'<f4'", b"lambda:0", b"#", b"\n", b"1_000", "٣".encode(), b"__metadata__"),
    *(str(number).encode() for number in NUMBERS),
]


class TooSlow(BaseException):
    """A mutant took `SECONDS`."""


# Mutants


def mutant(data: bytes, draw: random.Random) -> bytes:
    """`data` with one to four small damages."""
    content = bytearray(data)
    for _ in range(draw.choice((1, 1, 2, 4))):
        at = draw.randrange(len(content) + 1)
        end = min(at + draw.choice((1, 1, 2, 4, 8, 64)), len(content))
        kind = draw.randrange(8)
        if kind == 0 and at < len(content):
            content[at] ^= 1 << draw.randrange(8)
        elif kind == 1:
            content[at:end] = draw.randbytes(end - at)
        elif kind == 2:
            del content[at:end]
        elif kind == 3:
            content[at:at] = draw.choice(TOKENS)
        elif kind == 4:
            token = draw.choice(TOKENS)
            content[at : at + len(token)] = token
        elif kind == 5:
            content[at:at] = content[at:end] * draw.choice((1, 2, 100))
        elif kind == 6:
            del content[at:]
        else:
            content[at : at + 8] = (int(draw.choice(NUMBERS[:13])) % 2**64).to_bytes(8, "little")
    return bytes(content)


def mutant_json(value: Any, draw: random.Random) -> Any:
    """A JSON value with one to three of its parts exchanged for hostile ones, left out or said twice."""
    value = json.loads(json.dumps(value))
    for _ in range(draw.choice((1, 1, 3))):
        places = list(_places(value))
        if not places:
            return draw.choice(NUMBERS)
        holder, key = draw.choice(places)
        old = holder[key]
        kind = draw.randrange(6)
        if kind == 0:
            del holder[key]
        elif kind == 1:
            holder[key] = [old] * draw.choice((0, 1, 2, 13, 1000))
        elif kind == 2 and isinstance(holder, dict):
            holder[f"{key}x"] = old
        elif kind == 3 and isinstance(old, int):
            holder[key] = old + draw.choice((-1, 1))
        else:
            holder[key] = draw.choice([*NUMBERS, None, True, "", "f32", "\ud800", "x" * 300, [], {}, [[]], [[[1, 1]]]])
    return value


def _places(value: Any) -> Iterator[tuple[Any, Any]]:
    for key in list(value) if isinstance(value, dict) else range(len(value)) if isinstance(value, list) else ():
        yield value, key
        yield from _places(value[key])


# Good files of each kind, and what is done with a mutant

DESCS = [
    MemoryDesc((2, 17, 5, 4), "f32", "nChw8c"),
    MemoryDesc((4, 6), "bf16", strides=(8, 1)),
    MemoryDesc((256, 8), "f8_e4m3", pattern="(m m4 m32) (k k4) -> m k m32 m4 k4"),
    MemoryDesc((4, 8), "s4", "ab"),
    MemoryDesc((4, 6), "f32", strides=(0, 1)),
    MemoryDesc.csr((16, 8), "f32", 12),
    MemoryDesc.host_scalar("s32"),
    MemoryDesc((4, 6), "f32", "any"),
]


def _good_safetensors() -> list[bytes]:
    rng = np.random.default_rng(0)
    tensors = {"w": rng.standard_normal((3, 5)).astype(np.float32), "mask": np.array([True, False]), "s": np.array(3.5)}
    save_file(tensors, "plain.safetensors", {"format": "pt"})
    images = rng.standard_normal((2, 17, 5, 4)).astype(np.float32)
    save_memories("packed.safetensors", {"a": pack(images, "nChw16c"), "b": pack(images, "nhwc")}, {"note": "x"})
    digits = {"dims": [2], "data_type": "f32", "padded_dims": [4], "digits": [[[2, 2], [2, 1]]], "offset0": 0}
    tag = {"dims": [2, 17, 5, 4], "data_type": "f32", "tag": "aBcd16b"}
    text = json.dumps({"version": 1, "tensors": {"t": tag, "d": digits}})
    save_file({"t": np.zeros(5120, np.uint8), "d": np.zeros(64, np.uint8)}, "first.safetensors", {"inlay": text})
    return [Path(f"{name}.safetensors").read_bytes() for name in ("plain", "packed", "first")]


def _good_npy() -> list[bytes]:
    found = []
    for array in (np.arange(6, dtype="<i4").reshape(2, 3), np.asfortranarray(np.ones((3, 4))), np.zeros((0, 3), ">f8")):
        np.save("good.npy", array)
        found.append(Path("good.npy").read_bytes())
    return found


def _read_file(suffix: str) -> Callable[[bytes, random.Random], None]:
    def read(data: bytes, draw: random.Random) -> None:
        source = Path(f"mutant{suffix}")
        source.write_bytes(data)
        memories = open_memories(source)
        rules = [draw.choice(["plain", "a", "ab", "ba", "abc", "nChw16c", "*=plain"])]
        planned = plan(source, "out.safetensors", rules, data_type=draw.choice([None, None, "bf16", "s8"]))
        if planned.nbytes <= LARGEST_RESULT and all(memory.desc.size <= LARGEST_RESULT for memory in memories.values()):
            convert(planned, allow_loss=True, overwrite=True)
            assert open_memories("out.safetensors").keys() <= {tensor.name for tensor in planned.source.tensors}
            save_memories("again.safetensors", memories)
            again = open_memories("again.safetensors")
            assert {name: memory.desc for name, memory in again.items()} == {n: m.desc for n, m in memories.items()}

    return read


def _mutant_header(data: bytes, draw: random.Random) -> bytes:
    """A safetensors file with a mutated header of the right length: what damages of bytes rarely reach."""
    length = int.from_bytes(data[:8], "little")
    header = json.loads(data[8 : 8 + length])
    texts = header.get("__metadata__", {})
    if "inlay" in texts and draw.random() < 0.7:
        texts["inlay"] = json.dumps(mutant_json(json.loads(texts["inlay"]), draw))
    else:
        header = mutant_json(header, draw)
    text = json.dumps(header).encode()
    return len(text).to_bytes(8, "little") + text + data[8 + length :]


def _mutant_text(data: bytes, draw: random.Random) -> bytes:
    return json.dumps(mutant_json(json.loads(data), draw)).encode()


def _bytes_or(damage: Callable[[bytes, random.Random], bytes], share: float = 0.5) -> Damage:
    """Damage the bytes of this share of the files, and the rest as `damage` does."""

    def either(draw: random.Random, good: list[bytes]) -> bytes:
        data = draw.choice(good)
        return mutant(data, draw) if draw.random() < share else damage(data, draw)

    return either


def _read_json(data: bytes, _: random.Random) -> None:
    try:
        text = data.decode()
    except UnicodeDecodeError:
        return
    desc = MemoryDesc.from_json(text)
    assert MemoryDesc.from_json(desc.to_json()) == desc


def _mutant_blob(data: bytes, draw: random.Random) -> bytes:
    """A blob whose checksum holds for hostile content."""
    header = struct.Struct("<8sHI")
    body = json.dumps(mutant_json(json.loads(data[header.size + 16 :]), draw), separators=(",", ":")).encode()
    prefix = header.pack(*header.unpack_from(data)[:2], len(body))
    return prefix + hashlib.blake2b(prefix + body, digest_size=16).digest() + body


def _read_blob(data: bytes, _: random.Random) -> None:
    desc = MemoryDesc.from_blob(data)
    assert MemoryDesc.from_blob(desc.to_blob()) == desc


def _good_caches() -> list[bytes]:
    book = TimingRecords("fuzz")
    book.write_kernel("a", KernelTiming("jit:test", RelativeTime(1.5), 64, (("weights", DESCS[0].to_json()),)))
    book.write_reorder("b", RelativeTime(0.5))
    book.save()
    (path,) = cache.require_cache_directory().glob("*.costs")
    decision = json.dumps(asdict(Decision(Choice(traversal="dst", threads=2), 1.5, 1.0))).encode()
    caches = reported_caches()
    model = model_to_json(assume_model(caches, 2), caches).encode()
    return [path.read_bytes()[32:], decision, model, b"[2, 230.0, 150.0, 40.0]"]


def _read_cache(data: bytes, draw: random.Random) -> None:
    """Read as every kind of file in the cache, sealed as if it had been damaged before, and as it is."""
    book = TimingRecords("fuzz")
    cache.write_object(book.name, data, "costs")
    if draw.random() < 0.3:
        path = cache.require_cache_directory() / f"{book.name}.costs"
        path.write_bytes(mutant(path.read_bytes(), draw))
    for key in ("a", "b", book.name):
        book.kernel(key)
        book.reorder(key)
    assert book.yardstick is None or book.yardstick > 0
    book.write_kernel("c", KernelTiming("jit:test", RelativeTime(1.5), 0, ()))
    book.save()
    assert book.unsaved == ""
    assert TimingRecords("fuzz").kernel("c") == KernelTiming("jit:test", RelativeTime(1.5), 0, ())
    value = None
    with suppress(ValueError, RecursionError):
        value = json.loads(data)
    decision = choice.parse_decision(value)
    assert decision is None or choice.parse_decision(asdict(decision)) == decision
    read_figures(value)
    with suppress(InvalidArguments):
        parse_model(data.decode(errors="replace"), "fuzz")


Kind = tuple[Callable[[], list[bytes]], Damage, Callable[..., None]]
KINDS: dict[str, Kind] = {
    "safetensors": (_good_safetensors, _bytes_or(_mutant_header), _read_file(".safetensors")),
    "npy": (_good_npy, _bytes_or(mutant), _read_file(".npy")),
    "json": (lambda: [desc.to_json().encode() for desc in DESCS], _bytes_or(_mutant_text), _read_json),
    "blob": (lambda: [desc.to_blob() for desc in DESCS], _bytes_or(_mutant_blob, 0.3), _read_blob),
    "cache": (_good_caches, _bytes_or(mutant), _read_cache),
}


def _stop(_: int, __: FrameType | None) -> None:
    raise TooSlow


def _limit_memory() -> None:
    """So much more than what is loaded."""
    loaded = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (loaded + BYTES, loaded + BYTES))


def main(kind: str, seed: int, count: int) -> int:
    """Read `count` mutants and return the exit code."""
    make, damage, read = KINDS[kind]
    good = make()
    if Path("/proc/self/statm").exists():
        _limit_memory()
    signal.signal(signal.SIGALRM, _stop)
    refused = 0
    for number in range(count):
        draw = random.Random(seed * 1_000_003 + number)
        Path("case").write_text(str(number))
        data = damage(draw, good)
        is_sound = False
        signal.alarm(SECONDS)
        try:
            read(data, draw)
            is_sound = True
        except InlayError:
            refused += 1
            is_sound = True
        finally:
            signal.alarm(0)
            if not is_sound:
                print(f"mutant {number} of seed {seed}: {data[:2000]!r}")
    print(json.dumps({"read": count - refused, "refused": refused}))
    return 0


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as made:
        os.chdir(os.environ.get("INLAY_FUZZ_DIR", made))
        os.environ["INLAY_CACHE_DIR"] = str(Path.cwd() / "cache")
        sys.exit(main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3])))
