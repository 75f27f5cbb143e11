// The parameter block's fields by name. Arrays are named element by element, weight_0 to weight_7:
// a plan's relocations are of single pointers.
#pragma once
#include <array>

#include "kernels/linear/bf16_linear_group/bf16_linear_group_params.h"
#include "plancap/format/kernel_info.h"

namespace sdm::bf16_linear_group_fields {

using plancap::FieldInfo;
using Names = std::array<const char*, kMaxBf16LinearMembers>;

inline constexpr Names kWeight = {"weight_0", "weight_1", "weight_2", "weight_3",
                                  "weight_4", "weight_5", "weight_6", "weight_7"};
inline constexpr Names kBias = {"bias_0", "bias_1", "bias_2", "bias_3",
                                "bias_4", "bias_5", "bias_6", "bias_7"};
inline constexpr Names kY = {"y_0", "y_1", "y_2", "y_3", "y_4", "y_5", "y_6", "y_7"};
inline constexpr Names kWeightStride = {"weight_stride_0", "weight_stride_1", "weight_stride_2",
                                        "weight_stride_3", "weight_stride_4", "weight_stride_5",
                                        "weight_stride_6", "weight_stride_7"};
inline constexpr Names kNumRows = {"num_rows_0", "num_rows_1", "num_rows_2", "num_rows_3",
                                   "num_rows_4", "num_rows_5", "num_rows_6", "num_rows_7"};
inline constexpr Names kFirstTile = {"first_tile_0", "first_tile_1", "first_tile_2",
                                     "first_tile_3", "first_tile_4", "first_tile_5",
                                     "first_tile_6", "first_tile_7"};

// The launcher's name for x in plans: other plans of a chain have an x of their own.
inline constexpr const char* kXOperand = "group_x";

namespace detail {

using P = Bf16LinearGroupParams;

inline constexpr FieldInfo kBefore[] = {SDM_FIELD(P, weight_maps), SDM_FIELD(P, x_map),
                                        SDM_FIELD(P, x)};
inline constexpr FieldInfo kAfter[] = {
    SDM_FIELD(P, num_members),    SDM_FIELD(P, num_tokens), SDM_FIELD(P, depth),
    SDM_FIELD(P, depth_tiles),    SDM_FIELD(P, splits),     SDM_FIELD(P, split_inverse),
    SDM_FIELD(P, paired_stores),  SDM_FIELD(P, tactic),     SDM_FIELD(P, trigger_lead),
    SDM_FIELD(P, prefetch_tiles),
};
inline constexpr size_t kArrays = 6;
inline constexpr size_t kCount =
    std::size(kBefore) + 1 + kArrays * kMaxBf16LinearMembers + std::size(kAfter);

struct Table {
  std::array<FieldInfo, kCount> fields{};
  size_t used = 0;

  constexpr void add(const FieldInfo& field) { fields[used++] = field; }

  // The elements of an array; those from `first_nullable` on may stay null.
  template <typename Element>
  constexpr void add_array(const Names& names, size_t offset,
                           int32_t first_nullable = kMaxBf16LinearMembers) {
    for (int32_t i = 0; i < kMaxBf16LinearMembers; ++i) {
      const auto at = static_cast<uint32_t>(offset + i * sizeof(Element));
      const uint8_t flags = i >= first_nullable ? plancap::kFieldNullable : 0;
      add({names[i], plancap::field_type_of<Element>(), at, sizeof(Element), flags});
    }
  }
};

constexpr std::array<FieldInfo, kCount> make() {
  Table table;
  for (const FieldInfo& field : kBefore) table.add(field);
  table.add_array<const uint16_t*>(kWeight, offsetof(P, weight), 1);  // one member at least
  table.add_array<const uint16_t*>(kBias, offsetof(P, bias), 0);
  table.add_array<uint16_t*>(kY, offsetof(P, y), 1);
  table.add(SDM_FIELD(P, x_stride));
  table.add_array<int64_t>(kWeightStride, offsetof(P, weight_stride));
  table.add_array<int32_t>(kNumRows, offsetof(P, num_rows));
  table.add_array<int32_t>(kFirstTile, offsetof(P, first_tile));
  for (const FieldInfo& field : kAfter) table.add(field);
  return table.fields;
}

}  // namespace detail

inline constexpr auto kFields = detail::make();

// Every byte that is no padding belongs to a field, and fields follow each other.
constexpr bool in_order() {
  uint32_t end = 0;
  for (const FieldInfo& field : kFields) {
    if (field.offset != end) return false;
    end = field.offset + field.size;
  }
  return end <= sizeof(Bf16LinearGroupParams);
}
static_assert(in_order());

}  // namespace sdm::bf16_linear_group_fields
