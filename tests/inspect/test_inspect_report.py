"""The page: complete, self-contained, well-formed, and right after its script has run."""

import html.parser
import re
import shutil
import subprocess
from itertools import pairwise

import inspect_cases as cases
import pytest
from plan_cases import ORDER

from sdm_runtime.inspect import FileError, write_report
from sdm_runtime.inspect.reading.timeline import (
    KernelTime,
    Trace,
    load_trace,
    make_trace,
    overlap,
    times_by_name,
)
from sdm_runtime.inspect.report.markup import element, join
from sdm_runtime.inspect.report.time_chart import time_section

VOID = {"meta", "input", "br", "link"}


class Page(html.parser.HTMLParser):
    """Checks nesting; collects tags, ids, attributes and text."""

    def __init__(self, text: str):
        super().__init__()
        self.open: list[str] = []
        self.tags: list[tuple[str, dict]] = []
        self.text: list[str] = []
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag):
        if tag not in VOID:
            assert self.open.pop() == tag

    def handle_data(self, data):
        self.text.append(data)


def five_steps() -> Trace:
    """Twenty kernels of ten microseconds, each a microsecond into the one ahead."""
    return make_trace("cuda", [KernelTime(ORDER[i % 4], 100 + 9.0 * i, 10.0) for i in range(20)])


@pytest.fixture
def page(tmp_path):
    (tmp_path / "chain.sdmchain").write_bytes(cases.cuda_file())
    write_report(tmp_path / "chain.sdmchain", tmp_path / "report.html", trace=five_steps())
    return (tmp_path / "report.html").read_text()


def test_the_page_is_well_formed_and_complete(page):
    parsed = Page(page)
    text = "".join(parsed.text)
    for said in ("chain.sdmchain", "Checks", "One step", "Timeline", "Plans", "Bytes", *ORDER):
        assert said in text
    ids = [attrs["id"] for _, attrs in parsed.tags if "id" in attrs]
    assert len(ids) == len(set(ids))
    links = {attrs["href"][1:] for tag, attrs in parsed.tags if tag == "a"}
    assert links == {f"plan-{i}" for i in range(4)} <= set(ids)


def test_nothing_is_loaded_from_outside(page):
    parsed = Page(page)
    for tag, attrs in parsed.tags:
        assert tag not in ("link", "img", "iframe", "object", "embed")
        assert "src" not in attrs
        assert attrs.get("href", "#").startswith("#")
        assert attrs.get("marker-end", "url(#head)") == "url(#head)"
    assert not re.search(r"https?:|//\w|@import|url\((?!#)", re.sub(r"(?m)^\s*//.*$", "", page))


def test_every_operand_field_and_byte_is_there(page):
    from sdm_runtime.inspect import decode

    model = decode(cases.cuda_file())
    for plan in model.plans:
        for operand in plan.operands:
            assert f">{operand.name}<" in page
        for field in plan.fields:
            assert f">{field.name}<" in page
    rects = re.findall(r'<g class="g-(\w+)', page)
    assert set(rects) == {"header", "entries", "fields", "patches", "relocations", "parameters"}


def test_names_are_escaped(tmp_path):
    path = tmp_path / "<b>&chain.sdm"
    path.write_bytes(cases.host_file())
    write_report(path, tmp_path / "report.html")
    page = (tmp_path / "report.html").read_text()
    assert "<b>&chain" not in page
    assert "&lt;b&gt;&amp;chain.sdm" in page
    assert element("p", "<x>", title='"') == '<p title="&quot;">&lt;x&gt;</p>'
    assert join("<", element("b", 1)) == "&lt;<b>1</b>"


def test_without_a_trace_there_is_no_timeline(tmp_path):
    (tmp_path / "plan").write_bytes(cases.host_plans()[cases.PA2])
    write_report(tmp_path / "plan", tmp_path / "report.html")
    assert "Timeline" not in (tmp_path / "report.html").read_text()


def test_faults_are_on_the_page(tmp_path):
    wrong = cases.edited_patch(cases.host_plans()[1], base=1, highest=5)
    (tmp_path / "chain").write_bytes(cases.with_plan(cases.host_plans(), 1, wrong))
    write_report(tmp_path / "chain", tmp_path / "report.html")
    assert "step 4 alone of 5 leaves" in (tmp_path / "report.html").read_text()


