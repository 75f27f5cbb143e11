#include "kernels/common/launch/step_kernel.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "kernels/common/launch/step_launch.h"

namespace sdm {
namespace {

using plancap::Operand;

// One operand against the sizes.
void check_operand(const char* kernel, const StepRow& row, const TensorRef& tensor,
                   const StepSizes& sizes) {
  const StepExtent extent = extent_of(row, sizes);
  const auto& [first, second, third] = extent.dims;
  switch (row.form.form) {
    case Form::kOdd:
    case Form::kBankRows:  // these two have been measured
    case Form::kGradRows:
      return;
    case Form::kTokenRows:
    case Form::kBankTokenRows:
      return expect_token_rows(kernel, row.operand, tensor, first, second, third, extent.dtype);
    case Form::kRecords:
      return expect_records(kernel, row.operand, tensor, second);
    case Form::kRowWeights:
      return expect_row_weights(kernel, row.operand, tensor);
    case Form::kPlanes:
      return expect_planes(kernel, row.operand, tensor, sizes.hd, first * second);
    case Form::kTokens:
      return expect_tensor(kernel, row.operand, tensor, extent.dtype, {first});
    case Form::kChunkRows:
    case Form::kChunkSquares:
      return expect_tensor(kernel, row.operand, tensor, extent.dtype, {first, second, third});
    case Form::kTokenEntries:
    case Form::kSnapshotRows:
    case Form::kSnapshotCounts:
      return expect_tensor(kernel, row.operand, tensor, extent.dtype, {first, second});
  }
}

// visit(row, tensor) for the operands that are there, in the table's order.
template <typename Visit>
void for_each_operand(const StepKernel& kernel, const StepArgs& args, const Visit& visit) {
  for (const StepRow& row : kernel.rows) {
    const TensorRef* tensor = row.operand ? args.find(row.operand) : nullptr;
    if (tensor) visit(row, *tensor);
  }
}

void check_operands(const StepKernel& kernel, const StepArgs& args, const StepSizes& sizes,
                    Device device) {
  for_each_operand(kernel, args, [&](const StepRow& row, const TensorRef& tensor) {
    check_operand(kernel.name, row, tensor, sizes);
  });
  for_each_operand(kernel, args, [&](const StepRow& row, const TensorRef& tensor) {
    expect_device(kernel.name, row.operand, tensor, device);
  });
}

int64_t row_type(RowType type) { return static_cast<int32_t>(type); }

// A number of the block: as the caller gives it, or as it follows from the operands; 0 for one that
// is reserved or that the kernel's own function writes.
int64_t number(const StepKernel& kernel, const StepRow& row, const StepArgs& args,
               const StepSizes& sizes, int32_t step) {
  if (row.given) return args.number(row.field.name).value_or(0);
  if (row.word || row.is("reserved")) return 0;
  if (row.is("step")) return step;
  if (row.is("chunk_size")) return sizes.chunk_size;
  if (row.is("num_writes")) return sizes.num_writes;
  if (row.is("num_reads")) return sizes.num_reads;
  if (row.is("hd")) return sizes.hd;
  if (row.is("plane_stride")) return plane_stride(kernel, sizes);
  if (row.is("bank_type")) return row_type(sizes.bank_type);
  if (row.is("grad_type")) {
    return row_type(kernel.find(Form::kGradRows) ? sizes.grad_type : sizes.bank_type);
  }
  SDM_INTERNAL_CHECK(false, kernel.name, ": nothing says what ", row.field.name, " is");
}

using Block = std::array<std::byte, kMostStepParamBytes>;

void fill(const StepKernel& kernel, const StepArgs& args, const StepSizes& sizes, int32_t step,
          Block& block) {
  for (const StepRow& row : kernel.rows) {
    std::byte* to = block.data() + row.field.offset;
    if (row.operand) {
      const TensorRef* tensor = args.find(row.operand);
      const void* address = tensor ? tensor->data : nullptr;
      std::memcpy(to, &address, sizeof(address));
    } else {
      const int64_t value = number(kernel, row, args, sizes, step);
      std::memcpy(to, &value, row.field.size);  // little-endian: the low bytes
    }
  }
}

Operand describe(const StepRow& row, const TensorRef& tensor, const StepSizes& sizes) {
  Operand operand = whole(row.operand, tensor, row.access);
  switch (row.form.form) {
    case Form::kOdd:
    case Form::kBankRows:
    case Form::kGradRows:
      break;
    case Form::kPlanes:
      operand = planes_operand(row.operand, tensor, sizes.hd, sizes.steps());
      break;
    default:
      operand = per_step(row.operand, tensor, row.access, sizes.steps());
  }
  operand.align = std::max(operand.align, extent_of(row, sizes).align);
  operand.field = row.field.name;
  return operand;
}

}  // namespace

int64_t plane_stride(const StepKernel& kernel, const StepSizes& sizes) {
  const StepRow* planes = kernel.find(Form::kPlanes);
  return planes ? sizes.chunks * sizes.chunk_entries(planes->form.entries) : 0;
}

Operand& StepLaunch::operand(std::string_view name) const {
  const auto found = std::ranges::find(operands, name, &Operand::name);
  SDM_INTERNAL_CHECK(found != operands.end(), "a step kernel's launch without its operand ", name);
  return *found;
}

void launch_step(const StepKernel& kernel, plancap::Sink& sink, const StepArgs& args) {
  // Check.
  const StepSizes sizes = measure_step(kernel, args);
  check_operands(kernel, args, sizes, sink.target().device);
  const StepRange range =
      step_range(kernel.name, sizes.chunks, sizes.num_parallel, args.ti, args.steps);

  // Fill.
  alignas(std::max_align_t) Block block{};
  fill(kernel, args, sizes, range.recorded_step, block);

  // Describe.
  plancap::Launch launch = step_launch(kernel.info(), block.data(), range);
  for_each_operand(kernel, args, [&](const StepRow& row, const TensorRef& tensor) {
    launch.operands.push_back(describe(row, tensor, sizes));
  });
  if (kernel.complete) kernel.complete({args, sizes, block.data(), launch.operands});

  // Choose.
  if (sink.target().backend == plancap::Backend::kCuda) {
    use_geometry(launch, kernel.geometry(sink.target(), block.data()), args.pdl);
  }

  // Launch.
  sink.launch(launch);
}

}  // namespace sdm
