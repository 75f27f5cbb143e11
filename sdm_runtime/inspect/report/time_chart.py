"""Measured kernel times as a chart: the whole run, and one step of it close up."""

from __future__ import annotations

from sdm_runtime.inspect.reading.timeline import KernelTime, Trace, overlap, times_by_name
from sdm_runtime.inspect.reading.words import plural
from sdm_runtime.inspect.report.markup import Markup, element, join, table

_LEFT, _WIDTH, _LANE, _TOP = 168, 820, 28, 8  # pixels
_COLOURS = 8  # classes k0 .. k7
_MOST_DRAWN = 6000  # rectangles; beyond, neighbours are drawn as one
_CLOSE_UP_STEPS = 3
_UNITS = (("us", 1.0), ("ms", 1e3), ("s", 1e6))  # of the axis, in microseconds


def time_section(trace: Trace, launches_a_step: int) -> Markup:
    """Chart, close-up and table; ``launches_a_step`` sizes the close-up."""
    if not trace.kernels:
        return element("p", "The trace holds no kernel.", class_="quiet")
    names = list(dict.fromkeys(kernel.name for kernel in trace.kernels))
    whole = _chart(trace.kernels, names, "the whole run")
    middle = _middle(trace, launches_a_step)
    parts: list[object] = [_summary(trace), whole]
    if len(middle) < len(trace.kernels):
        steps = plural(_CLOSE_UP_STEPS, "step")
        parts += [
            element("h3", f"{steps} in the middle"),
            _chart(middle, names, f"{steps} in the middle"),
        ]
    return join(*parts, _table(trace, names))


def _middle(trace: Trace, launches_a_step: int) -> tuple[KernelTime, ...]:
    count = max(launches_a_step, 1) * _CLOSE_UP_STEPS
    first = max(len(trace.kernels) // 2 - count // 2, 0)
    if launches_a_step:
        first -= first % launches_a_step
    return trace.kernels[first : first + count]


def _summary(trace: Trace) -> Markup:
    follow = overlap(trace)
    early = f"{follow.early} of {follow.pairs}"
    sentence = (
        f"{plural(len(trace.kernels), 'kernel')} in {trace.span_us:,.1f} us "
        f"({trace.source}). {early} started before the one ahead had ended (together "
        f"{follow.shared_us:,.1f} us); between them {follow.idle_us:,.1f} us idle."
    )
    return element("p", sentence)


def _chart(kernels: tuple[KernelTime, ...], names: list[str], label: str) -> Markup:
    begin = kernels[0].start_us
    span = max(max(kernel.end_us for kernel in kernels) - begin, 1e-9)
    lanes = [name for name in names if any(kernel.name == name for kernel in kernels)]
    height = _TOP + len(lanes) * _LANE + 26
    parts = [_lane(name, row) for row, name in enumerate(lanes)]
    parts.append(_axis(span, _TOP + len(lanes) * _LANE))
    for first, last, name in _merged(kernels):
        x = _LEFT + (first - begin) / span * _WIDTH
        width = max((last - first) / span * _WIDTH, 0.6)
        tip = f"{name}\n{first - begin:,.2f} .. {last - begin:,.2f} us ({last - first:,.2f} us)"
        parts.append(
            element(
                "rect",
                element("title", tip),
                x=f"{x:.2f}",
                y=_TOP + lanes.index(name) * _LANE + 4,
                width=f"{width:.2f}",
                height=_LANE - 8,
                rx=2 if width > 6 else 0,
                class_=f"k{names.index(name) % _COLOURS}",
            )
        )
    svg = element(
        "svg",
        *parts,
        class_="timeline",
        viewBox=f"0 0 {_LEFT + _WIDTH + 30} {height}",
        width=_LEFT + _WIDTH + 30,
        height=height,
        role="img",
        aria_label=f"kernel times, {label}",
    )
    return element("div", svg, class_="scroll")


def _merged(kernels: tuple[KernelTime, ...]) -> list[tuple[float, float, str]]:
    """(start, end, name) of what is drawn: every kernel, or neighbours of one name together."""
    each = -(-len(kernels) // _MOST_DRAWN)
    if each == 1:
        return [(kernel.start_us, kernel.end_us, kernel.name) for kernel in kernels]
    drawn = []
    by_name: dict[str, list[KernelTime]] = {}
    for kernel in kernels:
        by_name.setdefault(kernel.name, []).append(kernel)
    for name, group in by_name.items():
        for i in range(0, len(group), each):
            part = group[i : i + each]
            drawn.append((part[0].start_us, max(k.end_us for k in part), name))
    return drawn


def _lane(name: str, row: int) -> Markup:
    y = _TOP + row * _LANE
    band = element(
        "rect",
        x=0,
        y=y,
        width=_LEFT + _WIDTH + 30,
        height=_LANE,
        class_="band odd" if row % 2 else "band",
    )
    shown = name if len(name) <= 22 else f"{name[:21]}…"
    text = element(
        "text", element("title", name), shown, x=_LEFT - 12, y=y + _LANE / 2 + 4.5, class_="name"
    )
    return join(band, text)


def _axis(span: float, y: float) -> Markup:
    unit, each = next((u, n) for u, n in _UNITS if span < 1000 * n or u == "s")
    marks = []
    for i in range(5):
        x = _LEFT + i / 4 * _WIDTH
        marks.append(element("line", x1=x, y1=_TOP, x2=x, y2=y + 5, class_="grid"))
        label = f"{span * i / 4 / each:,.4g} {unit}"
        marks.append(
            element("text", label, x=x, y=y + 20, class_="tick last" if i == 4 else "tick")
        )
    return join(*marks)


def _table(trace: Trace, names: list[str]) -> Markup:
    total = sum(kernel.duration_us for kernel in trace.kernels) or 1.0
    rows: list[list[object]] = []
    for entry in times_by_name(trace):
        colour = f"swatch k{names.index(entry.name) % _COLOURS}"
        name = element("td", element("i", class_=colour), entry.name)
        numbers = (entry.total, 100 * entry.total / total, entry.least, entry.middle, entry.most)
        rows.append(
            [
                name,
                element("td", f"{entry.count:,}", class_="number"),
                *(element("td", f"{number:,.2f}", class_="number") for number in numbers),
            ]
        )
    headings = ("kernel", "runs", "total us", "%", "least us", "median us", "most us")
    return table(headings, rows)
