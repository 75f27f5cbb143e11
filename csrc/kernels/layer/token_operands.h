// The layer's tensors [B, T, ..] as they lie: any distance between batch elements and between
// tokens, the values of one token side by side. What launchers and plan checks ask of them.
#pragma once
#include <algorithm>
#include <initializer_list>
#include <limits>

#include "kernels/common/launch/row_checks.h"
#include "plancap/base/error.h"
#include "plancap/capture/sink.h"
#include "plancap/format/param_view.h"

namespace sdm {

inline constexpr int64_t kMostTokens = std::numeric_limits<int32_t>::max();  // B * T
inline constexpr int64_t kMostHeads = int64_t{1} << 20;

// In elements; 0 along a dimension of one.
struct TokenStrides {
  int64_t batch = 0, token = 0;
};

inline TokenStrides token_strides(const TensorRef& tensor) {
  return {tensor.shape[0] > 1 ? tensor.strides[0] : 0, tensor.shape[1] > 1 ? tensor.strides[1] : 0};
}

// Elements from the first to the end of the last that strides reach; 2^64-1 when it is larger.
struct Extent {
  int64_t size, stride;
};
inline uint64_t strided_span(std::initializer_list<Extent> extents, int64_t width) {
  constexpr uint64_t kTooMuch = std::numeric_limits<uint64_t>::max();
  unsigned __int128 last = static_cast<uint64_t>(width);
  for (const Extent& extent : extents) {
    if (extent.size == 0) return 0;
    last += plancap::volume({extent.size - 1, extent.stride});
  }
  return last > kTooMuch ? kTooMuch : static_cast<uint64_t>(last);
}

// Values [B, T, width], their last dimension contiguous. Returns their type.
inline RowType expect_token_values(const char* where, const char* argument, const TensorRef& tensor,
                                   int64_t batches, int64_t tokens, int64_t width) {
  const auto expected = [&] {
    return cat("float32 or bfloat16 [", batches, ", ", tokens, ", ", width, "]");
  };
  const std::optional<RowType> type = plain_row_type(tensor.dtype);
  SDM_EXPECT(type, kType, where, argument, expected(), tensor.describe());
  const bool fits = tensor.ndim == 3 && tensor.shape[0] == batches && tensor.shape[1] == tokens &&
                    tensor.shape[2] == width;
  SDM_EXPECT(fits, kValue, where, argument, expected(), tensor.describe());
  SDM_EXPECT(width == 1 || tensor.numel() == 0 || tensor.strides[2] == 1, kValue, where, argument,
             "a token's values side by side", tensor.describe());
  const TokenStrides strides = token_strides(tensor);
  SDM_EXPECT(strides.batch >= 0 && strides.token >= 0, kValue, where, argument,
             "strides of 0 or more", tensor.describe());
  return *type;
}

// One value a head: [H]. Returns their type.
inline RowType expect_head_values(const char* where, const char* argument, const TensorRef& tensor,
                                  int64_t heads) {
  const std::optional<RowType> type = plain_row_type(tensor.dtype);
  SDM_EXPECT(type, kType, where, argument, cat("float32 or bfloat16 [", heads, "]"),
             tensor.describe());
  expect_tensor(where, argument, tensor, tensor.dtype, {heads});
  return *type;
}

// B and T of 0 or more, B * T below 2^31, H of 1 or more.
inline void expect_call_sizes(const char* where, const char* argument, int64_t batches,
                              int64_t tokens, int64_t heads) {
  SDM_EXPECT(plancap::volume({batches, tokens}) <= static_cast<uint64_t>(kMostTokens) &&
                 batches <= kMostTokens && tokens <= kMostTokens,
             kValue, where, argument, "B * T below 2^31", cat(batches, " * ", tokens));
  SDM_EXPECT(heads >= 1 && heads <= kMostHeads, kValue, where, argument,
             cat("1..", kMostHeads, " heads"), heads);
}

// The same of a plan's numbers; throws kPlan.
inline void check_call_sizes(const plancap::ParamView& view, int64_t batches, int64_t tokens,
                             int64_t heads) {
  view.range("num_batches", batches, 0, kMostTokens);
  view.range("num_tokens", tokens, 0, kMostTokens);
  view.range("num_heads", heads, 1, kMostHeads);
  view.expect(batches * tokens <= kMostTokens, "num_tokens", "B * T below 2^31",
              cat(batches, " * ", tokens));
}

// The operand of a tensor of which the kernel reaches `span` elements from its first on: a plan is
// bound to that memory, contiguous.
inline plancap::Operand spanned(const char* field, const char* name, const TensorRef& tensor,
                                plancap::Access access, uint64_t span) {
  plancap::Operand operand{};
  operand.field = field;
  operand.name = name;
  operand.tensor = tensor;
  if (!tensor.contiguous()) {
    operand.tensor.ndim = 1;
    operand.tensor.shape[0] = static_cast<int64_t>(span);
    operand.tensor.strides[0] = 1;
  }
  operand.access = access;
  operand.align = dtype_bytes(tensor.dtype);
  return operand;
}

// Throws kPlan unless the field's operand may be used so and holds `count` values of the type.
inline void reach_values(const plancap::ParamView& view, const char* field, plancap::Access access,
                         RowType type, uint64_t count) {
  const uint32_t bytes = type == RowType::kFloat32 ? 4 : 2;
  const auto most = static_cast<uint64_t>(std::numeric_limits<int64_t>::max());
  const auto limited = static_cast<int64_t>(std::min(count, most));
  view.reach_bytes(field, access, bytes, plancap::volume({bytes, limited}));
}

// Throws kPlan unless the strides of a tensor [B, T, ..] are none or positive.
inline void check_token_strides(const plancap::ParamView& view, const char* batch_field,
                                int64_t batch, const char* token_field, int64_t token) {
  constexpr int64_t kMost = std::numeric_limits<int64_t>::max();
  view.range(batch_field, batch, 0, kMost);
  view.range(token_field, token, 0, kMost);
}

}  // namespace sdm
