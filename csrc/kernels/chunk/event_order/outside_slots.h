// Whether a caller's indices stay inside their sequences' rows, asked on the host.
#pragma once
#include <optional>

#include "plancap/capture/tensor_ref.h"

namespace sdm {

struct OutsideSlot {
  int64_t sequence;
  int64_t value;
};

// The first one, in order, of `indices`: int32 or int64 [P, T, .] on the host, of any strides.
// num_slots: bank rows of a sequence, one sequence's after another's; 0: all of bank_rows, which
// are below 2^31.
std::optional<OutsideSlot> find_outside_slot(const TensorRef& indices, int64_t num_slots,
                                             int64_t bank_rows);

}  // namespace sdm
