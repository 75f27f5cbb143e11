"""HTML and SVG elements as strings; every text and attribute is escaped."""

from __future__ import annotations

from html import escape


class Markup(str):
    """Text that is markup already."""

    __slots__ = ()


def element(name: str, *children: object, **attributes: object) -> Markup:
    """``<name attributes>children</name>``. ``class_`` gives class, ``_`` in names gives ``-``."""
    given = "".join(
        f' {_attribute(key)}="{escape(str(value))}"'
        for key, value in attributes.items()
        if value is not None
    )
    return Markup(f"<{name}{given}>{join(*children)}</{name}>")


def join(*children: object) -> Markup:
    """Children one after the other; anything but Markup is escaped."""
    return Markup(
        "".join(child if isinstance(child, Markup) else escape(str(child)) for child in children)
    )


def _attribute(key: str) -> str:
    return key.rstrip("_").replace("_", "-")


def table(headings: tuple[str, ...], rows: list[list[object]], **attributes: object) -> Markup:
    """A table; a cell that is a Markup ``<td>`` stays as it is."""
    head = element("tr", *(element("th", heading, scope="col") for heading in headings))
    body = [element("tr", *(_cell(cell) for cell in row)) for row in rows]
    inner = element("table", element("thead", head), element("tbody", *body), **attributes)
    return element("div", inner, class_="scroll")


def _cell(cell: object) -> Markup:
    if isinstance(cell, Markup) and cell.startswith("<td"):
        return cell
    return element("td", cell)
