// Snapshot rows encoded on the host, in one pass over each row: e4m3 bytes or int4 pairs, and one
// scale a row (docs/step_chain.md, section 4). Not a step kernel: the forward calls it, no plan
// holds it.
#pragma once
#include "kernels/common/rows/row_types.h"
#include "plancap/capture/tensor_ref.h"

namespace sdm {

// rows: bfloat16 or float32 [m, hd]; codes, out: uint8 [m, hd] for e4m3, [m, hd/2] for int4 (even
// hd); scales, out: float32 [m]. On the CPU. Throws for the first argument that is wrong.
void quantize_rows(const TensorRef& rows, const TensorRef& codes, const TensorRef& scales,
                   RowType format);

}  // namespace sdm
