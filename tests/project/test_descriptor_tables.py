"""Check the tables of docs/descriptors.md; the examples of the page run as doctests."""

from collections.abc import Callable, Iterator

import pytest

from inlay.data_type import DATA_TYPES
from inlay.descriptor import MemoryDesc
from inlay.errors import InlayError, InvalidArguments, Unimplemented
from tests.parity.differences import DIFFERENCES
from tests.support.paths import ROOT

PAGE = ROOT / "docs" / "descriptors.md"

BY_KIND = {
    "undef": MemoryDesc(),
    "any": MemoryDesc((1, 4), "f32", "any"),
    "blocked": MemoryDesc((1, 4), "f32", "aB2b"),
    "digits": MemoryDesc((1, 4), "f32", pattern="a (b b2) -> b2 a b"),
    "swizzled": MemoryDesc((1, 4), "f32", "Swizzle<1,0,1> o ab"),
    "sparse": MemoryDesc.csr((1, 4), "f32", 2),
    "host_scalar": MemoryDesc.host_scalar("f32"),
    "opaque": MemoryDesc.opaque((1, 4), "f32", "wino", 64),
}


def table_under(heading: str, *, skip: int = 0) -> list[list[str]]:
    """Return the cells of a table below a heading: its head, then its rows."""
    section = PAGE.read_text().split(f"\n## {heading}\n")[1].split("\n## ")[0]
    tables: list[list[list[str]]] = []
    for paragraph in section.split("\n\n"):
        lines = paragraph.strip().splitlines()
        if lines and lines[0].startswith("|"):
            tables.append([[cell.strip() for cell in line.strip("|").split("|")] for line in lines])
    head, _, *rows = tables[skip]
    return [head, *rows]


def query(desc: MemoryDesc, name: str) -> object:
    """Return the result of an attribute or method of the table."""
    first, length = (0,) * desc.ndims, desc.ndims
    calls: dict[str, Callable[[], object]] = {
        "offset": lambda: desc.offset(first),
        "byte_offset": lambda: desc.byte_offset(first),
        "coordinate": lambda: desc.coordinate(0),
        "is_padding": lambda: desc.is_padding(first),
        "reshape": lambda: desc.reshape(desc.dims),
        "permute_axes": lambda: desc.permute_axes(range(length)),
        "rename_axes": lambda: desc.rename_axes(range(length)),
        "submemory": lambda: desc.submemory(desc.dims, first),
    }
    return calls[name]() if name in calls else getattr(desc, name)


def kind_table_cells() -> Iterator[tuple[str, str, str]]:
    head, *rows = table_under("Kinds of descriptors", skip=1)
    for names, *cells in rows:
        for kind, cell in zip(head[1:], cells, strict=True):
            for name in names.replace("`", "").split(", "):
                yield name, kind.strip("`"), cell


@pytest.mark.parametrize(("name", "kind", "cell"), list(kind_table_cells()))
def test_queries_of_each_kind_match_the_table(name: str, kind: str, cell: str) -> None:
    desc = BY_KIND[kind]
    assert desc.kind == kind
    if cell == "error":
        has_layout = kind in ("blocked", "digits")
        error = Unimplemented if name == "submemory" and not has_layout else InvalidArguments
        with pytest.raises(error):
            query(desc, name)
    else:
        assert cell == ("empty" if query(desc, name) == () and name not in ("dims", "padded_dims") else "yes")


def test_the_table_of_kinds_is_complete() -> None:
    rows = table_under("Kinds of descriptors")[1:]
    assert [row[0].strip("`") for row in rows] == list(BY_KIND)


def strides_rows() -> Iterator[tuple[str, str, bool]]:
    for dims, strides, verdict in table_under("Strides")[1:]:
        yield dims, strides, verdict.startswith("accepted")


@pytest.mark.parametrize(("dims", "strides", "accepted"), list(strides_rows()))
def test_strides_are_accepted_as_the_table_says(dims: str, strides: str, accepted: bool) -> None:
    sizes, _, data_type = dims.partition(" of ")
    numbers = [tuple(int(n) for n in text.strip("()").split(", ")) for text in (sizes, strides)]
    try:
        MemoryDesc(numbers[0], data_type.strip("`") or "f32", strides=numbers[1])
    except InlayError:
        assert not accepted
    else:
        assert accepted


PAIRS = {
    "`nChw8c` and `nchw` of (1, 8, 1, 1)": [MemoryDesc((1, 8, 1, 1), "f32", tag) for tag in ("nChw8c", "nchw")],
    "`aB4b4b` and `aB16b`": [MemoryDesc((2, 32), "f32", tag) for tag in ("aB4b4b", "aB16b")],
    "strides of a unit axis differ": [MemoryDesc((1, 4), "f32", strides=(step, 1)) for step in (4, 9)],
    "two zero descriptors": [MemoryDesc(), MemoryDesc()],
    "`any` and `any` of the same dims and type": [MemoryDesc((2, 3), "f32", "any") for _ in range(2)],
    "dims with a 0, strides differ": [MemoryDesc((0, 4), "f32", strides=(step, 1)) for step in (4, 9)],
}


def test_pairs_are_equal_and_equivalent_as_the_table_says() -> None:
    rows = table_under("Equality and equivalence")[1:]
    assert [row[0] for row in rows] == list(PAIRS)
    for name, equal, equivalent in rows:
        one, other = PAIRS[name]
        assert ((one == other), one.equivalent(other)) == (equal == "yes", equivalent == "yes"), name


def test_the_table_of_data_types_is_complete() -> None:
    cells = [cell for row in table_under("Data types")[1:] for cell in (*row[:2], *row[4:6])]
    found: dict[str, int] = {}
    for names, bits in zip(cells[::2], cells[1::2], strict=True):
        found |= {name: int(bits) for name in names.replace("`", "").split(", ")}
    assert found == {data_type.name: data_type.bits for data_type in DATA_TYPES.values()}


def test_the_table_of_differences_is_complete() -> None:
    rows = table_under("Differences from oneDNN")[1:]
    assert [row[0] for row in rows] == [difference.name for difference in DIFFERENCES if not difference.only_old]
