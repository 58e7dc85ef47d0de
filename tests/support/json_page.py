"""The tables of `docs/json.md`, written from the JSON Schema. As a program it writes the tables into the page.

python -m tests.support.json_page
"""

import json
import re
from collections.abc import Iterator
from importlib.resources import files
from typing import Any

from tests.support.paths import ROOT

PAGE = ROOT / "docs" / "json.md"
MARKS = ("<!-- documents: begin -->\n", "<!-- documents: end -->\n")
SCHEMA: dict[str, Any] = json.loads(files("inlay").joinpath("data", "documents.schema.json").read_text())
DEFINITIONS: dict[str, dict[str, Any]] = SCHEMA["$defs"]


def tables() -> str:
    """The sections of all documents in Markdown: those of commands first, then the parts that several have."""
    commands = [name for name, definition in DEFINITIONS.items() if definition["description"].startswith("`inlay ")]
    parts = [name for name in DEFINITIONS if name not in commands]
    lines = [line for name in (*commands, *parts) for line in _section(name)]
    return "\n".join(lines)


def _section(name: str) -> Iterator[str]:
    definition = DEFINITIONS[name]
    yield f"\n### {name}\n"
    yield f"{definition['description'].removesuffix('.')}."
    if "allOf" in definition:
        yield f"\nThe document is a {_link(definition['allOf'][0]['$ref'])}."
        return
    yield "\n| property | type | meaning |"
    yield "|---|---|---|"
    yield from _rows(definition, "")


def _rows(definition: dict[str, Any], prefix: str) -> Iterator[str]:
    """A row for each property; those of an object follow it with its name and a dot."""
    for name, value in definition.get("properties", {}).items():
        meaning = value.get("description", "").replace("|", r"\|")
        yield f"| `{prefix}{name}` | {_type_text(value)} | {meaning} |"
        inner, mark = _inner_object(value)
        if inner is not None:
            yield from _rows(inner, f"{prefix}{name}{mark}.")


def _inner_object(value: dict[str, Any]) -> tuple[dict[str, Any] | None, str]:
    """The object whose properties are listed below a property, and the mark of lists and maps behind its name."""
    mark = ""
    while True:
        if value.get("type") == "array" or value.get("type") == ["array", "null"]:
            value, mark = value["items"], f"{mark}[]"
        elif isinstance(value.get("additionalProperties"), dict):
            value, mark = value["additionalProperties"], f"{mark}{{}}"
        elif "anyOf" in value and "$ref" not in value["anyOf"][0]:
            value = value["anyOf"][0]
        else:
            return (value if "properties" in value else None), mark


def _type_text(value: dict[str, Any]) -> str:
    """The type of a property in words."""
    if "$ref" in value:
        return _link(value["$ref"])
    for key in ("allOf", "anyOf"):
        if key in value:
            return " or ".join(_type_text(each) for each in value[key])
    if "const" in value or "enum" in value:
        return " or ".join(f"`{json.dumps(each)}`" for each in value.get("enum", [value.get("const")]))
    names = value["type"] if isinstance(value["type"], list) else [value["type"]]
    return " or ".join(_name_of(name, value) for name in names)


def _name_of(name: str, value: dict[str, Any]) -> str:
    """The name of a type; of a list or a map, also that of its entries."""
    if name == "array":
        return f"list of {_type_text(value['items'])}"
    if name == "object" and isinstance(value.get("additionalProperties"), dict):
        return f"map to {_type_text(value['additionalProperties'])}"
    return name


def _link(reference: str) -> str:
    """A link to the section of a definition."""
    name = reference.rpartition("/")[2]
    return f"[{name}](#{name})"


def written() -> str:
    """The tables that the page has."""
    return PAGE.read_text().partition(MARKS[0])[2].partition(MARKS[1])[0]


def sections() -> list[str]:
    """The names of the sections of the page."""
    return re.findall(r"^### (\w+)$", written(), re.MULTILINE)


if __name__ == "__main__":
    before, _, rest = PAGE.read_text().partition(MARKS[0])
    PAGE.write_text(f"{before}{MARKS[0]}{tables()}\n\n{MARKS[1]}{rest.partition(MARKS[1])[2]}")
