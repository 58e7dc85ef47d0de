"""The table of intended differences from oneDNN: a name, the reason, and the rule that recognizes such a case.

A rule gets the case and both results, and is true if this difference alone explains them. If oneDNN could crash, it is
not called, and the rule gets Inlay's result only. `test_differences` has an example of each difference.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from math import prod

import numpy as np

from inlay.descriptor import MemoryDesc
from inlay.layout import RUNTIME, Dims
from inlay.notation.format_tag import FormatTag
from inlay.testing import ByStrides, ByTag, Reshape, Submemory
from tests.oracles import onednn
from tests.parity.operations import UNSAID, Answer, Case, Query, answer

REFUSED: Answer = ("invalid_arguments", None)
_VAST = 2**20


@dataclass(frozen=True, slots=True)
class Difference:
    """One row of the table."""

    name: str
    """Behavior of Inlay, as in docs/descriptors.md."""
    reason: str
    """Behavior of oneDNN, and its defect."""
    explains: Callable[[Case, Answer, Answer], bool]
    """Rule for a case, Inlay's result and oneDNN's; the latter is `UNSAID` if oneDNN was not called."""
    is_fatal: bool = False
    """True if oneDNN must not be called, because the process may crash."""
    only_old: bool = False
    """True for a defect of oneDNN 3.2 that later versions do not have."""


def counts_overflow(case: Case) -> bool:
    """Return True if the padded volume of a creation by tag exceeds 63 bits; dims of 0 and RUNTIME count one block."""
    if not isinstance(case, ByTag) or case.tag in ("any", "undef"):
        return False
    tag = FormatTag.parse(case.tag)
    if tag.ndims != len(case.dims):
        return False
    blocks = [tag.blocks(i) for i in range(tag.ndims)]
    return prod(max(1, -(-max(0, dim) // n)) * n for dim, n in zip(case.dims, blocks, strict=True)) >= 2**63


def _has_default_strides_of_a_runtime_dim(case: Case, mine: Answer, real: Answer) -> bool:
    if not isinstance(case, ByStrides) or case.strides is not None or case.dims[-1:] != (RUNTIME,):
        return False
    if not _same_but(mine, real, "strides", "size"):
        return False
    return bool(mine[1]["strides"] == (RUNTIME,) * (len(case.dims) - 1) + (1,))


def _same_but(mine: Answer, real: Answer, *names: str) -> bool:
    """Return True if both results are descriptors that agree in all fields but `names`."""
    if not (isinstance(mine[1], dict) and isinstance(real[1], dict)):
        return False
    return all(value == real[1].get(name) for name, value in mine[1].items() if name not in names)


def keeps_a_stray_block(case: Case, mine: Answer, real: Answer) -> bool:
    """Return True if a block of oneDNN's result belongs to no axis of it.

    It does if its axis was a unit axis, or if the result has other offsets than the old descriptor.
    """
    if not isinstance(case, Reshape) or mine != REFUSED or real[0] != "success":
        return False
    desc, result = case.desc, real[1]
    if desc.kind != "blocked" or not desc.inner_blocks:
        return False
    if any(desc.dims[axis] == 1 for axis, _ in desc.inner_blocks):
        return True
    blocks, dims = result["inner_blocks"], result["dims"]
    if any(axis >= len(dims) for axis, _ in blocks):
        return True
    return _offsets(dims, result["strides"], blocks) != _offsets(desc.dims, desc.strides, desc.inner_blocks)


def _offsets(dims: Dims, strides: Dims, blocks: Sequence[tuple[int, int]]) -> list[int]:
    """Return the offsets of a blocked tensor by oneDNN's formula; a dim of 0 counts as 1, as in a reshape."""
    x = np.indices([dim or 1 for dim in dims], dtype=np.int64).reshape(len(dims), -1).T.copy()
    total, step = np.zeros(len(x), np.int64), 1
    for axis, size in reversed(blocks):
        total += x[:, axis] % size * step
        x[:, axis] //= size
        step *= size
    return list((total + x @ np.array(strides, np.int64)).tolist())


def _has_no_dims(case: Case, mine: Answer, real: Answer) -> bool:
    if not isinstance(case, Reshape) or case.dims or not _same_but(mine, real, "kind", "size", "offset0"):
        return False
    return (mine[1]["kind"], real[1]["kind"]) == ("undef", "blocked")


