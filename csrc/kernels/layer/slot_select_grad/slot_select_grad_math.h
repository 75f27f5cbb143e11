// What a selected slot adds to which columns, for the host twin and the device kernel.
//
// A column's gradient is the sum over the slots that contain it, from +0 in slot order.
#pragma once
#include "kernels/layer/slot_select_grad/slot_select_grad_params.h"

namespace sdm {

// A slot's number in its own row. What is none of the row's is slot 0, and counts for nothing.
struct RowSlot {
  int32_t slot;
  bool counts;
};
SDM_HD RowSlot row_slot(int32_t given, int32_t first_slot, int32_t slots_of_row) {
  const int32_t slot = given - first_slot;
  const bool counts = static_cast<uint32_t>(slot) < static_cast<uint32_t>(slots_of_row);
  return {counts ? slot : 0, counts};
}

// The column of a factor in a slot.
SDM_HD int32_t slot_column(const SlotSelectGradParams& params, int32_t slot, int32_t factor) {
  int32_t column = 0;
  for (int32_t f = 0; f <= factor; ++f) {
    column = divided_by(slot, params.by_parts[f]);
    int32_t parts = 1;
    for (int32_t later = f + 1; later < params.num_factors; ++later) parts *= params.widths[later];
    slot -= column * parts;
  }
  return column;
}

}  // namespace sdm
