"""What the axes are called in a picture: n, c, h, w where oneDNN has such names, the letters of the tag otherwise.

A descriptor has no names, only axes. Role letters name them: those of the tag that a descriptor was made of. Where it
was made of abstract letters, strides or another descriptor, a picture takes the names of the first alias that oneDNN
has for the layout, `nChw8c` for `aBcd8b`, unless its reader says better.

>>> axis_names(4, FormatTag.parse("OIhw16i16o"))
('o', 'i', 'h', 'w')
>>> axis_names(2, None)
('a', 'b')
"""

from inlay.arguments import entries_of
from inlay.errors import InvalidArguments, shown
from inlay.format_tag import ALIASES, LETTERS, FormatTag

_USUAL = {3: "ncw", 4: "nchw", 5: "ncdhw"}
"""oneDNN's names of the axes of activations, for strided layouts that no tag says."""


def alias_of(tag: FormatTag) -> str | None:
    """The first alias of `tag` in oneDNN's list, activations before weights; None where it has none.

    >>> alias_of(FormatTag.parse("acdb"))
    'nhwc'
    """
    text = str(tag)
    return next((alias for alias, meant in ALIASES.items() if meant == text), None)


def has_roles(tag: FormatTag) -> bool:
    """Whether the letters that the tag was read from say what the axes are for.

    >>> has_roles(FormatTag.parse("Ohwi16o")), has_roles(FormatTag.parse("Acdb16a"))
    (True, False)
    """
    return tag.letters != LETTERS[: tag.ndims]


def axis_names(ndims: int, tag: FormatTag | None) -> tuple[str, ...]:
    """One name per axis, for a descriptor of `ndims` axes and, where it has one, this `tag`."""
    if tag is not None and has_roles(tag):
        return tuple(tag.letters)
    alias = alias_of(tag) if tag is not None and ndims > 2 else None
    if tag is not None and alias is not None:
        return tuple(letter.lower() for _, letter in sorted(zip(tag.order, alias, strict=False)))
    return tuple(_USUAL.get(ndims, LETTERS[:ndims]))


def checked_names(names: object, ndims: int) -> tuple[str, ...]:
    """`names`, one for each of `ndims` axes.

    Raises:
        InvalidArguments: the number differs from `ndims`, a name is no identifier, or two are the same.
    """
    values: tuple[object, ...] = entries_of("names", names) if not isinstance(names, str) else tuple(names)
    given = [value for value in values if isinstance(value, str)]
    if len(given) < len(values):
        raise InvalidArguments(f"names are {shown(names)}: give one text for each axis, such as 'oihw'")
    if len(given) != ndims:
        raise InvalidArguments(f"{ndims} axes need {ndims} names, not {len(given)}: {shown(', '.join(given))[1:-1]}")
    wrong = [name for name in given if not name.isidentifier() or not name.isascii()]
    if wrong:
        raise InvalidArguments(f"an axis is named by ASCII letters and digits, like c or row, not {shown(wrong[0])}")
    if len(set(given)) < ndims:
        raise InvalidArguments(f"axes need different names: {', '.join(given)}")
    return tuple(given)
