"""The chain of one step as a picture: launches from left to right, operands from top to bottom."""

from __future__ import annotations

from dataclasses import dataclass

from sdm_runtime.format.plan_format import Backend
from sdm_runtime.format.records import word
from sdm_runtime.inspect.reading.model import ChainModel, Operand, PlanModel
from sdm_runtime.inspect.reading.words import dims, size
from sdm_runtime.inspect.report.markup import Markup, element, join

_LEFT = 168  # pixels for the operands' names
_COLUMN = 190
_ROW = 30
_BOX_WIDTH, _BOX_HEIGHT = 150, 58
_BOX_TOP = 46
_GRID_TOP = _BOX_TOP + _BOX_HEIGHT + 34
_DOT = 6.5


@dataclass(frozen=True)
class _Place:
    """A box or a row by its centre."""

    index: int

    @property
    def x(self) -> float:
        return _LEFT + (self.index + 0.5) * _COLUMN

    @property
    def y(self) -> float:
        return _GRID_TOP + (self.index + 0.5) * _ROW


def chain_diagram(chain: ChainModel) -> Markup:
    """An SVG of the launches of a step and the operands that they read and write."""
    names = list(dict.fromkeys(o.name for plan in chain.plans for o in plan.operands))
    width = _LEFT + len(chain.plans) * _COLUMN + 24
    height = _GRID_TOP + len(names) * _ROW + 12
    parts = [_loop(chain)]
    parts += [_row(chain, name, row) for row, name in enumerate(names)]
    parts += [_box(plan, index) for index, plan in enumerate(chain.plans)]
    parts += [_arrow(chain, index) for index in range(1, len(chain.plans))]
    parts += [_dots(plan, index, names) for index, plan in enumerate(chain.plans)]
    label = f"{len(chain.plans)} launches a step, {len(names)} operands"
    svg = element(
        "svg",
        _arrow_heads(),
        *parts,
        class_="diagram",
        viewBox=f"0 0 {width} {height}",
        width=width,
        height=height,
        role="img",
        aria_label=label,
    )
    return join(element("div", svg, class_="scroll"), _legend())


def _arrow_heads() -> Markup:
    head = element(
        "marker",
        element("path", d="M0 0 L8 4 L0 8 z", class_="head"),
        id="head",
        viewBox="0 0 8 8",
        refX=7,
        refY=4,
        markerWidth=7,
        markerHeight=7,
        orient="auto",
    )
    return element("defs", head)


def _loop(chain: ChainModel) -> Markup:
    """From the last launch of a step back to the first launch of the next one."""
    first, last = _Place(0).x, _Place(len(chain.plans) - 1).x
    text = "1 step" if chain.steps == 1 else f"for ti = {chain.run_text}"
    label = element("text", text, x=(first + last) / 2, y=16, class_="loop-text")
    if chain.steps == 1:
        return label
    top, drop = 24, _BOX_TOP
    path = f"M{last} {drop} V{top + 8} Q{last} {top} {last - 8} {top} "
    if last == first:
        path = f"M{last + 40} {drop} V{top + 8} Q{last + 40} {top} {last + 32} {top} "
    path += f"H{first + 8} Q{first} {top} {first} {top + 8} V{drop - 2}"
    arrow = element("path", d=path, class_="loop", marker_end="url(#head)")
    return join(arrow, label)


def _box(plan: PlanModel, index: int) -> Markup:
    place = _Place(index)
    if plan.empty:
        geometry = "empty grid: not launched"
    elif plan.library:
        geometry = "library call"
    elif plan.backend is Backend.HOST:
        geometry = "host twin"
    else:
        geometry = f"{dims(plan.header.grid)} blocks of {dims(plan.header.block)}"
    box = element(
        "rect",
        x=place.x - _BOX_WIDTH / 2,
        y=_BOX_TOP,
        width=_BOX_WIDTH,
        height=_BOX_HEIGHT,
        rx=9,
        class_=f"box{' empty' if plan.empty else ''}",
    )
    name = element("text", plan.kernel, x=place.x, y=_BOX_TOP + 26, class_="kernel")
    detail = element("text", geometry, x=place.x, y=_BOX_TOP + 44, class_="detail")
    link = element("a", box, name, detail, href=f"#plan-{index}")
    stem = element(
        "line",
        x1=place.x,
        y1=_BOX_TOP + _BOX_HEIGHT,
        x2=place.x,
        y2=_GRID_TOP - 4,
        class_="stem",
    )
    return join(stem, link)


