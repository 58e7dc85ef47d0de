"""The names that match a shell pattern: tags with their aliases, names of vendors, data types.

>>> [t.name for t in match_types("bf*")], match_tags("nChw16*")
(['bf16'], {'aBcd16b': ['nChw16c', 'gOiw16o']})
"""

from fnmatch import fnmatchcase

from inlay.data_type import DATA_TYPES, DataType
from inlay.descriptor.compound_format import CompoundFormat
from inlay.descriptor.compound_table import compound_formats
from inlay.errors import InvalidArguments
from inlay.notation.dictionary import ONEDNN, NamedLayout, list_rows
from inlay.notation.format_tag import ALIASES, ENUMERATED, FormatTag


def match_types(pattern: str) -> list[DataType]:
    """Return the data types whose name matches.

    Raises:
        InvalidArguments: there are none.
    """
    found = [each for each in DATA_TYPES.values() if fnmatchcase(each.name, pattern)]
    _require_names(found, pattern, "`inlay names --types` lists all")
    return found


def match_tags(pattern: str) -> dict[str, list[str]]:
    """Return each canonical tag that matches, or that has an alias that matches, with all its aliases.

    Raises:
        InvalidArguments: there are none.
    """
    aliases: dict[str, list[str]] = {tag: [] for tag in ENUMERATED}
    for alias, tag in ALIASES.items():
        aliases.setdefault(str(FormatTag.parse(tag)), []).append(alias)
    found = {
        tag: others for tag, others in aliases.items() if any(fnmatchcase(name, pattern) for name in (tag, *others))
    }
    _require_names(found, pattern, "`inlay names` lists all tags, and `inlay names '*:*'` the names of vendors")
    return found


def match_vendor_names(pattern: str) -> tuple[list[NamedLayout], list[CompoundFormat]]:
    """Return the rows of the dictionary and the compound formats whose name matches.

    Raises:
        InvalidArguments: there are none.
    """
    rows = [row for row in (*list_rows(), *list_rows(ONEDNN)) if fnmatchcase(row.name, pattern)]
    formats = [fmt for name, fmt in compound_formats().items() if fnmatchcase(name, pattern)]
    _require_names([*rows, *formats], pattern, "`inlay names '*:*'` lists all")
    return rows, formats


def _require_names(found: object, pattern: str, remedy: str) -> None:
    """Check that a pattern matches names.

    Raises:
        InvalidArguments: it matches none.
    """
    if not found:
        raise InvalidArguments(f"no name matches {pattern!r}: {remedy}")