def _leaves_a_dim_open(case: Case, mine: Answer, real: Answer) -> bool:
    """Return True if Inlay's result is that for the dims with the open one replaced, and oneDNN's or explained."""
    if not isinstance(case, Reshape) or tuple(case.dims).count(-1) != 1 or real != REFUSED:
        return False
    others = prod(dim for dim in case.dims if dim != -1)
    closed = tuple(prod(case.desc.dims) // others if dim == -1 else dim for dim in case.dims) if others else case.dims
    whole = replace(case, dims=closed)
    named = answer(lambda: onednn.mirror(case.desc).reshape(closed))
    return mine == answer(whole.run) and (mine == named or explain(whole, mine, named) is not None)


def _starts_past_the_end(case: Case, mine: Answer, real: Answer) -> bool:
    return isinstance(case, Submemory) and mine == REFUSED and real[0] == "success" and real[1]["offset0"] < 0


def _wraps_its_size(case: Case, mine: Answer, real: Answer) -> bool:
    if not _same_but(mine, real, "size"):
        return False
    return bool(mine[1]["size"] >= 2**64 and mine[1]["size"] % 2**64 == real[1]["size"])


def _asks_nothing(case: Case, mine: Answer, real: Answer) -> bool:
    if not isinstance(case, Query) or not case.desc.is_zero or real != REFUSED:
        return False
    return mine in (("success", ()), ("success", 0)) and case.what in (
        "strides",
        "inner_nblks",
        "inner_blks",
        "inner_idxs",
    )


def _is_vast(case: Case, mine: Answer, real: Answer) -> bool:
    if not isinstance(case, ByTag | ByStrides) or mine != REFUSED or real[0] != "success":
        return False
    strides = case.strides or () if isinstance(case, ByStrides) else ()
    return max((*case.dims, *strides)) >= _VAST


def _starts_elsewhere(case: Case, mine: Answer, real: Answer) -> bool:
    if _same_but(mine, real, "size"):
        return bool(mine[1]["offset0"] > 0 and real[1]["size"] == 0)
    if not isinstance(case, MemoryDesc) or case.offset0 == 0:
        return False
    if isinstance(mine[1], str) and isinstance(real[1], str):
        # With that size no text looks dense, so strides appear.
        parts, theirs = mine[1].split(":"), real[1].split(":")
        return parts[:3] == theirs[:3] and parts[3:] != theirs[3:]
    return mine[0] == real[0] == "success" and real[1] == (0, 0) != mine[1] and type(mine[1]) is tuple


def _puts_broadcast_axes_inside(case: Case, mine: Answer, real: Answer) -> bool:
    if not (isinstance(case, MemoryDesc) and isinstance(mine[1], str) and isinstance(real[1], str)):
        return False
    if 0 not in case.strides:
        return False
    ours, theirs = mine[1].split(":"), real[1].split(":")
    return sorted(ours[3:4]) != sorted(theirs[3:4]) and ours[:3] + ours[4:] == theirs[:3] + theirs[4:]


def _counts_pointers_of_one_dim(case: Case, mine: Answer, real: Answer) -> bool:
    if not isinstance(case, Query) or case.what != "num_handles" or case.desc.ndims != 1:
        return False
    return case.desc.kind == "sparse" and (mine[1], real[1]) == (2, 3)


DIFFERENCES = (
    Difference(
        "padded volumes over 2**63 - 1 are refused",
        "the library multiplies without a check: some products wrap to 0, by which it then divides",
        lambda case, mine, real: counts_overflow(case) and mine == REFUSED,
        is_fatal=True,
    ),
    Difference(
        "default strides left of a RUNTIME dim are RUNTIME",
        "where it is the last dim, the library multiplies its placeholder like a number, and the product wraps",
        _has_default_strides_of_a_runtime_dim,
    ),
    Difference(
        "a blocked axis is neither dropped nor joined",
        "the library looks for blocks in the first axis of a run only, and keeps those of another one on no axis",
        keeps_a_stray_block,
    ),
    Difference(
        "a reshape to no dims gives the zero descriptor",
        "the library keeps the kind blocked and offset0, though equality calls such a descriptor the zero one",
        _has_no_dims,
    ),
    Difference(
        "one dim of -1 follows from the others",
        "the library refuses negative dims; NumPy's reshape takes one",
        _leaves_a_dim_open,
    ),
    Difference(
        "offsets do not wrap", "the library adds without a check, so offset0 becomes negative", _starts_past_the_end
    ),
    Difference(
        "sizes do not wrap",
        "the library's bound on bytes lets 2**64 through, and answers 0 for them",
        _wraps_its_size,
    ),
    Difference(
        "the zero descriptor has no strides and no blocks",
        "the C library refuses the question; its C++ interface answers, as Inlay does, with empty lists",
        _asks_nothing,
    ),
    Difference(
        "3.2: vast strides are refused",
        "3.2 had no bound on elements and bytes; 3.13 has the one that Inlay has",
        _is_vast,
        only_old=True,
    ),
    Difference(
        "3.2: a submemory has a size",
        "3.2 answered 0 where offset0 is not 0; 3.13 leaves offset0 out of account",
        _starts_elsewhere,
        only_old=True,
    ),
    Difference(
        "3.2: axes of stride 0 are the outermost of a text",
        "3.2 put them inside; 3.13 puts them outside, as Inlay",
        _puts_broadcast_axes_inside,
        only_old=True,
    ),
    Difference(
        "3.2: CSR of one dim has two buffers",
        "3.2 counted row pointers too; 3.13 counts two",
        _counts_pointers_of_one_dim,
        only_old=True,
    ),
)


def applicable() -> tuple[Difference, ...]:
    """Return the differences from the loaded library."""
    modern = onednn.version() >= (3, 13)
    return tuple(d for d in DIFFERENCES if not (modern and d.only_old))


def explain(case: Case, mine: Answer, real: Answer) -> str | None:
    """Return the name of the difference that explains two unequal results, or None."""
    asked = real != UNSAID
    rows = [d for d in applicable() if d.is_fatal != asked]
    return next((d.name for d in rows if d.explains(case, mine, real)), None)
