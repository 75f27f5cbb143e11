"""Which calls have advanced parts of a storage, and may still restore them: a stack of them.

A call can be undone while nothing else has written its rows since, except for calls that have been
undone in turn. Torch's version counter says whether others wrote; which rows a call wrote is known
here, so that calls on parts of one storage do not stand in each other's way.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Protocol
from weakref import WeakSet, WeakValueDictionary, ref

from torch import Tensor

from sdm_runtime.ops.call.broken_banks import note_own_write
from sdm_runtime.ops.call.versions import set_version, take_new_version
from sdm_runtime.tensor.storages import Span, overlap, span_of, storage_key


class Writer(Protocol):
    """A call or a backward."""


class Advance(Writer, Protocol):
    """A call that has advanced its bank, as the stack knows it."""

    @property
    def bank(self) -> Tensor:
        """An alias of the caller's."""

    def written_by_others(self) -> None:
        """Something else has written what the call would restore: it cannot any more."""


class _Entry:
    """A call in the stack."""

    __slots__ = ("advance", "before", "rounded", "span")

    def __init__(self, advance: Advance, before: int | None) -> None:
        self.advance = ref(advance)
        self.span = span_of(advance.bank)
        # The version of the contents below the call; None where no version had these.
        self.before = before
        self.rounded = False  # a later call was restored from rounded rows: no bits of the call's


