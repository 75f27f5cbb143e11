"""What qualification has done in this process."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass
class Counters:
    """Counts since the start or the last reset; times in microseconds."""

    lookups: int = 0  # calls
    hits: int = 0  # answered by the cache
    probes: int = 0  # begun
    equal: int = 0  # verdicts: gx_gemm gives the library's bits
    differ: int = 0  # verdicts: it does not
    changed: int = 0  # probes without a verdict, since the key was another afterwards
    errors: int = 0  # exceptions, in reading a key or probing
    capture_skips: int = 0  # misses inside a capture
    declined_keys: int = 0  # the key cannot be told
    declined_library: int = 0  # torch prefers another one to cuBLAS
    declined_shapes: int = 0  # by the speed rule
    lookup_us: float = 0.0  # all calls, probes left out
    probe_us: float = 0.0
