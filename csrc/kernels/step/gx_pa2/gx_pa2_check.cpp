#include "kernels/common/launch/step_launch.h"
#include "kernels/step/gx_pa2/gx_pa2.h"

namespace sdm {
namespace {

constexpr const char* kName = "gx_pa2";

bool quantized(RowType type) { return type == RowType::kFloat8E4M3 || type == RowType::kInt4; }

// The snapshot's row type from its dtype and its last dimension.
RowType check_snap_type(const GxPa2Args& args, int64_t hd) {
  const TensorRef& snap = args.snap;
  SDM_EXPECT(snap.ndim >= 2, kValue, kName, "snap", "rows of one snapshot in the last dimension",
             snap.describe());
  const int64_t last = snap.shape[snap.ndim - 1];
  if (snap.dtype == Dtype::kUint8 || snap.dtype == Dtype::kFloat8E4M3) {
    const bool int4 = snap.dtype == Dtype::kUint8 && 2 * last == hd;
    SDM_EXPECT(int4 || last == hd, kValue, kName, "snap",
               cat("e4m3 [..., ", hd, "] or, for an even hd, int4 pairs uint8 [..., hd/2]"),
               snap.describe());
    return int4 ? RowType::kInt4 : RowType::kFloat8E4M3;
  }
  const bool float32_bank = args.bank.dtype == Dtype::kFloat32;
  SDM_EXPECT(snap.dtype == Dtype::kBFloat16 || (snap.dtype == Dtype::kFloat32 && float32_bank),
             kType, kName, "snap",
             float32_bank ? "float32, bfloat16, float8_e4m3fn or uint8 (the bank is float32)"
                          : "bfloat16, float8_e4m3fn or uint8 (the bank is bfloat16)",
             snap.describe());
  SDM_EXPECT(last == hd, kValue, kName, "snap", cat(dtype_name(snap.dtype), " [..., ", hd, "]"),
             snap.describe());
  return snap.dtype == Dtype::kBFloat16 ? RowType::kBFloat16 : RowType::kFloat32;
}

void check_scales(const GxPa2Args& args, RowType snap_type, int64_t snap_rows) {
  if (!quantized(snap_type)) {
    SDM_EXPECT(!args.scales, kValue, kName, "scales", "none (snapshots are not quantized)",
               args.scales->describe());
    return;
  }
  SDM_EXPECT(args.scales, kValue, kName, "scales",
             cat("float32 with ", snap_rows, " elements (snapshots are quantized)"), "none");
  expect_numel(kName, "scales", *args.scales, Dtype::kFloat32, snap_rows);
}

// Which snapshot row belongs to a group: the dense layout with bpre, or one row per entry.
int64_t check_layout(const GxPa2Args& args, int64_t chunks, int64_t entries, int64_t snap_rows) {
  SDM_EXPECT(args.bpre.has_value() != args.snap_step_rows.has_value(), kValue, kName,
             "bpre, snap_step_rows", "exactly one of the two", args.bpre ? "both" : "neither");
  const int64_t step_rows = args.num_parallel * entries;
  if (args.bpre) {
    expect_tensor(kName, "bpre", *args.bpre, Dtype::kInt32, {chunks, (entries + 31) / 32 + 1});
    SDM_EXPECT(snap_rows == chunks * entries, kValue, kName, "snap",
               cat(chunks * entries, " rows (the dense layout)"), args.snap.describe());
    return step_rows;
  }
  SDM_EXPECT(*args.snap_step_rows >= step_rows, kValue, kName, "snap_step_rows",
             cat("at least ", step_rows, " (num_parallel * chunk_size * num_writes)"),
             *args.snap_step_rows);
  const int64_t steps_before_last = chunks / args.num_parallel - 1;
  SDM_EXPECT(
      steps_before_last == 0 || *args.snap_step_rows <= (snap_rows - step_rows) / steps_before_last,
      kValue, kName, "snap", cat(steps_before_last, " * snap_step_rows + ", step_rows, " rows"),
      args.snap.describe());
  SDM_EXPECT(snap_rows >= step_rows, kValue, kName, "snap", cat("at least ", step_rows, " rows"),
             args.snap.describe());
  return *args.snap_step_rows;
}

void check_devices(const plancap::Target& target, const GxPa2Args& args) {
  expect_device(kName, "grad", args.grad, target.device);
  expect_device(kName, "bank", args.bank, target.device);
  expect_device(kName, "snap", args.snap, target.device);
  expect_device(kName, "d_u", args.d_u, target.device);
  expect_device(kName, "beta", args.beta, target.device);
  expect_device(kName, "rec", args.rec, target.device);
  expect_device(kName, "out_eff", args.out_eff, target.device);
  expect_device(kName, "out_g", args.out_g, target.device);
  if (args.kpay) expect_device(kName, "kpay", *args.kpay, target.device);
  if (args.bpre) expect_device(kName, "bpre", *args.bpre, target.device);
  if (args.scales) expect_device(kName, "scales", *args.scales, target.device);
}

}  // namespace

GxPa2Sizes check_gx_pa2(const plancap::Target& target, const GxPa2Args& args) {
  expect_chunk_size(kName, args.chunk_size);
  expect_entries(kName, "num_writes", args.num_writes);
  const int64_t entries = args.chunk_size * args.num_writes;
  const RowType bank_type = expect_bank_rows(kName, "bank", args.bank);
  const int64_t hd = args.bank.shape[1];
  const RowType grad_type = expect_grad_of_bank(kName, args.grad, args.bank);

  expect_records(kName, "rec", args.rec, entries);
  const int64_t n = args.rec.shape[0];
  expect_num_parallel(kName, n, args.num_parallel);
  if (args.kpay) expect_tensor(kName, "kpay", *args.kpay, Dtype::kInt32, {n, entries});
  expect_token_rows(kName, "d_u", args.d_u, n, args.chunk_size, hd);
  expect_tensor(kName, "beta", args.beta, Dtype::kFloat32, {n * args.chunk_size});
  expect_planes(kName, "out_eff", args.out_eff, hd, n * entries);
  expect_planes(kName, "out_g", args.out_g, hd, n * entries);

  const RowType snap_type = check_snap_type(args, hd);
  expect_contiguous(kName, "snap", args.snap);
  const int64_t last = args.snap.shape[args.snap.ndim - 1];
  const int64_t snap_rows = args.snap.numel() / last;
  const int64_t snap_step_rows = check_layout(args, n, entries, snap_rows);
  check_scales(args, snap_type, snap_rows);
  check_devices(target, args);
  return {n,         entries,   hd,       last * dtype_bytes(args.snap.dtype), snap_step_rows,
          bank_type, snap_type, grad_type};
}

}  // namespace sdm
