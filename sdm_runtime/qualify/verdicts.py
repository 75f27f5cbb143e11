"""The verdicts: looked up once for each backward, probed on a miss, declined in any doubt."""

from __future__ import annotations

import threading
from dataclasses import asdict
from time import perf_counter_ns
from typing import NamedTuple

import torch
from torch import Tensor

from sdm_runtime.qualify.counters import Counters
from sdm_runtime.qualify.device_side import DeviceSide
from sdm_runtime.qualify.key import ALIGNMENT, Key, KeySource, Operands, Residues, read_key
from sdm_runtime.qualify.libraries import KeyUnreadableError
from sdm_runtime.qualify.operand_shapes import Shape, Sizes, checked_shape, facts
from sdm_runtime.qualify.speed_rule import gx_gemm_is_faster

_ATTEMPTS = 3


class Decision(NamedTuple):
    """Whether gx_gemm runs, why, and what finding out took."""

    matches: bool
    reason: str
    probe_us: float = 0.0  # 0 without a probe


class Skipped(NamedTuple):
    """A miss inside a capture: what to qualify before the next one."""

    device: torch.device
    sizes: Sizes
    steps: int
    residues: Residues  # of the operands' first elements


_NOT_FASTER = Decision(False, "the library is as fast at this shape")
_SKIPPED = Decision(False, "not qualified before the capture: see sdm_runtime.qualify.prepare")
_PROVEN = Decision(True, "proven to give the library's bits here")


def _prefers(other: str) -> Decision:
    """The library step is always cuBLAS's: beside it, gx_gemm would give bits of another library.

    Which of the two ran would depend on what was qualified when: a capture's bits would not be
    those of an eager call.
    """
    reason = f"torch prefers {other}: its baddbmm may give other bits than the library step"
    return Decision(False, reason)


