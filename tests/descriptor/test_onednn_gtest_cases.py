"""The cases of oneDNN's API tests, as data, for Inlay's descriptors.

Each row is one assertion of tests/gtests/api in oneDNN; the file names the commit. The only rows missing are the
three of grouped sparse descriptors, which Inlay does not have.
"""

import json
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from inlay.descriptor import MemoryDesc
from inlay.errors import InlayError, InvalidArguments
from inlay.layout import RUNTIME
from tests.support.paths import DATA

CASES: dict[str, Any] = json.loads((DATA / "onednn_gtest_cases.json").read_text())


def parse_numbers(values: list[int | str]) -> tuple[int, ...]:
    return tuple(RUNTIME if value == "RUNTIME" else int(value) for value in values)


def create_desc(row: dict[str, Any], **options: Any) -> MemoryDesc:
    """The descriptor that a row describes."""
    if row.get("zero"):
        return MemoryDesc()
    said: dict[str, Any] = {key: parse_numbers(row[key]) for key in ("strides", "padded_dims") if key in row}
    return MemoryDesc(parse_numbers(row["dims"]), row.get("dt", "f32"), row.get("tag"), **said, **options)


def assert_refused(status: str, call: Callable[..., MemoryDesc]) -> None:
    """Require an error with a status, and the zero descriptor where errors are allowed to be it."""
    with pytest.raises(InlayError) as caught:
        call()
    assert caught.value.status == status
    assert call(allow_empty=True) == MemoryDesc()


def both_ways(rows: list[dict[str, Any]]) -> list[Any]:
    """The rows, and those marked so once more from `out` to `md`."""
    pairs = [(row["md"], row["out"], row) for row in rows]
    pairs += [(row["out"], row["md"], row) for row in rows if row["both_directions"]]
    return [pytest.param(*pair, id=f"{i}") for i, pair in enumerate(pairs)]


def test_no_case_is_lost() -> None:
    counts = {name: len(rows) for name, rows in CASES["properties"].items()}
    assert counts == {"size": 3, "equal": 9, "size_subbyte": 3, "size_grouped": 3, "create_fails": 7}
    assert (len(CASES["reshape"]), len(CASES["permute_axes"]), len(CASES["host_scalar"])) == (35, 14, 4)


@pytest.mark.parametrize(("source", "target", "row"), both_ways(CASES["reshape"]))
def test_reshape(source: dict[str, Any], target: dict[str, Any], row: dict[str, Any]) -> None:
    desc, dims = create_desc(source), parse_numbers(target.get("dims", []))
    if row["status"] == "success":
        assert desc.reshape(dims) == create_desc(target)
    else:
        assert_refused(row["status"], lambda **options: desc.reshape(dims, **options))


@pytest.mark.parametrize("row", CASES["permute_axes"])
def test_permute_axes(row: dict[str, Any]) -> None:
    desc = create_desc(row["md"])
    if row["status"] == "success":
        assert desc.permute_axes(row["perm"]) == create_desc(row["out"])
        assert create_desc(row["out"]).rename_axes(row["perm"]) == desc
    else:
        assert_refused(row["status"], lambda **options: desc.permute_axes(row["perm"], **options))


@pytest.mark.parametrize("row", CASES["properties"]["size"] + CASES["properties"]["size_subbyte"])
def test_size(row: dict[str, Any]) -> None:
    assert create_desc(row["md"]).size == row["size"]


@pytest.mark.parametrize("row", CASES["properties"]["equal"])
def test_equal(row: dict[str, Any]) -> None:
    first, second = create_desc(row["a"]), create_desc(row["b"])
    assert (first == second, second == first, first != second) == (row["equal"], row["equal"], not row["equal"])
    assert not row["equal"] or hash(first) == hash(second)


@pytest.mark.parametrize("row", CASES["properties"]["create_fails"])
def test_create_fails(row: dict[str, Any]) -> None:
    assert_refused(row["status"], lambda **options: create_desc(row["md"], **options))


@pytest.mark.parametrize("name", ["zero", "blocked"])
def test_query(name: str) -> None:
    row = dict(CASES["query"][name])
    desc = create_desc(row.pop("md", {"zero": True}))
    kind, data_type = row.pop("format_kind"), row.pop("dt")
    assert (desc.kind, "undef" if desc.data_type is None else desc.data_type.name) == (kind, data_type)
    for query, answer in row.items():
        assert getattr(desc, query) == (tuple(answer) if isinstance(answer, list) else answer), query


@pytest.mark.parametrize("row", [row for row in CASES["host_scalar"] if "dt" in row])
def test_host_scalar(row: dict[str, Any]) -> None:
    """Left out is the row with a null pointer for the result, which Python does not have."""
    if row["status"] == "success":
        desc = MemoryDesc.host_scalar(row["dt"])
        assert (desc.ndims, desc.kind, desc.size) == (row["ndims"], row["format_kind"], row["size"])
        return
    with pytest.raises(InvalidArguments):
        MemoryDesc.host_scalar(row["dt"])


def test_submemory() -> None:
    """A write through the descriptor of a part changes that part of the whole alone."""
    row = CASES["submemory"]
    part = create_desc(row["parent"]).submemory(row["sub_dims"], row["sub_offsets"])
    values = np.array(row["parent_values"], np.float32)
    values[part.offset(np.indices(part.dims).reshape(part.ndims, -1).T)] = row["source"]
    assert values.tolist() == row["result"]
