"""One reorder of a soak: everything about it is drawn from a number, so a failure is that number.

A case is a value: descriptors, attributes, threads, how the destination is stored, for which processor code is made,
where the buffers lie between their guard pages, and the seed of what they hold. `run_case` carries it out as a user
would and compares every byte with the reference; `simpler` says what could be tried to find a smaller case that fails
too; `str(case)` is Python that makes it again.
"""

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import MISSING, dataclass, fields, replace
from typing import Any, Literal
from unittest.mock import patch

import numpy as np
import numpy.typing as npt

from inlay.descriptor import Extras, MemoryDesc  # noqa: F401  names in which cases are spelled
from inlay.errors import InlayError
from inlay.layout import Axis, Digit, Layout  # noqa: F401
from inlay.machine import MemoryModel
from inlay.memory import Memory, Reorder
from inlay.memory.reorder_cache import byte_extent, find_reorder
from inlay.reordering import compiled, planning, threads
from inlay.reordering.attributes import PLAIN, Attributes, Scales, ZeroPoints, require_attributes, view_codes  # noqa: F401
from inlay.reordering.reference import reference_reorder
from inlay.reordering.requirements import require_extras
from inlay.reordering.target import TARGETS, host_target
from inlay.testing import Seeded, draw_attributes, draw_reorder_problem, draw_weight_problem
from tests.support.attribute_arguments import assert_same, values_for
from tests.support.edge_codes import edge_codes
from tests.support.guarded_buffers import GuardedBuffer, stored_bytes

Bytes = npt.NDArray[np.uint8]


@dataclass(frozen=True, slots=True)
class Case:
    """One reorder and the circumstances of its call."""

    src: MemoryDesc
    """The descriptor of the source."""
    dst: MemoryDesc
    """The descriptor of the destination."""
    attributes: Attributes = PLAIN
    """What is computed on the way."""
    threads: int = 1
    """How many threads share the work, however little it is."""
    streaming: bool = False
    """Whether the tensors pass for larger than every cache."""
    target: str | None = None
    """The processor that code is made for, among those whose code this one runs; None is this one."""
    flush: Literal["upper", "lower"] = "upper"
    """The guard page that the buffers touch."""
    align: int = 1
    """Bytes to which the start of the buffers is aligned, beside the element."""
    seed: int = 0
    """What the buffers hold, the values of the attributes, and the chance in stochastic rounding."""

    def __str__(self) -> str:
        """Python that makes the case; what is as usual is left out."""
        parts = [f.name for f in fields(self) if getattr(self, f.name) != f.default]
        return f"Case({', '.join(f'{name}={getattr(self, name)!r}' for name in parts)})"


# Drawing


def drawn_case(seed: int) -> Case:
    """The case that belongs to a number."""
    choose = Seeded(seed)
    convert, large = choose.pick((False, True)), choose.pick((False, True))
    if choose.integer(1, 8) == 1:
        src, dst = draw_weight_problem(choose, large=large)
    else:
        src, dst = draw_reorder_problem(choose, sub_byte=True, convert=convert, large=large)
    return Case(
        src,
        dst,
        draw_attributes(choose, src, dst) if choose.pick((False, False, True)) else PLAIN,
        choose.pick((1, 1, 2, 3, 5)),
        choose.pick((False, True)),
        choose.pick((None, None, None, *_runnable())),
        choose.pick(("upper", "lower")),
        choose.pick((1, 64)),
        choose.integer(0, 1 << 30),
    )


def _runnable() -> list[str]:
    """The named targets with narrower registers than this processor has."""
    host = host_target()
    is_x86 = host.triple.startswith("x86_64")
    return [name for name in ("x86-64-v2", "x86-64-v3") if is_x86 and TARGETS[name].vector_bytes < host.vector_bytes]


# Running


def run_case(case: Case) -> None:
    """Carry out the case; an AssertionError says what is wrong with it."""
    rng = np.random.default_rng(case.seed)
    source, destination = (_filled_buffer(case, desc, rng) for desc in (case.src, case.dst))
    values = values_for(case.attributes, case.dst.dims, case.seed)
    seed = case.seed if case.attributes.rounding_mode == "stochastic" else None
    before, expected = source.bytes.copy(), destination.bytes.copy()
    reference_reorder(case.src, source.bytes, case.dst, expected, case.attributes, view_codes(values), seed=seed or 0)
    old = destination.bytes.copy()
    one, two = Memory(case.src, source.bytes), Memory(case.dst, destination.bytes)
    source.seal()
    with _circumstances(case):
        Reorder(case.src, case.dst, case.attributes)(one, two, **values, seed=seed)
    foreign = ~_written_bytes(case.dst, old.size)
    assert not ((destination.bytes ^ old) & foreign).any(), "something outside elements and padding changed"
    assert_same(case.dst, destination.bytes, expected, any_nan=case.attributes.computes)
    assert destination.gap_is_untouched, "a byte before or after the buffer changed"
    assert (source.bytes == before).all(), "the source changed"