class Qualifier:
    """A cache of verdicts, for any threads. Args: see KeySource and DeviceSide."""

    def __init__(self, source: KeySource, side: DeviceSide):
        """Start with no verdict."""
        self._source, self._side = source, side
        self._lock = threading.Lock()  # of all that follows; held for moments
        self._probing = threading.Lock()  # one probe at a time; never waited for in a capture
        self._clear()

    def _clear(self) -> None:
        self._verdicts: dict[Key, Decision] = {}
        self._decided: set[torch.device] = set()  # devices that a verdict is for
        self._failures: dict[object, int] = {}  # by key, or by sizes where no key could be read
        self._given_up: dict[object, Decision] = {}  # sizes whose key cannot be read
        self._skipped: dict[Skipped, None] = {}
        self._counters = Counters()

    def reset(self) -> None:
        """Forget all verdicts, failures and counts."""
        with self._probing, self._lock:
            self._clear()

    def stats(self) -> dict[str, int | float]:
        """The counters by name."""
        with self._lock:
            return asdict(self._counters)

    def take_skipped(self, device: torch.device) -> list[Skipped]:
        """What captures on the device have missed since the last time."""
        with self._lock:
            taken = [skipped for skipped in self._skipped if skipped.device == device]
            for skipped in taken:
                del self._skipped[skipped]
        return taken

    def decide(self, d_u: Tensor, x: Tensor, d_dv: Tensor, num_parallel: int) -> Decision:
        """Whether gx_gemm may take the library's place for all steps of a backward.

        Args and exceptions: see :func:`sdm_runtime.qualify.matches_blas`.
        """
        shape = checked_shape(facts(d_u), facts(x), facts(d_dv), num_parallel)
        return self.decide_checked((d_u, x, d_dv), shape)

    def decide_checked(self, operands: Operands, shape: Shape) -> Decision:
        """The same for operands of which the caller knows that they are of this shape."""
        begin = perf_counter_ns()
        decision, counter = self._decide(operands, shape)
        took_us = (perf_counter_ns() - begin) / 1e3 - decision.probe_us
        with self._lock:
            counters = self._counters
            counters.lookups += 1
            counters.lookup_us += took_us
            counters.probe_us += decision.probe_us
            setattr(counters, counter, getattr(counters, counter) + 1)
        return decision

    def _decide(self, operands: Operands, shape: Shape) -> tuple[Decision, str]:
        """The decision, and the counter of how it came about."""
        device, sizes = operands[0].device, shape.sizes
        if (other := self._source.other_library()) is not None:
            return _prefers(other), "declined_library"
        if not gx_gemm_is_faster(*sizes, self._side.sm_count(device)):
            return _NOT_FASTER, "declined_shapes"
        capturing = self._side.capturing(device)
        if capturing and device not in self._decided:
            return self._skip(operands, sizes)
        if self._given_up and (device, sizes) in self._given_up:
            return self._given_up[device, sizes], "hits"
        try:
            key = self._read_key(operands, shape)
        except KeyUnreadableError as error:
            return Decision(False, f"no key: {error}"), "declined_keys"
        except Exception as error:  # any doubt declines, and says why
            if capturing:  # what a capture forbids, an eager call may do
                return self._skip(operands, sizes)
            return self._failed((device, sizes), error, self._given_up), "errors"
        found = self._verdicts.get(key)
        if found is not None:
            return found, "hits"
        return self._skip(operands, sizes) if capturing else self._probe(key, operands)

    def _read_key(self, operands: Operands, shape: Shape) -> Key:
        with self._side.apart_from_captures():  # torch may have to make a handle or a workspace
            return read_key(self._source, operands, shape)

    def _skip(self, operands: Operands, sizes: Sizes) -> tuple[Decision, str]:
        d_u, x, d_dv = operands
        first = (
            d_u.data_ptr() % ALIGNMENT,
            x.data_ptr() % ALIGNMENT,
            d_dv.data_ptr() % ALIGNMENT,
        )
        skipped = Skipped(d_u.device, sizes, d_u.shape[0] // sizes.sequences, first)
        with self._lock:
            self._skipped[skipped] = None
        return _SKIPPED, "capture_skips"

    def _probe(self, key: Key, operands: Operands) -> tuple[Decision, str]:
        device = operands[0].device
        with self._probing:
            found = self._verdicts.get(key)  # another thread's, while this one waited
            if found is not None:
                return found, "hits"
            begin = perf_counter_ns()
            with self._lock:
                self._counters.probes += 1
            try:
                with self._side.apart_from_captures():
                    different = self._side.prove(key.shape.sizes, key.residues, device)
                after = self._read_key(operands, key.shape)
            except KeyUnreadableError as error:
                decision, counter = Decision(False, f"no key: {error}"), "declined_keys"
            except Exception as error:  # any doubt declines, and says why
                decision, counter = self._failed(key, error, self._verdicts), "errors"
            else:
                decision, counter = self._judge(device, key, after, different)
            took_us = (perf_counter_ns() - begin) / 1e3
        return decision._replace(probe_us=took_us), counter

    def _judge(
        self, device: torch.device, key: Key, after: Key, different: tuple[str, ...]
    ) -> tuple[Decision, str]:
        """Keep a verdict, if the key is what it was before the probe."""
        if after != key:
            return Decision(False, "a setting changed during the probe"), "changed"
        decision = _PROVEN
        if different:
            decision = Decision(False, f"other bits than the library's: {', '.join(different)}")
        with self._lock:
            self._verdicts[key] = decision
            self._decided.add(device)
        return decision, "equal" if decision.matches else "differ"

    def _failed(
        self, what: object, error: Exception, verdicts: dict[object, Decision] | dict[Key, Decision]
    ) -> Decision:
        """Decline; after as many failures as are allowed, for good."""
        decision = Decision(False, f"qualification failed: {type(error).__name__}: {error}")
        with self._lock:
            self._failures[what] = self._failures.get(what, 0) + 1
            if self._failures[what] >= _ATTEMPTS:
                verdicts[what] = decision  # type: ignore[index]
        return decision
