"""The page: what a chain file says, in one self-contained HTML file."""

from __future__ import annotations

from pathlib import Path
from string import Template

from sdm_runtime.format.records import word
from sdm_runtime.inspect.reading.model import ChainModel
from sdm_runtime.inspect.reading.timeline import Trace
from sdm_runtime.inspect.reading.traffic import step_traffic
from sdm_runtime.inspect.reading.words import plural, size
from sdm_runtime.inspect.report.byte_map import byte_maps
from sdm_runtime.inspect.report.diagram import chain_diagram
from sdm_runtime.inspect.report.markup import Markup, element, join
from sdm_runtime.inspect.report.parameters import plan_section
from sdm_runtime.inspect.report.time_chart import time_section
from sdm_runtime.inspect.verify import Finding

_FOLDER = Path(__file__).parent


def render(chain: ChainModel, title: str, findings: list[Finding], trace: Trace | None) -> str:
    """The page's text."""
    launches_a_step = sum(not plan.empty for plan in chain.plans)
    timeline = ""
    if trace is not None:
        timeline = element(
            "section", element("h2", "Timeline"), time_section(trace, launches_a_step)
        )
    plans = [plan_section(plan, index) for index, plan in enumerate(chain.plans)]
    body = join(
        _masthead(chain, title),
        element("section", element("h2", "Checks"), _findings(findings)),
        element("section", element("h2", "One step"), chain_diagram(chain)),
        timeline,
        element("section", element("h2", "Plans"), _step_control(chain), *plans),
        element("section", element("h2", "Bytes"), byte_maps(chain), class_="byte-section"),
    )
    template = Template((_FOLDER / "page.html").read_text())
    return template.substitute(
        title=element("title", f"{title} - sdm-plan"),
        style=(_FOLDER / "page.css").read_text(),
        body=body,
        script=(_FOLDER / "page.js").read_text(),
    )


def _masthead(chain: ChainModel, title: str) -> Markup:
    traffic = step_traffic(chain)
    tiles = [
        (str(chain.steps), "step" if chain.steps == 1 else "steps"),
        (str(len(chain.plans)), "launch a step" if len(chain.plans) == 1 else "launches a step"),
        (f"{chain.launches:,}", "launches"),
        (word(chain.backend), "backend"),
        (size(traffic.read), "read a step"),
        (size(traffic.written), "written a step"),
    ]
    note: object = ""
    if traffic.anywhere:
        names = ", ".join(traffic.anywhere)
        note = element(
            "p",
            f"Steps also touch any part of {names}: at most {size(traffic.read_anywhere)} read "
            f"and {size(traffic.written_anywhere)} written.",
            class_="quiet",
        )
    return element(
        "header",
        element("p", chain.kind, class_="eyebrow"),
        element("h1", title),
        element(
            "div",
            *(element("div", element("b", value), element("span", name)) for value, name in tiles),
            class_="tiles",
        ),
        note,
    )


def _findings(findings: list[Finding]) -> Markup:
    if not findings:
        return element("p", element("span", "ok", class_="badge ok"), "Every check passes.")
    items = []
    for finding in findings:
        where = "" if finding.plan is None else f"plan {finding.plan} ({finding.kernel}): "
        byte = "" if finding.byte is None else f" (byte {finding.byte})"
        items.append(
            element(
                "li",
                element("span", finding.level, class_=f"badge {finding.level}"),
                element("span", element("b", f"{finding.check}: "), where, finding.message, byte),
            )
        )
    return element("ul", *items, class_="findings")


def _step_control(chain: ChainModel) -> Markup:
    """A slider that moves the shares; without scripts the last step is shown."""
    last = chain.steps - 1
    label = element("label", "Shares of step ", element("output", last, id="step-value"))
    slider = element(
        "input", type="range", id="step", min=0, max=last, value=last, aria_label="step"
    )
    count = element(
        "span", f"of {plural(chain.steps, 'step')}, run {chain.run_text}", class_="quiet"
    )
    return element("p", label, slider, count, class_="step-control")
