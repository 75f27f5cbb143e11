"""Where gx_gemm is faster than the library: from the shapes and the SM count, by measurement."""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple


class Measured(NamedTuple):
    """One step in a CUDA graph, microseconds: the library, and gx_gemm launched plainly."""

    sequences: int  # P
    chunk: int  # C
    head_dim: int  # hd
    sm_count: int
    library_us: float
    gx_gemm_us: float

    @property
    def work(self) -> float:
        """Fused operations for one SM."""
        return self.sequences * self.chunk**2 * self.head_dim / self.sm_count


# One H200 (132 SMs), tools/bench/step_kernels.py: steps on cold rows, torch.baddbmm the library.
# Programmatic launches are faster still; the rule leaves them out.
MEASURED = (
    Measured(2, 64, 128, 132, 5.21, 2.26),
    Measured(8, 64, 128, 132, 5.73, 2.97),
    Measured(2, 64, 1024, 132, 6.40, 3.26),
    Measured(8, 64, 1024, 132, 9.01, 6.29),
    Measured(8, 256, 1024, 132, 48.26, 37.93),
)


@lru_cache(maxsize=1024)
def gx_gemm_is_faster(sequences: int, chunk: int, head_dim: int, sm_count: int) -> bool:
    """Whether a step of this shape (P, C, hd) is expected to take gx_gemm less time.

    True where some measured shape that gx_gemm won has at least this chunk and this much work for
    an SM: what is smaller is bound by fixed costs, and the library's are the larger. Rows that
    do not come in pieces of four floats take another kernel, which was not measured: False.
    """
    if chunk % 4 or head_dim % 4:
        return False
    shape = Measured(sequences, chunk, head_dim, sm_count, 0.0, 0.0)
    return any(
        won.chunk >= chunk and won.work >= shape.work
        for won in MEASURED
        if won.gx_gemm_us < won.library_us
    )
