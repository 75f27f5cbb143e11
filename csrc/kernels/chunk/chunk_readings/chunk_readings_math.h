// A reading's sum and where it goes, for the host twin and the device kernel.
//
//   y_t = reading_t + (the sum over j = 0 .. t of qk_tj delta_j)
//
// The sum's links are fused operations in ascending j, from +0: the token's own link, mostly the
// largest, is the last one. Tokens j > t are no links: what is not finite reaches no token before
// its own.
#pragma once
#include "kernels/chunk/chunk_readings/chunk_readings_params.h"
#include "kernels/common/math/ordered_math.h"
#include "kernels/common/records/chunk_tokens.h"

namespace sdm {

// A chunk's rows in the readings.
SDM_HD ChunkTokens reading_tokens(const ChunkReadingsParams& params, uint32_t chunk) {
  return staged_head_tokens(params, params.heads, params.first_step, chunk);
}

SDM_HD float add_reading_link(float qk, float delta, float sum) { return fused(qk, delta, sum); }

SDM_HD float whole_reading(float reading, float sum) { return plus(reading, sum); }

}  // namespace sdm
