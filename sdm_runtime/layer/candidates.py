"""Which combinations of ranked factor entries can be among the best k slots.

Each factor's columns are ranked: by value, equal values by column, the larger the better. Position
0 is the best column. A slot is one position per factor, and slots are ordered by

    1. the float32 sum of the factor scores,
    2. the rank sum, where the better column has the larger rank,
    3. the rank in the first factor, then in the second, and so on.

**Only few slots matter.** Let slot a have, in every factor, a position no worse than slot b's and
differ from b. Rounding is monotone, so the sum of a is no smaller than the sum of b, also through
+-0, infinities and NaN (read as -inf); and the rank sum of a is strictly larger. So a comes before
b. A slot at positions (i_0, .., i_{F-1}) comes after all of the (i_0+1)*..*(i_{F-1}+1) - 1 slots
with no worse positions, hence is among the best k only if that product is at most k. In
particular i_f < k: the best k columns of each factor suffice. For two factors and k = 64 this
leaves 280 of the 4096 pairs of such columns, whatever the number of slots.

Equal sums are ordered by positions alone, so the order of this table decides them once and for all.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Iterator, Sequence

import torch
from torch import Tensor

from sdm_runtime.tensor.refs import capturing
from sdm_runtime.tensor.untraced import untraced


@dataclasses.dataclass(frozen=True)
class PaddedSums:
    """A fixed sum of candidates per position of one factor, as gathers of equal length.

    `groups` are int64 [positions, terms] tables of candidate numbers, for ascending positions;
    the number of candidates stands for "no term".
    """

    groups: tuple[Tensor, ...]


@dataclasses.dataclass(frozen=True)
class CandidateTable:
    """The candidates for the best k slots, best first among equal sums.

    Attributes:
        k: slots to select.
        kept: columns that matter per factor, min(k, width).
        positions: int64 [M] per factor: the candidate's position in the factor's ranking.
        sums: per factor, which candidates use each position (for the gradient).
        packed: uint8 [M, F], the positions as the kernels take them (of k up to 256).
    """

    k: int
    kept: tuple[int, ...]
    positions: tuple[Tensor, ...]
    sums: tuple[PaddedSums, ...]
    packed: Tensor = dataclasses.field(init=False)

    def __post_init__(self) -> None:
        """Pack the positions."""
        packed = torch.stack(self.positions, -1).to(torch.uint8)
        object.__setattr__(self, "packed", packed)

    @property
    def count(self) -> int:
        """Number of candidates M."""
        return self.positions[0].numel()


class CandidateTables:
    """The table for factor widths `dims` and the best `k` slots, in numbers and on devices.

    The numbers are the truth, the tensors made from them where they are first asked for. They are
    not buffers of a module: those are garbage after `to_empty`, and left on meta by a load. A layer
    holds the object so that a compiled graph finds its tensors there.
    """

    def __init__(self, dims: tuple[int, ...], k: int) -> None:
        """Count out the candidates."""
        self._made_of = dims, k
        self._kept = tuple(min(k, width) for width in dims)
        # Larger rank = smaller position: the smallest position sum, then the smallest positions.
        rows = sorted(_bounded_positions(self._kept, k), key=lambda row: (sum(row), row))
        self._positions = [list(column) for column in zip(*rows, strict=True)]
        self._sums = [_padded_sums(c, n) for c, n in zip(self._positions, self._kept, strict=True)]
        self._by_device: dict[torch.device, CandidateTable] = {}

    @property
    def count(self) -> int:
        """Number of candidates M."""
        return len(self._positions[0])

    @property
    def k(self) -> int:
        """Slots to select."""
        return self._made_of[1]

    def on(self, device: torch.device) -> CandidateTable:
        """The table on a device.

        Raises:
            RuntimeError: the first call for a CUDA device is inside a graph capture, where the copy
                to the device is not possible.
        """
        table = self._by_device.get(device)
        return self._make(device) if table is None or _in_fake_mode() else table

    def __reduce__(self) -> tuple[Callable[..., CandidateTables], tuple[object, ...]]:
        """Copies and pickles are what the same sizes give; nothing ever writes a table."""
        return candidate_tables, self._made_of

    @untraced
    def _make(self, device: torch.device) -> CandidateTable:
        dims, k = self._made_of
        if device.type == "cuda" and capturing(device):
            raise RuntimeError(
                f"[product_keys] the table for {dims}, k = {k} is not on {device} yet: "
                "run the layer once before the graph capture"
            )
        with torch.inference_mode(False):  # training will use what decoding has made
            table = CandidateTable(
                k=k,
                kept=self._kept,
                positions=tuple(torch.tensor(column, device=device) for column in self._positions),
                sums=tuple(
                    PaddedSums(tuple(torch.tensor(group, device=device) for group in groups))
                    for groups in self._sums
                ),
            )
        if not is_memory(table.positions[0]):
            return table
        # Another thread may have been here meanwhile: a chain or a graph reads what it was given.
        return self._by_device.setdefault(device, table)


@functools.lru_cache(maxsize=128)
def candidate_tables(dims: tuple[int, ...], k: int) -> CandidateTables:
    """The tables for these sizes, shared by all layers that have them.

    Whoever reads them later than in this call holds the object: a table that only the cache knows
    goes with the many other sizes that come after it.
    """
    return CandidateTables(dims, k)


def _in_fake_mode() -> bool:
    """Whether a fake mode runs, which need not take real tables; one of a compilation does."""
    if torch.compiler.is_compiling():
        return False
    return torch._C._get_dispatch_mode(torch._C._TorchDispatchModeKey.FAKE) is not None


def is_memory(made: Tensor) -> bool:
    """Whether a tensor has memory of its own: under a mode or a transform it lives for one call."""
    return (
        type(made) is Tensor
        and not made.is_meta
        and not torch._is_functional_tensor(made)
        and not torch._C._functorch.is_functorch_wrapped_tensor(made)
    )


def _bounded_positions(kept: Sequence[int], bound: int) -> Iterator[tuple[int, ...]]:
    """Every tuple with i_f < kept[f] and the product of all i_f + 1 at most `bound`."""
    if not kept:
        yield ()
        return
    for position in range(min(kept[0], bound)):
        for rest in _bounded_positions(kept[1:], bound // (position + 1)):
            yield (position, *rest)


def _padded_sums(column: Sequence[int], kept: int) -> list[list[list[int]]]:
    """Group positions with similar numbers of candidates; each group is padded to its longest.

    A later position never has more candidates than an earlier one, and a group ends where the
    number falls below half, so that at most half of a table is padding.
    """
    users: list[list[int]] = [[] for _ in range(kept)]
    for candidate, position in enumerate(column):
        users[position].append(candidate)
    groups = []
    start = 0
    while start < kept:
        terms = len(users[start])
        stop = next((i for i in range(start, kept) if 2 * len(users[i]) < terms), kept)
        groups.append([u + [len(column)] * (terms - len(u)) for u in users[start:stop]])
        start = stop
    return groups
