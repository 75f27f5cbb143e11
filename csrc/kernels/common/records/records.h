// The payload word of a sorted entry (docs/step_chain.md, section 3). Read entries use the same
// bits, with the read index in place of the write index.
#pragma once
#include "kernels/common/math/host_device.h"

namespace sdm {

inline constexpr uint32_t kRecordFirst = 1u << 31;
inline constexpr uint32_t kRecordLast = 1u << 30;
inline constexpr uint32_t kRecordInvalid = 1u << 17;
inline constexpr uint32_t kRecordTokenBits = 0xffu << 9;
// Bits 18 to 29 count a record's distance back to the FIRST of its group, up to 4095.
inline constexpr int kRecordDistanceAt = 18;
inline constexpr uint32_t kRecordDistanceBits = 0xfffu;
inline constexpr int32_t kDistanceSaturated = 4095;

SDM_HD bool record_first(uint32_t word) { return (word & kRecordFirst) != 0; }
SDM_HD bool record_last(uint32_t word) { return (word & kRecordLast) != 0; }
SDM_HD bool record_invalid(uint32_t word) { return (word & kRecordInvalid) != 0; }
SDM_HD int32_t record_token(uint32_t word) { return static_cast<int32_t>(word >> 9 & 0xffu); }
SDM_HD int32_t record_distance(uint32_t word) {
  return static_cast<int32_t>(word >> kRecordDistanceAt & kRecordDistanceBits);
}
SDM_HD int32_t record_index(uint32_t word) { return static_cast<int32_t>(word & 0xffu); }

// One entry: 16 bytes. gx_pa2 reads {word, row, sck, cpe}; gx_gds reads {word, row, scq, 0}.
struct alignas(16) Record {
  uint32_t word;
  int32_t row;  // absolute bank row
  float scale;  // sck = -beta * keff for a write, scq = q * exp(LQ) for a read
  float decay;  // cpe for a write, 0 for a read
};
static_assert(sizeof(Record) == 16);

}  // namespace sdm
