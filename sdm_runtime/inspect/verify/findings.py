"""One finding: what, where, and how sure."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from sdm_runtime.inspect.reading.model import PlanModel

ERROR = "error"  # the executor refuses it, or it gives wrong numbers
WARNING = "warning"  # it runs, but not as well as it could
UNKNOWN = "unknown"  # a check that needs something that is not here


@dataclass(frozen=True)
class Finding:
    """Something that a check found."""

    level: str
    check: str  # the check's name: "extent", "pdl", ..
    message: str
    plan: int | None = None  # index in the chain
    kernel: str | None = None
    subject: str | None = None  # the field or operand
    step: int | None = None  # the first step at which it shows
    byte: int | None = None  # the byte of the file that says so

    def as_data(self) -> dict[str, Any]:
        """For JSON."""
        return asdict(self)


@dataclass(frozen=True)
class Place:
    """A plan of a chain, for the findings about it."""

    index: int
    plan: PlanModel

    def error(self, check: str, message: str, **where: Any) -> Finding:
        """An error in this plan."""
        return self._finding(ERROR, check, message, **where)

    def warning(self, check: str, message: str, **where: Any) -> Finding:
        """A warning about this plan."""
        return self._finding(WARNING, check, message, **where)

    def unknown(self, check: str, message: str, **where: Any) -> Finding:
        """A check of this plan that cannot be made here."""
        return self._finding(UNKNOWN, check, message, **where)

    def _finding(self, level: str, check: str, message: str, **where: Any) -> Finding:
        where.setdefault("byte", self.plan.at)
        return Finding(level, check, message, plan=self.index, kernel=self.plan.kernel, **where)
