"""What tests of the benchmark share: peers that are here, and sources with values in them."""

import pytest

from benchmarks.buffers import Bytes, huge_buffer
from benchmarks.measure import fill_source
from benchmarks.peers import FINDERS, Missing, Peer
from inlay.descriptor import MemoryDesc


def found(name: str) -> Peer:
    """The peer of this name, or the end of the test."""
    peer = FINDERS[name](2)
    if isinstance(peer, Missing):
        pytest.skip(f"{peer.name} is missing: {peer.reason}")
    return peer


def filled(src: MemoryDesc) -> Bytes:
    """A source buffer: values where the data is, zeros in the padding."""
    values = huge_buffer(src.size)
    fill_source(values, src)
    return values
