// What a call's arguments say of its sizes, and sizes of an operand.
#include <algorithm>

#include "kernels/common/launch/step_kernel.h"
#include "kernels/common/launch/step_launch.h"
#include "kernels/common/records/records.h"
#include "kernels/common/records/row_weights.h"

namespace sdm {
namespace {

// The numbers that the caller gives, each in its range.
StepSizes given_sizes(const StepKernel& kernel, const StepArgs& args) {
  StepSizes sizes;
  const auto take = [&](const char* name, int64_t& size) {
    if (const auto number = args.number(name)) size = *number;
  };
  take("num_parallel", sizes.num_parallel);
  take("chunk_size", sizes.chunk_size);
  take("num_writes", sizes.num_writes);
  take("num_reads", sizes.num_reads);
  take("num_tokens", sizes.num_tokens);
  if (args.number("chunk_size")) expect_chunk_size(kernel.name, sizes.chunk_size);
  if (args.number("num_writes")) expect_entries(kernel.name, "num_writes", sizes.num_writes);
  if (args.number("num_reads")) expect_entries(kernel.name, "num_reads", sizes.num_reads);
  sizes.snap_chunk_rows = sizes.chunk_entries(Entries::kWrites);
  if (const auto rows = args.number("snap_chunk_rows")) {
    SDM_EXPECT(*rows >= 1 && *rows <= sizes.snap_chunk_rows, kValue, kernel.name, "snap_chunk_rows",
               cat("1..", sizes.snap_chunk_rows, " (chunk_size * num_writes)"), *rows);
    sizes.snap_chunk_rows = *rows;
  }
  return sizes;
}

void measure_rows(const StepKernel& kernel, const StepArgs& args, StepSizes& sizes) {
  const StepRow* bank = kernel.find(Form::kBankRows);
  if (!bank) return;
  const TensorRef& rows = args.at(bank->operand);
  sizes.bank_type = expect_bank_rows(kernel.name, bank->operand, rows);
  sizes.hd = rows.shape[1];
  const StepRow* grad = kernel.find(Form::kGradRows);
  if (grad) sizes.grad_type = expect_grad_of_bank(kernel.name, args.at(grad->operand), rows);
}

// [N*C, E, ...]: returns N.
int64_t chunks_of_rows(const char* kernel, const char* operand, const TensorRef& tensor,
                       int64_t chunk_size) {
  SDM_EXPECT(tensor.shape[0] % chunk_size == 0, kValue, kernel, operand,
             cat("N * ", chunk_size, " rows"), tensor.describe());
  return tensor.shape[0] / chunk_size;
}

void measure_row_weights(const char* kernel, const char* operand, const TensorRef& tensor,
                         StepSizes& sizes) {
  expect_row_weights(kernel, operand, tensor);
  sizes.num_reads = tensor.shape[1] - sizes.num_writes;
  SDM_EXPECT(sizes.num_reads >= 1 && sizes.num_reads <= 256, kValue, kernel, operand,
             cat("num_writes + 1..256 = ", sizes.num_writes + 1, "..", sizes.num_writes + 256,
                 " entries a token"),
             tensor.describe());
  sizes.chunks = chunks_of_rows(kernel, operand, tensor, sizes.chunk_size);
}

// hd of token rows; how many there are is checked when N is known.
void measure_token_rows(const char* kernel, const char* operand, const TensorRef& tensor,
                        StepSizes& sizes) {
  SDM_EXPECT(tensor.ndim == 2 || tensor.ndim == 3, kValue, kernel, operand, "float32 [N*C, hd]",
             tensor.describe());
  sizes.hd = tensor.shape[tensor.ndim - 1];
  expect_head_dim(kernel, sizes.hd);
}

// What the caller does not give, from an operand whose shape tells it.
void measure_by(const StepKernel& kernel, const StepRow* row, const TensorRef& tensor,
                StepSizes& sizes) {
  switch (row->form.form) {
    case Form::kTokenRows:
      return measure_token_rows(kernel.name, row->operand, tensor, sizes);
    case Form::kRecords:
      expect_records(kernel.name, row->operand, tensor, sizes.chunk_entries(row->form.entries));
      sizes.chunks = tensor.shape[0];
      return;
    case Form::kTokenEntries:
      expect_tensor(kernel.name, row->operand, tensor, row->form.dtype, {"N*C", "W"});
      sizes.chunks = chunks_of_rows(kernel.name, row->operand, tensor, sizes.chunk_size);
      sizes.num_writes = tensor.shape[1];
      return expect_entries(kernel.name, "num_writes", sizes.num_writes);
    case Form::kRowWeights:
      return measure_row_weights(kernel.name, row->operand, tensor, sizes);
    case Form::kChunkRows:
      expect_tensor(kernel.name, row->operand, tensor, Dtype::kFloat32, {"N", "C", "hd"});
      sizes.chunks = tensor.shape[0], sizes.chunk_size = tensor.shape[1];
      sizes.hd = tensor.shape[2];
      expect_chunk_size(kernel.name, sizes.chunk_size);
      return expect_head_dim(kernel.name, sizes.hd);
    default:
      SDM_INTERNAL_CHECK(false, kernel.name, ": ", row->operand, " cannot tell N");
  }
}

// N, and what else the caller does not give, from the operands whose shapes tell it.
void measure_chunks(const StepKernel& kernel, const StepArgs& args, StepSizes& sizes) {
  SDM_INTERNAL_CHECK(std::ranges::any_of(kernel.rows, &StepRow::measured), kernel.name,
                     " has no operand that tells N");
  for (const StepRow& row : kernel.rows) {
    if (row.measured) measure_by(kernel, &row, args.at(row.operand), sizes);
  }
}

}  // namespace

const StepRow* StepKernel::find(Form form) const {
  for (const StepRow& row : rows) {
    if (row.operand && row.form.form == form) return &row;
  }
  return nullptr;
}

const TensorRef* StepArgs::find(std::string_view operand) const {
  for (const auto& [name, tensor] : operands) {
    if (name == operand) return &tensor;
  }
  return nullptr;
}

const TensorRef& StepArgs::at(std::string_view operand) const {
  const TensorRef* tensor = find(operand);
  SDM_INTERNAL_CHECK(tensor, "a step kernel called without its operand ", operand);
  return *tensor;
}

std::optional<int64_t> StepArgs::number(std::string_view name) const {
  for (const auto& [given, value] : numbers) {
    if (given == name) return value;
  }
  return {};
}

const std::string* StepArgs::word(std::string_view name) const {
  for (const auto& [given, value] : words) {
    if (given == name) return &value;
  }
  return nullptr;
}

int64_t StepSizes::entries(Entries which) const {
  switch (which) {
    case Entries::kNone:
      return 0;
    case Entries::kWrites:
      return num_writes;
    case Entries::kReads:
      return num_reads;
    case Entries::kBoth:
      return num_writes + num_reads;
  }
  return 0;
}

StepExtent extent_of(const StepRow& row, const StepSizes& sizes) {
  const int64_t n = sizes.chunks, c = sizes.chunk_size, hd = sizes.hd;
  const int64_t entries = sizes.entries(row.form.entries), of_chunk = c * entries;
  const Dtype f32 = Dtype::kFloat32, bank = row_dtype(sizes.bank_type);
  switch (row.form.form) {
    case Form::kOdd:
    case Form::kBankRows:
    case Form::kGradRows:
      return {f32, {0, 0, 0}, 1};
    case Form::kTokenRows:
    case Form::kChunkRows:
      return {f32, {n, c, hd}, alignof(float)};
    case Form::kBankTokenRows:
      return {bank, {n, c, hd}, dtype_bytes(bank)};
    case Form::kChunkSquares:
      return {f32, {n, c, c}, alignof(float)};
    case Form::kTokens:
      return {f32, {n * c, 1, 1}, alignof(float)};
    case Form::kTokenEntries:
      return {row.form.dtype, {n * c, entries, 1}, dtype_bytes(row.form.dtype)};
    case Form::kRecords:
      return {Dtype::kInt32, {n, of_chunk, 4}, alignof(Record)};
    case Form::kRowWeights:
      return {Dtype::kInt32, {n * c, entries, 2}, alignof(RowWeight)};
    case Form::kPlanes:
      return {f32, {n, of_chunk, 1}, alignof(float)};
    case Form::kSnapshotRows:
      return {bank, {n * sizes.snap_chunk_rows, hd, 1}, dtype_bytes(bank)};
    case Form::kSnapshotCounts:
      return {Dtype::kInt32, {n, (of_chunk + 31) / 32 + 1, 1}, alignof(int32_t)};
  }
  SDM_INTERNAL_CHECK(false, "no form ", static_cast<int>(row.form.form));
}

StepSizes measure_step(const StepKernel& kernel, const StepArgs& args) {
  StepSizes sizes = given_sizes(kernel, args);
  measure_rows(kernel, args, sizes);
  measure_chunks(kernel, args, sizes);
  expect_num_parallel(kernel.name, sizes.chunks, sizes.num_parallel);
  if (args.number("num_tokens")) {
    expect_num_tokens(kernel.name, sizes.num_tokens, sizes.steps(), sizes.chunk_size);
  }
  return sizes;
}

}  // namespace sdm
