r"""Texts from files, as they may be shown: a name must not move the cursor, set a title or imitate another line.

Names of tensors, nodes and files come from anywhere. What is shown of them, in a terminal or in a picture, passes here:
every character that Python calls not printable, such as control codes, marks of text direction, surrogates and code
points that mean nothing, is written as its escape.

>>> print(printable("n\x1b]0;title\x07\nb"))
n\x1b]0;title\x07\nb
"""


def printable(text: str) -> str:
    """`text` in one line, with the escapes of Python's string literals for what is not printable."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode("ascii") for c in text)


def printable_lines(text: str) -> str:
    """The lines of `text`, each as `printable` writes it: for texts whose line ends are Inlay's own."""
    return text if text.isprintable() else "\n".join(map(printable, text.split("\n")))
