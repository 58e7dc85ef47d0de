"""A transposition that moves data: other axes, the same format.

`MemoryDesc.permute_axes` relabels axes and moves nothing, so the format becomes another: `aBc8b` becomes `aCb8c`. Where
the next operation wants the format that it had, data has to move:

    ({a, b, c}, fmt=aBc8b)  -->  ({a, c, b}, fmt=aBc8b)

Source: the oneDNN RFC on memory descriptor operations, section 4.2.
"""

from collections.abc import Iterable

from inlay.descriptor import MemoryDesc
from inlay.errors import InvalidArguments
from inlay.format_tag import FormatTag
from inlay.layout import Dims
from inlay.memory import Memory, reorder
from inlay.memory.memory import require_memory


def permute_with_reorder(memory: Memory, permutation: Iterable[int], format: FormatTag | str | None = None) -> Memory:
    """New memory in which axis i of `memory` is axis `permutation[i]`, in the format that `memory` has, or in `format`.

    The format is kept as a rule, a tag or a pattern: padding follows from the new dims.

    Post-conditions:
        result.unpack() equals memory.unpack().transpose(inverse of `permutation`).
        result.desc.tag == memory.desc.tag, where neither `format` nor a pattern says otherwise.

    Raises:
        InvalidArguments: `memory` is no Memory, `permutation` is not each axis once, or no tag or pattern gives
            the new dims the format of `memory`, as with gaps between elements, and no `format` is given.
        FormatTagError: `format` cannot be read.
        OutOfMemory: there is no room for the result.

    >>> import numpy as np
    >>> from inlay.memory import pack
    >>> memory = pack(np.arange(2 * 9 * 3, dtype=np.float32).reshape(2, 9, 3), "aBc8b")
    >>> result = permute_with_reorder(memory, (0, 2, 1))
    >>> result.desc, np.array_equal(result.unpack(), memory.unpack().transpose(0, 2, 1))
    (MemoryDesc((2, 3, 9), 'f32', 'aBc8b'), True)
    """
    require_memory(memory)
    relabeled = memory.desc.permute_axes(permutation)
    dims = relabeled.dims
    wanted = _preserved(memory.desc, dims) if format is None else MemoryDesc(dims, relabeled.data_type, format)
    return reorder(Memory(relabeled, memory.buffer), wanted)


def _preserved(desc: MemoryDesc, dims: Dims) -> MemoryDesc:
    """The format of `desc` for other dims."""
    if desc.tag is not None:
        return MemoryDesc(dims, desc.data_type, desc.tag)
    try:
        # For other dims, oneDNN's rules may refuse the strides that a pattern gives.
        return MemoryDesc(dims, desc.data_type, pattern=desc.pattern)
    except InvalidArguments:
        raise InvalidArguments(
            f"no tag or pattern gives dims {dims} the format of {desc!r}: say the one you want as format=..."
        ) from None
