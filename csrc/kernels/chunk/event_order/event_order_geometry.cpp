#include "kernels/chunk/event_order/event_order_geometry.h"

#include <algorithm>

#include "kernels/chunk/event_order/event_order_block.h"
#include "kernels/common/launch/chunk_launch.h"

namespace sdm {
namespace {

// The fewest passes, then the fewest bits.
int32_t digit_bits(int32_t key_bits) {
  const int32_t passes = std::max(1, (key_bits + kMostDigitBits - 1) / kMostDigitBits);
  return std::max(kFewestDigitBits, (key_bits + passes - 1) / passes);
}

}  // namespace

StepGeometry event_order_geometry(const plancap::Target& target, const EventOrderParams& params) {
  const int32_t events = shape_of(params).events();
  StepGeometry geometry;
  geometry.config = chunk_config(params.num_chunks, events, kOrderThreads, 0);
  const auto threads = static_cast<int32_t>(geometry.config.block.x);
  const auto use = [&](std::string entry, int32_t bits, int32_t word_bytes) {
    geometry.entry = std::move(entry);
    const OrderLayout layout(threads, bits, events, word_bytes);
    geometry.config.shared_bytes = static_cast<uint32_t>(layout.bytes);
    return geometry.config.shared_bytes <= target.shared_bytes_optin;
  };
  const int32_t bits = digit_bits(params.key_bits);
  const bool packed = params.key_bits + params.place_bits <= 32;
  if (packed && use(cat("event_order_b", bits), bits, 4)) return geometry;
  if (use("event_order_wide", kMostDigitBits, 8)) return geometry;
  use("event_order_global", kMostDigitBits, 0);
  return geometry;
}

}  // namespace sdm
