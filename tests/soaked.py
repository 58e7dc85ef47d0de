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
from edge_codes import edge_codes
from guarded import GuardedBuffer

from inlay.descriptor import MemoryDesc
from inlay.errors import InlayError
from inlay.layout import Axis, Digit, Layout  # noqa: F401  the words in which cases are spelled
from inlay.memory import Memory, Reorder
from inlay.reordering import compiled, threads
from inlay.reordering.attributes import PLAIN, Attributes, Scales, ZeroPoints
from inlay.reordering.caches import CacheSizes
from inlay.reordering.operands import Operands, codes_of, operands
from inlay.reordering.reference import read_codes, reference_reorder, stored_bytes, write_codes
from inlay.reordering.reference.numbers import decode
from inlay.reordering.target import TARGETS, host_target
from inlay.testing import Choices, Seeded, draw_reorder_problem

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
    src, dst = draw_reorder_problem(choose, sub_byte=True, convert=convert, large=large)
    return Case(
        src,
        dst,
        _attributes(choose, src, dst) if choose.pick((False, False, True)) else PLAIN,
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


def _attributes(choose: Choices, src: MemoryDesc, dst: MemoryDesc) -> Attributes:
    """Some attributes that fit the descriptors."""
    types = [desc.require_layout("soak")[1] for desc in (src, dst)]
    masks = [choose.integer(0, (1 << src.ndims) - 1) for _ in range(4)]
    if types[0].name in ("s4", "u4"):
        masks[0] = masks[0] or 1
    scales = [Scales(mask, (), choose.pick(_SCALES if mask else _SCALES[:3])) for mask in masks[:2]]
    points = [ZeroPoints(masks[2]), ZeroPoints(masks[3])]
    wanted = [choose.pick((False, True)) for _ in range(6)]
    return Attributes(
        src_scales=scales[0] if wanted[0] else None,
        dst_scales=scales[1] if wanted[1] else None,
        src_zero_points=points[0] if wanted[2] and types[0].kind != "float" else None,
        dst_zero_points=points[1] if wanted[3] and types[1].kind != "float" else None,
        sum=choose.pick((0.5, 1.0, -2.0)) if wanted[4] else None,
        rounding_mode="stochastic" if wanted[5] and choose.pick((False, True)) else "nearest",
    )


_SCALES = ("f32", "bf16", "f16", "e8m0", "f8_e4m3")


# Running


def run_case(case: Case) -> None:
    """Carry out the case; an AssertionError says what is wrong with it."""
    rng = np.random.default_rng(case.seed)
    source, destination = (_buffer(case, desc) for desc in (case.src, case.dst))
    source.bytes[:] = _content(rng, case.src, source.bytes.size)
    destination.bytes[:] = _content(rng, case.dst, destination.bytes.size)
    values = _values(rng, case)
    seed = case.seed if case.attributes.rounding_mode == "stochastic" else None
    before, expected = source.bytes.copy(), destination.bytes.copy()
    reference_reorder(case.src, source.bytes, case.dst, expected, case.attributes, codes_of(values), seed=seed or 0)
    old = destination.bytes.copy()
    one, two = Memory(case.src, source.bytes), Memory(case.dst, destination.bytes)
    source.seal()
    with _circumstances(case):
        Reorder(case.src, case.dst, case.attributes)(one, two, **values, seed=seed)
    foreign = ~stored_bytes(case.dst, old.size)
    assert not ((destination.bytes ^ old) & foreign).any(), "something outside elements and padding changed"
    if case.attributes.computes:
        _agree_on_nans(case.dst, destination.bytes, expected)
    wrong = np.flatnonzero(destination.bytes != expected)
    assert not wrong.size, (
        f"byte {wrong[0]} is {destination.bytes[wrong[0]]}, not {expected[wrong[0]]} ({wrong.size} wrong)"
    )
    assert destination.gap_is_untouched, "a byte before or after the buffer changed"
    assert (source.bytes == before).all(), "the source changed"


def _agree_on_nans(dst: MemoryDesc, got: Bytes, expected: Bytes) -> None:
    """Take over NaNs where both sides have one: sign and payload of one that was computed on are not promised."""
    data_type = dst.require_layout("soak")[1]
    if data_type.kind != "float":
        return
    codes = [read_codes(dst, buffer) for buffer in (got, expected)]
    if data_type.name == "f4_e2m1":  # has none: the greatest number of either sign stands for it
        both = (codes[0] & 7 == 7) & (codes[1] & 7 == 7)
    else:
        both = np.logical_and(*(np.isnan(decode(side, data_type, "f64")) for side in codes))
    write_codes(dst, expected, np.where(both, codes[0], codes[1]))


def _buffer(case: Case, desc: MemoryDesc) -> GuardedBuffer:
    layout, data_type = desc.require_layout("soak")
    low, high = layout.span
    size = -(-(high + desc.offset0) * data_type.bits // 8) if low < high else 0
    return GuardedBuffer(size, case.flush, max(case.align, data_type.itemsize))


def _content(rng: np.random.Generator, desc: MemoryDesc, size: int) -> Bytes:
    """Bytes of every value, or the codes of the type that conversions get wrong."""
    noise = rng.integers(0, 256, size, np.uint8)
    data_type = desc.require_layout("soak")[1]
    if data_type.is_sub_byte or rng.random() < 0.5:
        return noise
    count = size // data_type.itemsize
    noise[: count * data_type.itemsize] = rng.choice(edge_codes(data_type.name), count).view(np.uint8)
    return noise


def _values(rng: np.random.Generator, case: Case) -> Operands:
    """Values of the attributes: scales are powers of two, which every type holds."""
    given: dict[str, Any] = {}
    for name in case.attributes.names:
        shape = case.attributes.entry(name).shape(case.dst.dims)
        is_scale = name.endswith("scales")
        given[name] = 2.0 ** rng.integers(-3, 4, shape) if is_scale else rng.integers(-8, 8, shape)
    return operands(case.attributes, case.dst.dims, given)


@contextmanager
def _circumstances(case: Case) -> Iterator[None]:
    """A process that knows nothing of this reorder, has these caches, threads and processor, and splits every byte."""
    target = host_target() if case.target is None else TARGETS[case.target]
    compiled._compiled.cache_clear()
    with (
        patch.object(compiled, "host_target", lambda: target),
        patch.object(compiled, "cache_sizes", lambda: _CACHES[case.streaming]),
        patch.object(threads, "available_threads", lambda: case.threads),
        patch.object(threads, "_PART_BYTES", 1),
    ):
        yield
    compiled._compiled.cache_clear()


_CACHES = {False: CacheSizes(1 << 60, 1 << 60), True: CacheSizes(0, 0)}


# Shrinking


def simpler(case: Case) -> Iterator[Case]:
    """Cases that differ from this one by one thing less, what shrinks most first."""
    fewer = [_changed(case.attributes, name, None) for name in (*case.attributes.names, "sum")]
    for attributes in (PLAIN, *fewer, replace(case.attributes, rounding_mode="nearest")):
        if attributes != case.attributes:
            yield replace(case, attributes=attributes)
    for name, usual in _USUAL:
        if getattr(case, name) != usual:
            yield _changed(case, name, usual)
    if case.threads > 2:
        yield replace(case, threads=2)
    for dims in _smaller(case.src.dims):
        with suppress(InlayError):
            origin = (0,) * len(dims)
            yield replace(case, src=case.src.submemory(dims, origin), dst=case.dst.submemory(dims, origin))
    yield from _plainer(case)


def _changed(value: Any, name: str, part: object) -> Any:
    return replace(value, **{name: part})


_USUAL: tuple[tuple[str, Any], ...] = tuple((f.name, f.default) for f in fields(Case) if f.default is not MISSING)


def _smaller(dims: tuple[int, ...]) -> Iterator[tuple[int, ...]]:
    for i, n in enumerate(dims):
        for less in sorted({1, n // 2, n - 1} & set(range(1, n))):
            yield (*dims[:i], less, *dims[i + 1 :])


def _plainer(case: Case) -> Iterator[Case]:
    """The case with a row-major side, or one of a type that is plain to read."""
    for side in ("src", "dst"):
        desc: MemoryDesc = getattr(case, side)
        for name in (desc.require_layout("soak")[1].name, *_PLAIN_TYPES):
            plain = MemoryDesc(desc.dims, name)
            if _weight(plain) < _weight(desc):
                yield _changed(case, side, plain)


_PLAIN_TYPES = ("u8", "f32")


def _weight(desc: MemoryDesc) -> tuple[bool, int]:
    """How hard a descriptor is to read: whether it is more than row-major, then its type."""
    name = desc.require_layout("soak")[1].name
    order = [*_PLAIN_TYPES, name]
    return desc != MemoryDesc(desc.dims, name), order.index(name)
