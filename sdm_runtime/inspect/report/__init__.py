"""``sdm-plan report``: a chain as a page for people who would rather look than read."""

from __future__ import annotations

import os
from pathlib import Path

from sdm_runtime.inspect.timeline import Trace, load_trace

__all__ = ["write_report"]


def write_report(
    chain_path: str | os.PathLike[str],
    out_path: str | os.PathLike[str],
    trace: str | os.PathLike[str] | Trace | None = None,
) -> None:
    """Write one self-contained HTML page about a plan or chain file.

    Args:
        chain_path: A plan or chain file.
        out_path: The page to write; its folder must exist.
        trace: Kernel times from :func:`sdm_runtime.inspect.trace`, or the file they are in.

    Raises:
        FileError: ``chain_path`` is no plan or chain.
        ValueError: ``trace`` is no trace.
        OSError: A file cannot be read or written.
    """
    from sdm_runtime.inspect.files import load
    from sdm_runtime.inspect.report.page import render
    from sdm_runtime.inspect.verify import verify
    from sdm_runtime.inspect.verify.device import load_facts

    chain = load(chain_path)
    times = trace if trace is None or isinstance(trace, Trace) else load_trace(trace)
    findings = verify(chain, facts=load_facts())
    page = render(chain, Path(chain_path).name, findings, times)
    Path(out_path).write_text(page, encoding="utf-8")
