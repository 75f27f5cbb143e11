"""The public entry of the operation."""

from __future__ import annotations

from torch import Tensor

from sdm_runtime.ops.autograd.eager import write_read
from sdm_runtime.ops.call.staging import Inputs
from sdm_runtime.ops.traced.operators import by_operator
from sdm_runtime.ops.traced.tracing import is_traced


def sdm_write_read(
    memory: Tensor,
    k_idx: Tensor,
    k_val: Tensor,
    v: Tensor,
    beta: Tensor,
    g: Tensor,
    q_idx: Tensor,
    q_val: Tensor,
    *,
    chunk_size: int = 64,
    num_memory_slots: int = 0,
    num_parallel: int = 1,
    snapshot_quant: str = "none",
    grad_bank_fp32: bool = False,
    gemm: str = "auto",
    shared_bank: bool = False,
    keep_state: bool = False,
) -> Tensor:
    """Write and read a bank of slots, token by token, and return the readings.

    Of P independent sequences with T tokens each, every token decays its W write slots, moves what
    they answer for its key towards a value, and then reads R slots::

        M[s]   <- exp(g) * M[s]                       for the written slots s
        r       = sum_n k_val[n] * M[k_idx[n]]
        M[s_n] <- M[s_n] + k_val[n] * beta * (v - r)
        y       = sum_m q_val[m] * M[q_idx[m]]

    The forward advances `memory` in place, chunk by chunk. The backward restores it (to the bit
    unless the snapshots are narrower than the bank) and returns the gradient of the bank as it was
    before the call; no gradient flows through the bank as it is after the call. A call runs its
    backward once. Calls on one bank run their backwards last to first, calls on parts of one
    storage in any order; where `memory` requires grad, one call at a time. With keep_state=True
    the backward leaves the bank advanced, and may run again. Without a backward to come (no grad
    mode, or nothing requires grad) nothing is saved, and working memory does not grow with T. A
    call that raises leaves the bank as it was, or the next call on it says that it is half written.
    Under torch.compile and torch.export, and of fake or meta tensors, it is the operator
    `torch.ops.sdm_runtime.write_read` (`ops/traced/operators.py`).

    The inputs are [P, T, .] or [P*T, .], of any strides, on memory's device and apart from the
    bank. v may also be [B, T, H, hd], as a projection of heads beside each other leaves it: head h
    of batch element b is sequence b*H + h, and the readings come in the same way. k_val, v and
    q_val are rounded to the bank's dtype on entry; beta and g are used in float32. A token that
    names a write slot twice decays it by both gates and writes both weights.

    Args:
        memory: bfloat16 or float32 [rows, hd], contiguous, advanced in place. Rows: P * S.
        k_idx: int32 or int64 [.., W], absolute bank rows, 1 <= W <= 256.
        k_val: floating [.., W], write weights.
        v: floating [.., hd] or [B, T, H, hd] with B * H = P, values.
        beta: floating [.., 1], write strengths.
        g: floating [.., 1] or [.., W], natural logarithms of the decays, one a token or a write.
        q_idx: int32 or int64 [.., R], absolute bank rows, 1 <= R <= 256.
        q_val: floating [.., R], read weights.
        chunk_size: C, tokens that are worked on together, 16..256. T need not be a multiple.
        num_memory_slots: S, the rows of a sequence: number p owns rows [p*S, (p+1)*S). 0: one bank
            for all sequences, which with P > 1 needs shared_bank=True.
        num_parallel: P.
        snapshot_quant: How the backward's copies of overwritten rows are kept: "none" (as in the
            bank), "bf16", "fp8" (e4m3, a scale per row) or "int4" (the same; even hd).
        grad_bank_fp32: Accumulate the gradient of a bfloat16 bank in float32.
        gemm: The backward's small matrix products: "fixed" (gx_gemm: the same bits everywhere),
            "blas" (CUDA only) or "auto" (the bits of torch.baddbmm; on the CPU "fixed").
        shared_bank: All sequences use the whole bank. Undefined where two sequences touch one slot
            within one chunk, if one of them writes it.
        keep_state: After the backward the bank is what the forward left, to the bit, and not what
            it was before the call: the next segment goes on from it (truncated backpropagation),
            and with retain_graph=True another backward can follow. For snapshots that hold the
            rows' bits; it costs the backward the forward's writes once more.

    Returns:
        The readings in the bank's dtype, contiguous: [P*T, hd]; for v [B, T, H, hd] of that shape.

    Raises:
        ValueError: A shape, range, device, layout or option that does not fit, by name. A slot
            outside its sequence: on the CPU, and on a GPU with the environment variable
            SDM_CHECK_INDICES=1 (this synchronizes the device). Without it such an entry does
            nothing on a GPU, and a later call on the device raises, before it changes anything.
            Any value of that variable that does not say on or off.
        TypeError: An argument of the wrong type or dtype.
        RuntimeError: `memory` requires grad and an earlier call's backward on it is to come; a
            failed call or backward has left it half written; a forked process has lost the threads
            of its parent; in the backward: it is the second, or the bank has been written or moved
            since the forward.
        CudaError: `memory` is on a CUDA device, for which this build or machine has no kernels.
    """
    inputs = Inputs(k_idx, k_val, v, beta, g, q_idx, q_val)
    run = by_operator if is_traced(memory, inputs) else write_read
    return run(
        memory,
        inputs,
        chunk_size=chunk_size,
        num_memory_slots=num_memory_slots,
        num_parallel=num_parallel,
        snapshot_quant=snapshot_quant,
        grad_bank_fp32=grad_bank_fp32,
        gemm=gemm,
        shared_bank=shared_bank,
        keep_state=keep_state,
    )
