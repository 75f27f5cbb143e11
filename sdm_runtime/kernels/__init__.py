"""The step kernels, one step at once or recorded as a plan, and the sums of their planes.

Every function takes CPU tensors (the host twin runs) or tensors of one CUDA device, and works in
place on its outputs. Autograd does not record them, but the versions of what is written are raised:
a graph that saved it before refuses its backward. A launch and its plan go through the same checks:
ValueError or TypeError name the argument, the expected and the given value, and nothing is changed.
The arithmetic is fixed to the bit by docs/step_chain.md, section 4.

Sizes: P sequences (``num_parallel``), C tokens a chunk (``chunk_size``), W writes and R reads a
token, N = steps * P chunks; chunk ``ti*P + p`` is sequence p's at step ti, token t of chunk n is
row ``n*C + t``. Bank and grad rows are ``[rows, hd]``, the bank bfloat16 or float32, the grad of
the bank's type or float32. A row dot leaves one plane per column slice (:func:`num_slices`): an
output of row dots is float32 ``[num_slices, entries]``, or of any shape with that many elements
when there is one slice.
"""

from sdm_runtime.kernels.backward import (
    gx_gds,
    gx_gemm,
    gx_gwr,
    gx_pa2,
    plan_gx_gds,
    plan_gx_gemm,
    plan_gx_gwr,
    plan_gx_pa2,
)
from sdm_runtime.kernels.forward import fx_read, fx_write, plan_fx_read, plan_fx_write
from sdm_runtime.kernels.planes import num_slices, plane_reduce

__all__ = [
    "fx_read",
    "fx_write",
    "gx_gds",
    "gx_gemm",
    "gx_gwr",
    "gx_pa2",
    "num_slices",
    "plan_fx_read",
    "plan_fx_write",
    "plan_gx_gds",
    "plan_gx_gemm",
    "plan_gx_gwr",
    "plan_gx_pa2",
    "plane_reduce",
]
