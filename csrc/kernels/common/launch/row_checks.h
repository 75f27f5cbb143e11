// Which row formats an argument or a plan may have, and what they are called.
#pragma once
#include <optional>
#include <string>
#include <string_view>

#include "kernels/common/rows/row_formats.h"
#include "plancap/capture/tensor_ref.h"
#include "plancap/format/param_view.h"

namespace sdm {

const char* row_type_name(RowType type);

// The plain rows that a tensor of this dtype holds.
std::optional<RowType> plain_row_type(Dtype dtype);

// A format by its name. Throws a ValueError that lists the formats there are.
RowType expect_row_format(const char* where, const char* argument, std::string_view name);

// Whether banks of `bank` rows may be restored from such snapshots: rows of codes, or of as many
// bits or fewer.
bool is_snapshot_of(RowType snap, RowType bank);

// The rows of one snapshot in the last dimension, for banks of `bank` rows of hd columns: of the
// format given, or of the first that dtype and shape agree with. Returns their type.
RowType expect_snapshot_rows(const char* where, const char* argument, const TensorRef& tensor,
                             RowType bank, int64_t hd, std::optional<RowType> given);

// Throws kPlan unless the field's number is that of plain rows, or of rows that a snapshot of such
// a bank with hd columns may have.
void check_plain_type(const plancap::ParamView& view, const char* field, RowType type);
void check_snapshot_type(const plancap::ParamView& view, const char* field, RowType type,
                         RowType bank, int32_t hd);

}  // namespace sdm