def _arrow(chain: ChainModel, index: int) -> Markup:
    """From the launch before: dashed where this one may start before that one has finished."""
    programmatic = chain.plans[index].programmatic
    y = _BOX_TOP + _BOX_HEIGHT / 2
    start = _Place(index - 1).x + _BOX_WIDTH / 2
    end = _Place(index).x - _BOX_WIDTH / 2 - 2
    line = element(
        "line",
        x1=start,
        y1=y,
        x2=end,
        y2=y,
        class_="order programmatic" if programmatic else "order",
        marker_end="url(#head)",
    )
    label = element("text", "PDL", x=(start + end) / 2, y=y - 7, class_="pdl")
    return join(line, label) if programmatic else line


def _row(chain: ChainModel, name: str, row: int) -> Markup:
    """An operand's name, its row, and the stretch between its first and last use."""
    place = _Place(row)
    users = [i for i, plan in enumerate(chain.plans) if any(o.name == name for o in plan.operands)]
    operand = next(o for plan in chain.plans for o in plan.operands if o.name == name)
    band = element(
        "rect",
        x=0,
        y=place.y - _ROW / 2,
        width=_LEFT + len(chain.plans) * _COLUMN + 24,
        height=_ROW,
        class_="band odd" if row % 2 else "band",
    )
    text = element("text", name, x=14, y=place.y + 4.5, class_="operand")
    extent = element(
        "text", size(operand.offset + operand.extent), x=_LEFT - 14, y=place.y + 4.5, class_="size"
    )
    line = element(
        "line",
        x1=_Place(users[0]).x,
        y1=place.y,
        x2=_Place(users[-1]).x,
        y2=place.y,
        class_="flow",
    )
    return join(band, text, extent, line)


def _dots(plan: PlanModel, index: int, names: list[str]) -> Markup:
    return join(*(_dot(_Place(index).x, _Place(names.index(o.name)).y, o) for o in plan.operands))


def _dot(x: float, y: float, operand: Operand) -> Markup:
    kind = {1: "read", 2: "write", 3: "both"}[operand.access]
    share = f"{operand.step_bytes} bytes a step" if operand.shared_out else "any part in any step"
    title = element("title", f"{operand.field}: {word(operand.access)} {operand.name}, {share}")
    shape = element("circle", cx=x, cy=y, r=_DOT, class_=f"dot {kind}")
    if kind == "both":
        shape = join(shape, element("circle", cx=x, cy=y, r=_DOT / 2.6, class_="core"))
    ring = "" if operand.shared_out else element("circle", cx=x, cy=y, r=_DOT + 3, class_="ring")
    return element("g", title, shape, ring)


def _legend() -> Markup:
    def sample(kind: str, text: str, ring: bool = False) -> Markup:
        parts = [element("circle", cx=11, cy=11, r=_DOT, class_=f"dot {kind}")]
        if kind == "both":
            parts.append(element("circle", cx=11, cy=11, r=_DOT / 2.6, class_="core"))
        if ring:
            parts.append(element("circle", cx=11, cy=11, r=_DOT + 3, class_="ring"))
        return element("span", element("svg", *parts, width=22, height=22), text)

    return element(
        "p",
        sample("read", "read"),
        sample("write", "written"),
        sample("both", "read and written"),
        sample("read", "any part of it in any step", ring=True),
        class_="legend",
    )
