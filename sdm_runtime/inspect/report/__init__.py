"""``sdm-plan report``: a chain as a page for people who would rather look than read."""

from __future__ import annotations

import os

from sdm_runtime.files.reading import Source, source_name
from sdm_runtime.files.writing import write_file
from sdm_runtime.inspect.reading.timeline import Trace, load_trace

__all__ = ["write_report"]


def write_report(
    chain_path: Source,
    out_path: str | os.PathLike[str],
    trace: Source | Trace | None = None,
) -> int:
    """Write one self-contained HTML page about a plan or chain file.

    Args:
        chain_path: A plan or chain file, or a pipe; a path or an open descriptor.
        out_path: The page to write, in UTF-8; its folder must exist. It is replaced in one piece
            or not at all.
        trace: Kernel times from :func:`sdm_runtime.inspect.trace`, or the file they are in.

    Returns:
        The page's size, bytes.

    Raises:
        FileError: ``chain_path`` is not a plan or chain.
        ValueError: ``trace`` is not a trace, or ``out_path`` is one of the files that are read.
        OSError: A file cannot be read or written.
    """
    from sdm_runtime.inspect.reading.files import load
    from sdm_runtime.inspect.report.page import render
    from sdm_runtime.inspect.verify import verify
    from sdm_runtime.inspect.verify.device import load_facts

    chain = load(chain_path)
    times = trace if trace is None or isinstance(trace, Trace) else load_trace(trace)
    findings = verify(chain, facts=load_facts())
    text = render(chain, _title(chain_path), findings, times)
    # A name in a trace may hold what no encoding has: it stays visible.
    page = text.encode("utf-8", errors="backslashreplace")
    files = [chain_path] if trace is None or isinstance(trace, Trace) else [chain_path, trace]
    write_file(out_path, page, inputs=files)
    return len(page)


def _title(source: Source) -> str:
    """A file's own name as text; its bytes may not be UTF-8."""
    name = os.path.basename(source_name(source))
    return os.fsencode(name).decode("utf-8", errors="backslashreplace")
