"""Says at a run's end how long it took, how many tests ran, and why this machine ran no others."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from time import perf_counter
from typing import Any

import pytest

BEGIN = pytest.StashKey[float]()
RAN = ("passed", "failed", "error", "xfailed", "xpassed")


@pytest.hookimpl(tryfirst=True)
def pytest_sessionstart(session: pytest.Session) -> None:
    session.config.stash[BEGIN] = perf_counter()


@pytest.hookimpl(trylast=True)  # other plugins' summaries take seconds as well
def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    stats = terminalreporter.stats
    seconds = perf_counter() - terminalreporter.config.stash[BEGIN]
    terminalreporter.section("what ran")
    for line in lines(seconds, stats):
        terminalreporter.write_line(line)


def lines(seconds: float, stats: Mapping[str, Sequence[Any]]) -> list[str]:
    """One line of what ran, and one of what did not where there is such; a skipped test is none
    that ran. ``stats``: pytest's reports by their outcome."""
    tests = {report.nodeid for name in RAN for report in stats.get(name, ()) if is_of_test(report)}
    minutes, rest = divmod(round(seconds), 60)
    found = [f"{counted(len(tests), 'test')} ran, in {minutes} min {rest} s"]
    skipped = stats.get("skipped", ())
    if skipped:
        reasons = Counter(reason_of(report) for report in skipped if is_of_test(report))
        files = Counter(reason_of(report) for report in skipped if not is_of_test(report))
        each = [f"{reason}: {count}" for reason, count in reasons.most_common()]
        each += [f"{reason}: {counted(count, 'whole file')}" for reason, count in files.items()]
        total = counted(reasons.total(), "test")
        found.append(f"{total} cannot run here (-rs lists them): {'; '.join(each)}")
    return found


def is_of_test(report: pytest.CollectReport | pytest.TestReport) -> bool:
    """Whether it is of one test; a file that is skipped while it loads has one for all of them."""
    return isinstance(report, pytest.TestReport)


def reason_of(report: pytest.CollectReport | pytest.TestReport) -> str:
    """Why it was skipped."""
    assert isinstance(report.longrepr, tuple), report.longrepr
    return str(report.longrepr[2]).removeprefix("Skipped: ")


def counted(count: int, what: str) -> str:
    return f"{count} {what}" if count == 1 else f"{count} {what}s"
