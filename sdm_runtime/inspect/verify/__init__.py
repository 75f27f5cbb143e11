"""``sdm-plan verify``: what is wrong with a file, or may be."""

from sdm_runtime.inspect.verify.findings import ERROR, UNKNOWN, WARNING, Finding
from sdm_runtime.inspect.verify.run import verify

__all__ = ["ERROR", "UNKNOWN", "WARNING", "Finding", "verify"]
