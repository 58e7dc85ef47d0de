"""Markup that every parser reads: elements become text here, and nothing else."""

from xml.etree import ElementTree

from inlay.printable import printable_lines


def markup_of(root: ElementTree.Element) -> str:
    r"""`root` as XML with a line end; characters that XML has not, such as control codes, are written as escapes.

    >>> svg = ElementTree.Element("svg", {"id": "a\0"})
    >>> svg.text = "\x1b[31m <b>"
    >>> print(markup_of(svg), end="")
    <svg id="a\x00">\x1b[31m &lt;b&gt;</svg>
    """
    for element in root.iter():
        element.text = printable_lines(element.text or "") or None
        for name, value in element.items():
            element.set(name, printable_lines(value))
    return ElementTree.tostring(root, encoding="unicode") + "\n"
