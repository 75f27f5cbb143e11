"""What this build's executor says of the file, where there is one."""

from __future__ import annotations

from collections.abc import Iterator

from sdm_runtime.errors import PlanError
from sdm_runtime.inspect.reading.model import ChainModel
from sdm_runtime.inspect.verify.findings import ERROR, UNKNOWN, Finding


def check_executor(chain: ChainModel) -> Iterator[Finding]:
    """The core decodes it: the kernel is registered, laid out so, and stays in its operands."""
    try:
        from sdm_runtime import _core
    except ImportError:
        message = "the extension is not here: kernels and their layouts were not compared"
        yield Finding(UNKNOWN, "executor", message)
        return
    try:
        if chain.kind == "chain":
            _core.decode_chain(chain.data)
        else:
            _core.Plan.decode(chain.data)
    except PlanError as error:
        yield Finding(ERROR, "executor", f"this build refuses it: {error}")
