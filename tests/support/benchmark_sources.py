"""Contenders of the benchmark that are installed, and memory with values in it."""

import pytest

from benchmarks.buffers import huge_buffer
from benchmarks.peers import FINDERS, Peer
from benchmarks.rounds import fill_source
from inlay.descriptor import MemoryDesc
from inlay.memory import Memory


def require_peer(name: str) -> Peer:
    """Return the contender of this name, or skip the test."""
    peer = FINDERS[name](2)
    if isinstance(peer, str):
        pytest.skip(f"{name} is missing: {peer}")
    return peer


def filled(src: MemoryDesc) -> Memory:
    """Return memory with values where the elements are, and zeros in the padding."""
    values = huge_buffer(src.size)
    fill_source(values, src)
    return Memory(src, values)


def empty(dst: MemoryDesc) -> Memory:
    """Return memory with zeros."""
    return Memory(dst, huge_buffer(dst.size))
