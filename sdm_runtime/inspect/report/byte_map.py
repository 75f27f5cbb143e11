"""Every byte of a file in colour: what it is, and what it says when it is pointed at."""

from __future__ import annotations

from sdm_runtime.inspect.reading.model import ChainModel
from sdm_runtime.inspect.reading.spans import Span, file_spans
from sdm_runtime.inspect.report.markup import Markup, element, join

_PER_ROW = 64  # bytes
_CELL, _LINE = 15, 17  # pixels of a byte, of a row
_LEFT = 56  # pixels for the row's first byte
_LETTER = 6.2  # pixels of a letter in a label
_GROUPS = {
    "header": "headers",
    "entries": "chain entries",
    "fields": "field table",
    "patches": "patches",
    "relocations": "relocations",
    "parameters": "parameter block",
}


def byte_maps(chain: ChainModel) -> Markup:
    """A map per plan, and one of what is before the plans."""
    spans = file_spans(chain)
    owners = list(dict.fromkeys(span.plan for span in spans))
    sections = []
    for owner in owners:
        part = [span for span in spans if span.plan == owner]
        title = "the chain's own bytes" if owner is None else f"plan {owner}  "
        kernel = "" if owner is None else chain.plans[owner].kernel
        summary = element(
            "summary",
            title,
            element("b", kernel),
            element("span", f"bytes {part[0].start} .. {part[-1].end}", class_="quiet"),
        )
        is_open = {"open": ""} if owner in (None, 0) else {}
        sections.append(element("details", summary, byte_map(part), **is_open))
    return join(_legend(), *sections)


def byte_map(spans: list[Span]) -> Markup:
    """Consecutive spans as an SVG of rows of 64 bytes."""
    base = spans[0].start
    rows = -(-(spans[-1].end - base) // _PER_ROW)
    parts: list[Markup] = []
    for row in range(rows):
        y = row * _LINE + _LINE - 4
        parts.append(element("text", base + row * _PER_ROW, x=_LEFT - 8, y=y, class_="at"))
    parts += [_span(span, base) for span in spans]
    width, height = _LEFT + _PER_ROW * _CELL, rows * _LINE + 2
    svg = element(
        "svg",
        *parts,
        class_="bytes",
        viewBox=f"0 0 {width} {height}",
        width=width,
        height=height,
        role="img",
        aria_label=f"{spans[-1].end - base} bytes",
    )
    return element("div", svg, class_="scroll")


def _span(span: Span, base: int) -> Markup:
    """A rectangle per row that the span touches."""
    tip = f"{span.record}: {span.member}\n{span.meaning}\nbytes {span.start} .. {span.end}"
    quiet = span.member in ("padding", "reserved")
    parts: list[Markup] = [element("title", tip)]
    label = span.meaning if span.member in ("name", "operand", "kernel", "entry") else span.member
    at = span.start - base
    end = span.end - base
    while at < end:
        row, column = divmod(at, _PER_ROW)
        length = min(end - at, _PER_ROW - column)
        parts.append(
            element(
                "rect",
                x=_LEFT + column * _CELL,
                y=row * _LINE + 1,
                width=length * _CELL - 1,
                height=_LINE - 2,
                rx=2,
            )
        )
        if len(label) * _LETTER < length * _CELL - 6:
            x, y = _LEFT + column * _CELL + 4, row * _LINE + _LINE - 4
            parts.append(element("text", label, x=x, y=y, class_="label"))
            label = ""
        at += length
    kind = f"g-{span.group}{' quiet' if quiet else ''}"
    return element("g", *parts, class_=kind)


def _legend() -> Markup:
    swatches = [
        element("span", element("i", class_=f"swatch g-{group}"), name)
        for group, name in _GROUPS.items()
    ]
    return element("p", *swatches, class_="legend")
