"""Which plans of two chains stand for each other."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

# Plans without a partner in a row of steps for which the best pairing is looked for: chains that
# differ by fewer are paired as well as can be. The time grows with this times the plans.
_MOST_ALONE = 32


class _Run(NamedTuple):
    """Equal names from a[i] and b[j] on, and the run before it."""

    i: int
    j: int
    length: int
    before: _Run | None


class _End(NamedTuple):
    """How far a way through both has come: all before a[i] and b[j]."""

    i: int
    j: int
    run: _Run | None


def pair_in_order(a: Sequence[str], b: Sequence[str]) -> list[tuple[int, int]]:
    """Pairs ``(i, j)`` with ``a[i] == b[j]``, both ascending, with few left over on either side.

    After "An O(ND) Difference Algorithm and Its Variations" (Myers, 1986), in pieces: the search
    starts anew from the furthest point where too many are left over.
    """
    pairs: list[tuple[int, int]] = []
    at = _End(0, 0, None)
    while at.i < len(a) and at.j < len(b):
        at = _furthest(a, b, at.i, at.j)
        pairs += [
            (run.i + n, run.j + n) for run in reversed([*_runs(at.run)]) for n in range(run.length)
        ]
    return pairs


def _runs(run: _Run | None) -> Iterator[_Run]:
    while run is not None:
        yield run
        run = run.before


def _furthest(a: Sequence[str], b: Sequence[str], i: int, j: int) -> _End:
    """From a[i] and b[j] to both ends, or as far as with so many left over as may be."""
    ends = {0: _along(a, b, _End(i, j, None))}  # by how much further it is in a than in b
    for alone in range(1, _MOST_ALONE + 1):
        for lead in range(-alone, alone + 1, 2):
            ways = []
            if (end := ends.get(lead - 1)) and end.i < len(a):
                ways.append(end._replace(i=end.i + 1))
            if (end := ends.get(lead + 1)) and end.j < len(b):
                ways.append(end._replace(j=end.j + 1))
            if ways:
                ends[lead] = _along(a, b, max(ways, key=lambda way: way.i))
        if any(end.i == len(a) and end.j == len(b) for end in ends.values()):
            break
    return max(ends.values(), key=lambda end: (end.i + end.j, -abs(end.i - i - end.j + j)))


def _along(a: Sequence[str], b: Sequence[str], end: _End) -> _End:
    """The way, as far on as the names are equal."""
    i, j, run = end
    length = 0
    while i + length < len(a) and j + length < len(b) and a[i + length] == b[j + length]:
        length += 1
    return _End(i + length, j + length, _Run(i, j, length, run)) if length else end
