// decode_step's block and shared memory, as its kernel and its host geometry both need them.
#pragma once
#include "kernels/common/math/host_device.h"
#include "kernels/common/rows/row_bits.h"
#include "kernels/layer/decode_step/decode_step_math.h"

namespace sdm {

inline constexpr int32_t kDecodeThreads = 256;

// Columns of 16 bytes of a row, as the block holds it: floats for kAnyRow.
SDM_HD constexpr int32_t decode_piece(RowType bank) { return bank == RowType::kBFloat16 ? 8 : 4; }

// Where a block keeps what, in bytes. Everything starts at a multiple of 16.
struct DecodeShared {
  uint32_t rows;                  // [W+R] slices of rows, the writes' first
  uint32_t slot_writes;           // SlotWrite [W]
  uint32_t logs;                  // double [W]
  uint32_t read_terms;            // ReadTerms [R]
  uint32_t residual_weights;      // float [W]
  uint32_t k_slots, q_slots;      // int32 [W], [R]
  uint32_t k_weights, q_weights;  // float [W], [R]
  uint32_t residuals;             // float [columns]
  uint32_t total;
};

SDM_HD constexpr DecodeShared decode_shared(RowType bank, int32_t columns, int32_t writes,
                                            int32_t reads) {
  uint32_t end = 0;
  const auto take = [&end](int32_t count, uint32_t bytes) {
    const uint32_t begin = end;
    end += (static_cast<uint32_t>(count) * bytes + 15) / 16 * 16;
    return begin;
  };
  DecodeShared map{};
  map.rows = take(writes + reads, piece_bytes(bank, columns));
  map.slot_writes = take(writes, sizeof(SlotWrite));
  map.logs = take(writes, sizeof(double));
  map.read_terms = take(reads, sizeof(ReadTerms));
  map.residual_weights = take(writes, sizeof(float));
  map.k_slots = take(writes, sizeof(int32_t));
  map.q_slots = take(reads, sizeof(int32_t));
  map.k_weights = take(writes, sizeof(float));
  map.q_weights = take(reads, sizeof(float));
  map.residuals = take(columns, sizeof(float));
  map.total = end;
  return map;
}

}  // namespace sdm
