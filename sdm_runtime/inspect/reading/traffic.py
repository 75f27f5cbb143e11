"""How many bytes one step touches, as far as the plans say it."""

from __future__ import annotations

from dataclasses import dataclass

from sdm_runtime.inspect.reading.model import ChainModel


@dataclass(frozen=True)
class StepTraffic:
    """Bytes of one step: of operands with a share per step exactly, of the others at most."""

    read: int
    written: int
    read_anywhere: int
    written_anywhere: int
    anywhere: tuple[str, ...]  # the operands of which any step may touch any part

    def as_data(self) -> dict[str, int | list[str]]:
        """For JSON."""
        return {
            "read": self.read,
            "written": self.written,
            "read_anywhere_at_most": self.read_anywhere,
            "written_anywhere_at_most": self.written_anywhere,
            "anywhere": list(self.anywhere),
        }


def step_traffic(chain: ChainModel) -> StepTraffic:
    """Every launch's operands added up: an operand that two launches read counts twice."""
    operands = [operand for plan in chain.plans if not plan.empty for operand in plan.operands]
    shares = [operand for operand in operands if operand.shared_out]
    whole = [operand for operand in operands if not operand.shared_out]
    return StepTraffic(
        read=sum(operand.step_bytes for operand in shares if operand.reads),
        written=sum(operand.step_bytes for operand in shares if operand.writes),
        read_anywhere=sum(operand.extent for operand in whole if operand.reads),
        written_anywhere=sum(operand.extent for operand in whole if operand.writes),
        anywhere=tuple(dict.fromkeys(operand.name for operand in whole)),
    )
