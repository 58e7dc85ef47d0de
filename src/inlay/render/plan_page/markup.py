"""Elements of HTML and SVG, as both halves of the page build them."""

from xml.etree.ElementTree import Element, SubElement, indent, tostring

from inlay.errors import printable_lines


def add(parent: Element, tag: str, text: str | None = None, /, **attributes: object) -> Element:
    """Append an element and return it; attributes without a value (None) are left out.

    Names of attributes are written with `_` for `-`, and one that is a keyword of Python with `_` after it.

    >>> from xml.etree.ElementTree import Element
    >>> print(markup_of_element(add(Element("div"), "td", "3 < 4", class_="number", data_step=7)))
    <td class="number" data-step="7">3 &lt; 4</td>
    """
    values = {name.rstrip("_").replace("_", "-"): str(value) for name, value in attributes.items() if value is not None}
    element = SubElement(parent, tag, values)
    element.text = text
    return element


def markup_of_element(element: Element) -> str:
    """Return an element as HTML; characters that are not printable, such as control codes, are written as escapes."""
    for one in element.iter():
        one.text = printable_lines(one.text) if one.text else None
        for name, value in one.items():
            one.set(name, printable_lines(value))
    return tostring(element, encoding="unicode", method="html")


def markup_of_graph(element: Element) -> str:
    """Return an element of SVG as HTML, an element a line."""
    indent(element, "")
    return markup_of_element(element)
