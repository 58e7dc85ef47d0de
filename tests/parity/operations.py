"""The table of compared operations: how a case is drawn, how each library runs it, and how results are counted.

A result is a status and, if that is success, a value: the fields of the new descriptor, a size, or a text. oneDNN runs
many cases at a time, because it prints texts only in its log.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from inlay.data_type import DATA_TYPES
from inlay.descriptor import MemoryDesc
from inlay.errors import InlayError
from inlay.notation.format_tag import ENUMERATED, FormatTag
from inlay.testing import (
    ByStrides,
    ByTag,
    Choices,
    Pair,
    Permute,
    Reshape,
    Scope,
    Submemory,
    draw_any_kind,
    draw_blocked,
    draw_by_strides,
    draw_by_tag,
    draw_pair,
    draw_permute,
    draw_reshape,
    draw_submemory,
    draw_tag,
)
from tests.oracles import onednn

Answer = tuple[str, Any]

UNSAID: Answer = ("unsaid", None)
"""Result of a case whose text oneDNN does not print, because its log of reorders has none for it."""


def facts(desc: MemoryDesc | onednn.Desc) -> dict[str, Any]:
    """Return the fields of a descriptor of either library."""
    answers: dict[str, Any] = {
        "kind": desc.kind,
        "dims": desc.dims,
        "padded_dims": desc.padded_dims,
        "padded_offsets": desc.padded_offsets,
        "offset0": desc.offset0,
        "size": desc.size,
    }
    if desc.kind == "blocked":
        answers |= {"strides": desc.strides, "inner_blocks": desc.inner_blocks}
    return answers


def answer(ask: Callable[[], object]) -> Answer:
    """Return the result of a call of either library; errors are statuses."""
    try:
        value = ask()
    except InlayError as error:
        return str(error.status), None
    except onednn.Refused as refused:
        return refused.status, None
    return "success", facts(value) if isinstance(value, MemoryDesc | onednn.Desc) else value


QUERIES = (
    "ndims",
    "dims",
    "data_type",
    "padded_dims",
    "padded_offsets",
    "offset0",
    "kind",
    "strides",
    "inner_nblks",
    "inner_blks",
    "inner_idxs",
    "sparse_encoding",
    "nnz",
    "num_handles",
)


@dataclass(frozen=True, slots=True)
class Query:
    """One query of a descriptor of any kind."""

    desc: MemoryDesc
    what: str

    def ours(self) -> object:
        """Return Inlay's result; data types as oneDNN's codes."""
        match self.what:
            case "data_type":
                return self.desc.data_type.code if self.desc.data_type else 0
            case "data_types[1]":
                found = self.desc.data_types[1]
                return found.code if found else 0
        return getattr(self.desc, self.what)

    def theirs(self) -> object:
        """Return oneDNN's result."""
        real = onednn.mirror(self.desc)
        blocks = {"inner_nblks": len, "inner_blks": _sizes_of, "inner_idxs": _axes_of}
        if self.what in blocks:
            return blocks[self.what](real.inner_blocks)
        return real.data_type_of(1) if self.what == "data_types[1]" else getattr(real, self.what)


def _sizes_of(blocks: Sequence[tuple[int, int]]) -> tuple[int, ...]:
    return tuple(size for _, size in blocks)


def _axes_of(blocks: Sequence[tuple[int, int]]) -> tuple[int, ...]:
    return tuple(axis for axis, _ in blocks)


Case = ByTag | ByStrides | Submemory | Reshape | Permute | Pair | Query | MemoryDesc


@dataclass(frozen=True, slots=True)
class Operation:
    """One row of the table."""

    name: str
    """Name of the operation."""
    draw: Callable[[Choices, Scope], Case]
    """Function that draws a case."""
    ours: Callable[[Any], object]
    """Function that runs a case with Inlay."""
    theirs: Callable[[Any], object]
    """Function that runs a case with oneDNN; it raises `Refused` for an error."""
    counted: tuple[str, str] = ("success", "refused")
    """Names of the two outcomes that are counted."""
    is_first: Callable[[Answer], bool] = lambda real: real[0] == "success"
    """Function that is true for results that count as the first outcome."""

    def real_answers(self, cases: Sequence[Case]) -> list[Answer]:
        """Return oneDNN's results of all cases."""
        if self.name != "text":
            return [answer(lambda case=case: self.theirs(case)) for case in cases]  # type: ignore[misc]
        texts = onednn.texts([onednn.mirror(case) for case in cases if isinstance(case, MemoryDesc)])
        return [UNSAID if text is None else ("success", text) for text in texts]


