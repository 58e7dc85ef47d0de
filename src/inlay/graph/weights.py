"""`Weights`: constants in the formats that implementations chose, each kept once.

Sessions of one network for several batch sizes share them, and so do steps whose constants have equal elements.
"""

from typing import TypeAlias

from inlay.descriptor import MemoryDesc
from inlay.forks import RenewedLock
from inlay.graph.equality import has_equal_bits
from inlay.graph.op import Array
from inlay.graph.operations import constant_desc
from inlay.memory import Memory, pack
from inlay.primitives import Reorder
from inlay.primitives.operation import Engine

_Key: TypeAlias = tuple[tuple[int, ...], str, bytes]
_SAMPLES = 64


class Weights:
    """Constants by content and format.

    >>> import numpy as np
    >>> weights, ones = Weights(), np.ones((8, 8), np.float32)
    >>> desc = MemoryDesc((8, 8), "f32", "ba")
    >>> weights.laid_out(ones, desc) is weights.laid_out(np.ones((8, 8), np.float32), desc)
    True
    """

    def __init__(self) -> None:
        """Have none."""
        self._lock = RenewedLock()
        self._known: dict[_Key, list[tuple[Array, dict[MemoryDesc, Memory]]]] = {}

    def laid_out(self, array: Array, desc: MemoryDesc, engine: Engine | None = None) -> Memory:
        """The elements of `array` in memory of `desc`: the same memory wherever both are equal.

        `engine` is asked for a format that only it knows. The array must not change afterwards.

        Raises:
            InvalidArguments: `desc` has other dims.
            Unimplemented: no reorder leads to `desc`.
            OutOfMemory: there is no room.
        """
        with self._lock:
            formats = self._formats(array)
            if desc not in formats:
                formats[desc] = _moved(array, desc, engine)
            return formats[desc]

    def _formats(self, array: Array) -> dict[MemoryDesc, Memory]:
        """What there is of an array of these elements."""
        alike = self._known.setdefault(_key(array), [])
        for known, formats in alike:
            if known is array or has_equal_bits(known, array):
                return formats
        alike.append((array, {}))
        return alike[-1][1]

    @property
    def nbytes(self) -> int:
        """Bytes of all memories."""
        with self._lock:
            return sum(
                memory.buffer.size for alike in self._known.values() for _, all_ in alike for memory in all_.values()
            )


def _key(array: Array) -> _Key:
    """What arrays of equal elements have in common, found in a few of them."""
    samples = array[tuple(slice(None, None, max(1, n // 3)) for n in array.shape)]
    return array.shape, array.dtype.name, samples.tobytes()[: _SAMPLES * array.itemsize]


def _moved(array: Array, desc: MemoryDesc, engine: Engine | None) -> Memory:
    if desc.kind != "opaque":
        return pack(array, desc)
    plain = pack(array, constant_desc(array))
    memory: Memory = Reorder(plain.desc, desc, engine=engine)(src=plain)
    return memory