def _filled_buffer(case: Case, desc: MemoryDesc, rng: np.random.Generator) -> GuardedBuffer:
    _, end, data_type = byte_extent(desc)
    buffer = GuardedBuffer(end, case.flush, max(case.align, data_type.itemsize))
    buffer.bytes[:] = contents(rng, desc, end)
    return buffer


def _written_bytes(dst: MemoryDesc, nbytes: int) -> Bytes:
    """A mask of the bits that a reorder may write: elements, padding, and the numbers behind int8 weights."""
    mask = stored_bytes(dst, nbytes)
    if dst.extras:
        mask[dst.size - sum(dst.extras.buffer_sizes(dst.padded_dims).values()) : dst.size] = 255
    return mask


def contents(rng: np.random.Generator, desc: MemoryDesc, size: int) -> Bytes:
    """Bytes of every value, or the codes of the type that conversions get wrong."""
    noise = rng.integers(0, 256, size, np.uint8)
    data_type = desc.require_layout("soak")[1]
    if data_type.is_sub_byte or rng.random() < 0.5:
        return noise
    count = size // data_type.itemsize
    noise[: count * data_type.itemsize] = rng.choice(edge_codes(data_type.name), count).view(np.uint8)
    return noise


@contextmanager
def _circumstances(case: Case) -> Iterator[None]:
    """A process that knows nothing of this reorder, has these caches, threads and processor, and splits every byte."""
    target = host_target() if case.target is None else TARGETS[case.target]
    find_reorder.cache_clear()
    with (
        patch.object(compiled, "host_target", lambda: target),
        patch.object(planning, "memory_model", lambda: _CACHES[case.streaming]),
        patch.object(threads, "available_threads", lambda: case.threads),
        patch.object(threads, "_PART_BYTES", 1),
    ):
        yield
    find_reorder.cache_clear()


_CACHES = {False: MemoryModel(1 << 60, 1 << 60, 1 << 60), True: MemoryModel(0, 0, 0)}


# Shrinking


def simpler(case: Case) -> Iterator[Case]:
    """Cases that differ from this one by one thing less, what shrinks most first; those that no reorder refuses."""
    for candidate in _candidates(case):
        with suppress(InlayError):
            require_attributes(candidate.attributes, candidate.src, candidate.dst)
            require_extras(candidate.src, candidate.dst)
            yield candidate


def _candidates(case: Case) -> Iterator[Case]:
    fewer = [_changed(case.attributes, name, None) for name in (*case.attributes.names, "sum")]
    for attributes in (PLAIN, *fewer, replace(case.attributes, rounding_mode="nearest")):
        if attributes != case.attributes:
            yield replace(case, attributes=attributes)
    for name, usual in _USUAL:
        if getattr(case, name) != usual:
            yield _changed(case, name, usual)
    if case.threads > 2:
        yield replace(case, threads=2)
    for axis, n in enumerate(case.src.dims):
        for less in sorted({1, n // 2, n - 1} & set(range(1, n))):
            dims = (*case.src.dims[:axis], less, *case.src.dims[axis + 1 :])
            with suppress(InlayError):
                yield replace(case, src=_part(case.src, dims), dst=_part(case.dst, dims))
    yield from _plainer(case)


def _changed(value: Any, name: str, part: object) -> Any:
    return replace(value, **{name: part})


_USUAL: tuple[tuple[str, Any], ...] = tuple((f.name, f.default) for f in fields(Case) if f.default is not MISSING)


def _part(desc: MemoryDesc, dims: tuple[int, ...]) -> MemoryDesc:
    """The first elements along each axis; of weights with extras, which have no parts, weights of these dims."""
    if desc.extras:
        return MemoryDesc(dims, desc.data_type, desc.tag, extras=desc.extras)
    return desc.submemory(dims, (0,) * len(dims))


def _plainer(case: Case) -> Iterator[Case]:
    """The case with a row-major side, of a type that is plain to read or of its own."""
    for side in ("src", "dst"):
        desc: MemoryDesc = getattr(case, side)
        names = dict.fromkeys(("u8", "f32", desc.require_layout("soak")[1].name))
        # Rows of an odd number of 4-bit elements have no descriptor.
        plain = [MemoryDesc(desc.dims, name, allow_empty=True) for name in names]
        for other in plain[: plain.index(desc) if desc in plain else None]:
            if not other.is_zero:
                yield _changed(case, side, other)
