"""The API reference has every public name, and says what each parameter is."""

import importlib
import re
from typing import Any

import pytest
from inlay_docs.definitions import import_name
from inlay_docs.docstrings import describe_parameter, parse_docstring
from inlay_docs.markdown_text import to_inline
from inlay_docs.page_expansion import EXPANSIONS, expand_page, read_catalog
from inlay_docs.reference import (
    Catalog,
    callees,
    describe_name,
    missing_descriptions,
    read_shared_parameters,
    type_aliases,
)

import inlay
from tests.support.paths import ROOT

CATALOG = read_catalog()
NAMES = [(module, name) for module, names in CATALOG.modules.items() for name in names]
PUBLIC_MODULES = {
    "inlay",
    "inlay.primitives",
    "inlay.storage",
    "inlay.testing",
    "inlay.memory.frameworks",
    "inlay.render",
}
"""Modules that users import; the reference has all names of these, and of others that it mentions."""
ELSEWHERE = {"Network", "Progress", "Tier"}
"""Names that `inlay.graph.plan` has for annotations alone."""
USER_PAGES = [page for page in (ROOT / "docs").glob("*.md") if page.stem not in ("architecture", "recipes")]


def test_the_reference_has_every_public_name() -> None:
    assert CATALOG.modules.keys() >= PUBLIC_MODULES
    described = [import_name(module, name) for module, name in NAMES]
    missing = [
        f"{module}.{name}"
        for module, names in CATALOG.modules.items()
        for name in getattr(importlib.import_module(module), "__all__", ())
        if name not in names and not any(getattr(importlib.import_module(module), name) is one for one in described)
    ]
    assert set(missing) == {f"inlay.graph.plan.{name}" for name in ELSEWHERE}
    assert set(CATALOG.modules["inlay"]) == set(inlay.__all__)


def test_no_name_is_described_twice() -> None:
    assert len(NAMES) == len(set(NAMES)) > 250


def test_pages_for_users_import_only_names_of_the_reference() -> None:
    imports = [
        (page.name, module, name)
        for page in [*USER_PAGES, ROOT / "README.md"]
        for module, names in re.findall(r"^>>> from (inlay[\w.]*) import ([\w, ]+)", page.read_text(), re.MULTILINE)
        for name in re.split(r", ?", names.strip())
    ]
    assert len(imports) > 10
    internal = {"inlay.primitives.engine", "inlay.storage.zarr_codec", "inlay.graph.costs", "inlay.cli"}
    described = {import_name(module, name) for module, name in NAMES if callable(import_name(module, name))}
    unknown = [
        entry
        for entry in imports
        if entry[1] not in internal
        and getattr(importlib.import_module(entry[1]), entry[2]) not in described
        and f"{entry[1]}.{entry[2]}" not in CATALOG.modules
        and not hasattr(getattr(importlib.import_module(entry[1]), entry[2]), "__path__")
        and getattr(getattr(importlib.import_module(entry[1]), entry[2]), "__name__", "") not in CATALOG.modules
    ]
    assert unknown == []


@pytest.mark.parametrize("module", CATALOG.modules)
def test_every_parameter_and_member_is_described(module: str) -> None:
    assert [
        missing for name in CATALOG.modules[module] for missing in missing_descriptions(CATALOG, module, name)
    ] == []


@pytest.mark.parametrize(("module", "name"), NAMES)
def test_a_name_becomes_a_directive_with_a_row_for_each_parameter(module: str, name: str) -> None:
    text = describe_name(CATALOG, module, name)
    assert text.startswith(":::::{py:")
    assert f":module: {module}\n" in text
    rows = re.findall(r"^\| `(\w+)` \| (.*?) \| (.+) \|$", text, re.MULTILINE)
    for callee in callees(CATALOG, module, name):
        for parameter in callee.signature.parameters:
            assert any(row[0] == parameter.name and row[2].strip() for row in rows), parameter


def test_every_type_alias_is_described() -> None:
    aliases = type_aliases(CATALOG)
    assert {"EngineLike", "DataTypeLike", "Format"} <= aliases.keys()
    assert [name for name, alias in aliases.items() if not alias.docstring] == []


def test_every_shared_description_is_used() -> None:
    used = {
        (callee.shared_entry(parameter.name)[0], parameter.name)
        for module, name in NAMES
        for callee in callees(CATALOG, module, name)
        for parameter in callee.signature.parameters
        if callee.own_meaning(parameter) == ""
    }
    entries = {(path, name) for path, names in read_shared_parameters().items() for name in names}
    assert entries - used == set()


DOCSTRING = """Move the elements of `src` to another place.

        first     number of the first row
                  that is moved
        last      number of the last row

    `width` is the number of columns. `height` and `depth` are not used; see `width` too.

    Post-condition: `src` is unchanged.

    Args:
        src: array of any dims,
            which is read.

    Raises:
        InvalidArguments, Unimplemented: `first` is negative,
            or none.

    >>> 1 + 1
    2
    """


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("src", "array of any dims, which is read."),
        ("first", "number of the first row that is moved"),
        ("last", "number of the last row"),
        ("width", "The number of columns. `height` and `depth` are not used; see `width` too."),
        ("depth", "`height` and `depth` are not used; see `width` too."),
        ("absent", ""),
    ],
)
def test_a_parameter_is_described_where_a_docstring_names_it(name: str, text: str) -> None:
    assert describe_parameter(parse_docstring(DOCSTRING), name) == text


def test_a_docstring_is_split_into_its_parts() -> None:
    parsed = parse_docstring(DOCSTRING)
    assert parsed.summary == "Move the elements of `src` to another place."
    assert [block.kind for block in parsed.blocks] == ["code", "text", "text", "example"]
    assert parsed.raises == (("InvalidArguments, Unimplemented", "`first` is negative, or none."),)


def test_text_of_docstrings_is_no_markup() -> None:
    resolve = CATALOG.resolver("inlay")
    assert to_inline("480*n + 160*(c//8) <b> [x](y) `a*b`", resolve) == (r"480\*n + 160\*(c//8) \<b\> \[x\](y) `a*b`")
    assert to_inline("see `pack` and `Memory.unpack()`", resolve) == (
        "see {py:obj}`pack <inlay.pack>` and {py:obj}`Memory.unpack() <inlay.Memory.unpack>`"
    )


def test_only_known_directives_are_replaced() -> None:
    catalog = Catalog({"inlay": ("pack",)})
    page = "# Page\n\n```{api} inlay\npack\n```\n\n```{inlay-picture} nchw 1x2x3x4\n```\n\n```python\n>>> 1\n1\n\n```\n"
    expanded = expand_page("page", page, catalog)
    assert ":::::{py:function} pack(array, format, data_type=None)" in expanded
    assert "```{inlay-picture} nchw 1x2x3x4\n```" in expanded
    assert "```python\n>>> 1\n1\n```" in expanded
    assert "```{api}" not in expanded


def test_every_directive_of_text_is_on_a_page() -> None:
    texts = "".join(page.read_text() for page in (ROOT / "docs").rglob("*.md"))
    assert [name for name in EXPANSIONS if f"```{{{name}}}" not in texts] == []


def members_of(name: str) -> dict[str, Any]:
    return {member.name: member.kind for member in CATALOG.members(getattr(inlay, name))}


def test_members_of_bases_that_are_not_public_are_described_with_the_class() -> None:
    members = members_of("MemoryDesc")
    assert members["csr"] == "classmethod"
    assert members["size"] == members["dims"] == "attribute"
    assert members["reshape"] == "method"
    assert not [name for name in members if name.startswith("_")]
