"""Same-slot pairs inside a chunk: the matrices A and QK of the spec, and their pair gradients.

    A[t,t']  = sum of k_e * k_e' * exp(L_e - L_e')   over writes e at t, e' at t' < t of one slot
    QK[t,t'] = sum of q_r * k_e' * exp(LQ_r - L_e')  over reads r at t, writes e' at t' <= t

The decays of a pair do not factor safely (exp(-L) overflows), so a matrix product over slots is
out, and so is any table of all entry pairs, (C*W)^2 per chunk. Two exact routes take the pairs from
the sorted timeline:

- `pair_list` (CPU): enumerates the pairs that exist. Its cost is their number, which for spread
  slots is far below C*W*C.
- `pair_sweep` (devices where sizes must not depend on data, so that a capture stays valid): walks
  the token distance t - t'; each entry keeps one pointer into its slot's list. Cost C * (C*W), no
  scatter, memory C*W.

Both add in an order that depends on places alone, so repeats give the same bits.
"""

from __future__ import annotations

from typing import NamedTuple

from torch import Tensor

from sdm_runtime.ops import pair_list, pair_sweep
from sdm_runtime.ops.log_sums import LogSums
from sdm_runtime.ops.pair_sides import pair_sides
from sdm_runtime.ops.readback import reads_are_free
from sdm_runtime.ops.timeline import Timeline
from sdm_runtime.ops.weights import Weights


class PairGradients(NamedTuple):
    """Pair terms in the timeline's sorted order, f64: of the weights and of the log sums."""

    k: Tensor
    q: Tensor
    write_log: Tensor
    read_log: Tensor


def pair_matrices(
    timeline: Timeline, weights: Weights, sums: LogSums, chunk: int
) -> tuple[Tensor, Tensor]:
    """A and QK, [N, C, C] f32 each, zero where no slot is shared."""
    writes, reads = pair_sides(timeline, weights, sums)
    matrix = pair_list.matrix if reads_are_free(writes.weight) else pair_sweep.matrix
    return matrix(writes, writes, chunk), matrix(reads, writes, chunk)


def pair_gradients(
    timeline: Timeline, weights: Weights, sums: LogSums, d_a: Tensor, d_qk: Tensor
) -> PairGradients:
    """Gradients through A and QK for d_a, d_qk [N, C, C] f32 (unpaired cells are not used)."""
    writes, reads = pair_sides(timeline, weights, sums)
    gradient = pair_list.gradient if reads_are_free(writes.weight) else pair_sweep.gradient
    later, earlier = gradient(writes, writes, d_a)
    d_q, d_k = gradient(reads, writes, d_qk)
    # A pair's log sums enter as exp(log of the later one - log of the earlier one): what one gains
    # the other loses. The gates' gradients are sums of these, so both are kept in float64.
    return PairGradients(
        k=later + earlier + d_k,
        q=d_q,
        write_log=weights.k * (later - earlier - d_k),
        read_log=weights.q * d_q,
    )