TAG_CODES = {**ENUMERATED, "any": onednn.TAG_ANY, "undef": onednn.TAG_UNDEF}


def _same(pair: Pair) -> bool:
    equal = pair.run()
    assert not equal or hash(pair.desc) == hash(pair.other)
    return equal


def _sizes(desc: MemoryDesc) -> tuple[int, ...]:
    return (desc.size, *desc.sizes)


def _real_sizes(desc: MemoryDesc) -> tuple[int, ...]:
    real = onednn.mirror(desc)
    return (real.size, *[real.size_of(i) for i in range(len(desc.sizes))])


def draw_query(choose: Choices, scope: Scope) -> Query:
    """Draw a query of a descriptor of any kind; half of the queries are errors for some kinds."""
    desc = draw_blocked(choose, scope) if choose.integer(0, 2) == 0 else draw_any_kind(choose, scope)
    asked = (*QUERIES, *QUERIES[7:], *(("data_types[1]",) if desc.kind == "sparse" else ()))
    return Query(desc, choose.pick(asked))


def draw_sized(choose: Choices, scope: Scope) -> MemoryDesc:
    """Draw a descriptor of any kind; about half are blocked."""
    return draw_any_kind(choose, scope) if choose.integer(0, 2) == 0 else draw_blocked(choose, scope)


def draw_texted(choose: Choices, scope: Scope) -> MemoryDesc:
    """Draw a descriptor of a type whose reorders oneDNN logs; half are dense, without padding."""
    known = [t for t in scope.data_types if t.name in ("f32", "bf16", "f16", "s8", "u8", "s32")]
    if choose.integer(0, 9):
        scope = replace(scope, data_types=known)
    if choose.integer(0, 9) < 3:
        return draw_blocked(choose, scope)
    tag = draw_tag(choose)
    dims = [tag.blocks(i) * choose.integer(1, 4) for i in range(tag.ndims)]
    return MemoryDesc(dims, choose.pick(known), tag)


def _has_size(real: Answer) -> bool:
    return real[0] == "success" and 0 < real[1][0] < 2**63


def _is_letters_alone(real: Answer) -> bool:
    flags, strides = real[1].split(":")[1], real[1].split(":")[4]
    return not flags and not strides


OPERATIONS = (
    Operation(
        "create by tag",
        draw_by_tag,
        ByTag.run,
        lambda case: onednn.by_tag(case.dims, case.data_type.code, TAG_CODES[case.tag]),
    ),
    Operation(
        "create by strides",
        draw_by_strides,
        ByStrides.run,
        lambda case: onednn.by_strides(case.dims, case.data_type.code, case.strides),
    ),
    Operation("size", draw_sized, _sizes, _real_sizes, ("bytes", "none or unknown"), _has_size),
    Operation(
        "submemory",
        draw_submemory,
        Submemory.run,
        lambda case: onednn.mirror(case.desc).submemory(case.dims, case.offsets),
    ),
    Operation("reshape", draw_reshape, Reshape.run, lambda case: onednn.mirror(case.desc).reshape(case.dims)),
    Operation(
        "permute_axes",
        draw_permute,
        Permute.run,
        lambda case: onednn.mirror(case.desc).permute_axes(case.permutation),
    ),
    Operation(
        "equality",
        draw_pair,
        _same,
        lambda case: onednn.mirror(case.desc) == onednn.mirror(case.other),
        ("equal", "different"),
        lambda real: bool(real[1]),
    ),
    Operation("text", draw_texted, str, onednn.text, ("letters", "flags or strides"), _is_letters_alone),
    Operation("queries", draw_query, Query.ours, Query.theirs),
)


def known_tags() -> list[str]:
    """Return the tags whose code the library has; 3.2 has fewer, and other codes for some."""
    known = []
    for text, code in ENUMERATED.items():
        dims = (3,) * FormatTag.parse(text).ndims
        try:
            if onednn.by_tag(dims, 3, code) == onednn.by_string_tag(dims, 3, text):
                known.append(text)
        except onednn.Refused:
            continue
    return known


def scope_of_library() -> Scope:
    """Return the data types, tags and kinds that the loaded library has."""
    modern = onednn.version() >= (3, 13)
    return Scope(
        data_types=[t for t in DATA_TYPES.values() if onednn.knows(t.code)],
        tags=known_tags(),
        encodings=("csr", "coo", "packed") if modern else ("csr",),
        host_scalar=modern,
    )
