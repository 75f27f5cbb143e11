"""Rooms of a package, or of a folder of sources, in ranks."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple


class Rooms(NamedTuple):
    """Each room may use those of the ranks before its own.

    ``whole`` is the package's name or the folder's path, and names of its parts follow it behind
    ``separator``.
    """

    whole: str
    separator: str
    ranks: tuple[tuple[str, ...], ...]

    def rank_of(self, room: str) -> int:
        """The place of a room's rank; a room that is in none, or in two, is an error."""
        (rank,) = (at for at, rooms in enumerate(self.ranks) if room in rooms)
        return rank

    def room_of(self, name: str) -> str | None:
        """The room of a module or file; None outside the whole, and for the whole itself."""
        start = self.whole + self.separator
        return name[len(start) :].split(self.separator)[0] if name.startswith(start) else None

    def rooms_of(self, names: Iterable[str]) -> set[str]:
        """The rooms that these modules or files are in."""
        return {room for name in names if (room := self.room_of(name)) is not None}

    def violations(self, uses: Mapping[str, Iterable[str]]) -> list[str]:
        """What uses a room of its own rank or of a later one."""
        found = []
        for name, targets in uses.items():
            here = self.room_of(name)
            for target in sorted(targets):
                there = self.room_of(target)
                if here is None or there in (None, here):
                    continue
                if self.rank_of(there) >= self.rank_of(here):
                    found.append(f"{name} uses {target}: {here} knows no {there}")
        return found

    def forbidden_steps(self) -> Iterator[tuple[str, str]]:
        """Pairs of rooms, the first of which must not use the second: one rank up, or beside it."""
        for rank, above in zip(self.ranks, (*self.ranks[1:], ()), strict=True):
            for room in rank:
                yield from ((room, other) for other in (*rank, *above) if other != room)