class BankHistory:
    """The stack of one storage, oldest call first. Used under :func:`history_lock`.

    It lives as long as a call that may be undone, which holds it and the storage. An interrupt may
    fall into any of this: whoever ends, ends again without harm, and is forgotten when it is gone.
    """

    def __init__(self) -> None:
        """Nothing is advanced."""
        self._entries: list[_Entry] = []
        # Aliases of the storage with version counters of their own (`x.data` has another one than
        # x), and what ours have left there; none where nothing is advanced.
        self._counters: list[tuple[Tensor, int]] = []
        # Calls and backwards that write just now, on any thread.
        self._writing: WeakSet[Writer] = WeakSet()
        self._changes = 0

    def begin(self, writer: Writer) -> int:
        """Before a call or a backward writes. Returns what `advanced` and `undone` take."""
        self.look()
        self._writing.add(writer)
        return self._changes

    def look(self) -> None:
        """Find out what others have written or dropped since."""
        if not self._writing:
            for x, seen in self._counters:
                if x._version != seen:
                    self._written_by_others()
                    return
        for entry in self._entries:
            if entry.advance() is None:
                self._drop_dead()
                return

    def unchanged(self, writer: Writer) -> None:
        """After a backward that has left every bit as the call did: the versions follow."""
        self._writing.discard(writer)
        if self._writing:
            return
        for x, seen in self._counters:
            if x._version != seen:
                set_version(x, seen)

    def kept(self, advance: Advance) -> None:
        """After a backward that has made the call's rows again, to the bit."""
        place = self._place(advance)
        if place is None or self._entries[place].rounded:
            take_new_version(advance.bank)
            self._note(advance, advance.bank)
        else:
            self.unchanged(advance)

    def advanced(self, advance: Advance, before: int, began: int) -> None:
        """A call has ended that began at version `before`: it may be undone from now on."""
        known = before if began == self._changes else None
        self._entries.append(_Entry(advance, known))
        take_new_version(advance.bank)
        self._note(advance, advance.bank)

    def undone(self, advance: Advance, before: int, began: int, *, repeated: bool) -> None:
        """A call has failed that began at version `before`: the rows are what they were."""
        place = self._place(advance)
        if place is not None:
            del self._entries[place]
        if self._changes - began <= (place is not None):  # nobody else has come in between
            set_version(advance.bank, before)
        else:
            take_new_version(advance.bank)
        if repeated:
            self._overwrite(span_of(advance.bank), self._entries)
        self._note(advance, advance.bank)

    def written(self, writer: Writer, bank: Tensor) -> None:
        """A call has ended that nothing undoes."""
        self._overwrite(span_of(bank), self._entries)
        take_new_version(bank)
        self._note(writer, bank)

    def restored(self, advance: Advance, *, exact: bool) -> None:
        """A call's backward has ended; exact: its rows have their old bits."""
        place = self._place(advance)
        version = None
        if place is None:  # another thread has written its rows meanwhile
            self._forget_versions(self._entries)
        else:
            entry = self._entries.pop(place)
            above = self._entries[place:]
            if not exact:
                self._forget_versions(self._entries)
                for below in self._entries[:place]:
                    below.rounded = True
            elif above:  # on other rows: what lies below them has changed
                above[0].before = entry.before
                self._forget_versions(above[1:])
            else:
                version = entry.before
        if version is None:
            take_new_version(advance.bank)
        else:
            set_version(advance.bank, version)
        self._note(advance, advance.bank)

    def later(self, advance: Advance) -> bool:
        """Whether a later call has advanced some of this one's rows."""
        place = self._place(advance)
        if place is None or place == len(self._entries) - 1:
            return False
        span = self._entries[place].span
        return any(overlap(span, entry.span) for entry in self._entries[place + 1 :])

    def meets(self, bank: Tensor, holds: Callable[[Advance], bool]) -> bool:
        """Whether a call that has advanced rows of the bank fulfils a condition."""
        span = span_of(bank)
        calls = (e.advance() for e in self._entries if overlap(e.span, span))
        return any(call is not None and holds(call) for call in calls)

    def _place(self, advance: Advance) -> int | None:
        """Where a call stands; usually on top."""
        for place in range(len(self._entries) - 1, -1, -1):
            if self._entries[place].advance() is advance:
                return place
        return None

    def _written_by_others(self) -> None:
        """Nobody knows which rows."""
        for entry in self._entries:
            if (advance := entry.advance()) is not None:
                advance.written_by_others()
        self._entries.clear()
        self._counters.clear()

    def _drop_dead(self) -> None:
        """Calls that nobody can undo any more have written their rows for good."""
        for entry in [e for e in self._entries if e.advance() is None]:
            if entry in self._entries:
                place = self._entries.index(entry)
                below = self._entries[:place]
                del self._entries[place]
                self._overwrite(entry.span, below)

    def _overwrite(self, span: Span, entries: list[_Entry]) -> None:
        """Of these calls, oldest first, the rows were written within the span, for good.

        A call that cannot be undone any more has in turn written its rows for good.
        """
        spans = [span]
        for entry in reversed(entries):
            if any(overlap(entry.span, lost) for lost in spans):
                spans.append(entry.span)
                if (advance := entry.advance()) is not None:
                    advance.written_by_others()
                self._entries = [e for e in self._entries if e is not entry]
            else:
                entry.before = None

    @staticmethod
    def _forget_versions(entries: list[_Entry]) -> None:
        for entry in entries:
            entry.before = None

    def _note(self, writer: Writer, bank: Tensor) -> None:
        """Ours have written through the bank, which has a new version."""
        self._writing.discard(writer)
        self._changes += 1
        version = bank._version
        if not self._entries:
            self._counters = []
        elif len(self._counters) > 8 + len(self._entries):  # of calls that are long over
            live = [call.bank for e in self._entries if (call := e.advance()) is not None]
            self._counters = [(x, x._version) for x in live]
        else:
            self._counters = [(x, x._version) for x, _ in self._counters]
        if self._entries and all(seen != version for _, seen in self._counters):
            self._counters.append((bank, version))
        note_own_write(bank)


_lock = threading.RLock()
_histories: WeakValueDictionary[int, BankHistory] = WeakValueDictionary()


def history_lock() -> AbstractContextManager[bool]:
    """Held while a history is looked at or changed."""
    return _lock


def find_history(bank: Tensor) -> BankHistory | None:
    """The history of the bank's storage, if calls on it may be undone."""
    return _histories.get(storage_key(bank)) if _histories else None


def history_of(bank: Tensor) -> BankHistory:
    """The same; a new one if there is none."""
    key = storage_key(bank)
    history = _histories.get(key)
    if history is None:
        history = _histories[key] = BankHistory()
    return history