def test_a_damaged_chain_or_trace_writes_nothing(tmp_path):
    (tmp_path / "chain").write_bytes(cases.host_file()[:-1])
    with pytest.raises(FileError):
        write_report(tmp_path / "chain", tmp_path / "report.html")
    (tmp_path / "good").write_bytes(cases.host_file())
    (tmp_path / "trace").write_text("{}")
    with pytest.raises(ValueError, match="not a trace"):
        write_report(tmp_path / "good", tmp_path / "report.html", trace=tmp_path / "trace")
    assert not (tmp_path / "report.html").exists()


def test_a_trace_survives_its_file(tmp_path):
    trace = five_steps()
    trace.save(tmp_path / "trace.json")
    assert load_trace(tmp_path / "trace.json") == trace
    assert trace.kernels[0].start_us == 0
    assert trace.span_us == pytest.approx(19 * 9 + 10)


@pytest.mark.parametrize(
    "content",
    [
        "",
        "[]",
        '{"format": "sdm-trace", "version": 2, "source": "cuda", "kernels": []}',
        '{"format": "sdm-trace", "version": 1, "source": "cuda", "kernels": [{"name": "k"}]}',
        '{"format": "sdm-trace", "version": 1, "source": "c", "kernels": '
        '[{"name": "k", "start_us": NaN, "duration_us": 1, "stream": 0}]}',
    ],
)
def test_what_is_no_trace(tmp_path, content):
    (tmp_path / "trace").write_text(content)
    with pytest.raises(ValueError, match="not a trace"):
        load_trace(tmp_path / "trace")


def test_times_and_overlap():
    trace = five_steps()
    times = times_by_name(trace)
    assert {(t.name, t.count, t.total, t.middle) for t in times} == {
        (name, 5, 50.0, 10.0) for name in ORDER
    }
    follow = overlap(trace)
    assert (follow.pairs, follow.early) == (19, 19)
    assert follow.shared_us == pytest.approx(19)
    assert follow.idle_us == 0
    apart = make_trace("cuda", [KernelTime("k", 12.0 * i, 10.0) for i in range(5)])
    assert [overlap(apart).early, overlap(apart).idle_us] == pytest.approx([0, 8])


def test_following_at_once_is_no_overlap():
    # 0.1 us each: end and next start differ by a rounding.
    ticks = make_trace("host", [KernelTime("k", i / 10, 0.1) for i in range(1000)])
    assert any(b.start_us < a.end_us for a, b in pairwise(ticks.kernels))
    assert overlap(ticks).early == 0
    assert (
        overlap(make_trace("host", [KernelTime("k", i / 10, 0.102) for i in range(9)])).early == 8
    )


@pytest.mark.parametrize(
    ("span_us", "last"), [(12.5, "12.5 us"), (999.5, "999.5 us"), (513_438.5, "513.4 ms")]
)
def test_the_axis_has_readable_numbers(span_us, last):
    section = str(time_section(make_trace("host", [KernelTime("k", 0.0, span_us)]), 1))
    assert f">{last}</text>" in section
    assert "e+" not in section


def test_a_long_trace_stays_small():
    many = make_trace("cuda", [KernelTime(ORDER[i % 4], float(i), 1.0) for i in range(100_000)])
    section = time_section(many, 4)
    assert len(section) < 3_000_000
    assert time_section(Trace("cuda", ()), 4).startswith("<p")


@pytest.mark.slow
def test_the_script_moves_shares_and_numbers(page, tmp_path):
    """In a real browser: the slider goes to step 1."""
    browser = shutil.which("chromium") or shutil.which("google-chrome")
    if not browser:
        pytest.skip("no chromium")
    move = "slider.value = 1; slider.dispatchEvent(new Event('input'));"
    (tmp_path / "moved.html").write_text(page.replace("</script>", f"{move}</script>"))
    options = ["--headless", "--no-sandbox", "--disable-gpu", "--dump-dom"]
    done = subprocess.run(
        [browser, *options, f"--user-data-dir={tmp_path / 'profile'}",
         (tmp_path / "moved.html").as_uri()],
        capture_output=True, text=True, check=True, timeout=120,
    )  # fmt: skip
    assert "2,048 .. 4,096" in done.stdout  # d_u's share of step 1
    assert 'id="step-value">1</output>' in done.stdout
    assert re.search(r'<b data-base="0" data-stride="1"[^>]*>1</b>', done.stdout)
