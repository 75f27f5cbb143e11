#include <bit>

#include "kernels/chunk/event_order/event_order.h"
#include "kernels/chunk/event_order/event_order_geometry.h"
#include "kernels/common/launch/chunk_launch.h"
#include "kernels/common/launch/step_launch.h"

namespace sdm {
namespace {

using plancap::FieldInfo;
using plancap::KernelInfo;

constexpr const char* kName = "event_order";

constexpr FieldInfo kFields[] = {
    SDM_FIELD(EventOrderParams, k_idx),        SDM_FIELD(EventOrderParams, q_idx),
    SDM_FIELD(EventOrderParams, sorted_slots), SDM_FIELD(EventOrderParams, order),
    SDM_FIELD(EventOrderParams, outside),      SDM_FIELD(EventOrderParams, num_tokens),
    SDM_FIELD(EventOrderParams, num_slots),    SDM_FIELD(EventOrderParams, key_rows),
    SDM_FIELD(EventOrderParams, key_bits),     SDM_FIELD(EventOrderParams, place_bits),
    SDM_FIELD(EventOrderParams, first_step),   SDM_FIELD(EventOrderParams, num_chunks),
    SDM_FIELD(EventOrderParams, num_parallel), SDM_FIELD(EventOrderParams, chunk_size),
    SDM_FIELD(EventOrderParams, num_writes),   SDM_FIELD(EventOrderParams, num_reads),
    SDM_FIELD(EventOrderParams, wide_k_idx),   SDM_FIELD(EventOrderParams, wide_q_idx),
};

void run_host(const void* params) {
  event_order_host(*static_cast<const EventOrderParams*>(params));
}

// Bits of the numbers below `count`.
int32_t bits_below(int64_t count) { return std::bit_width(static_cast<uint64_t>(count - 1)); }

// The rows that keys are taken from: their number, of each sequence.
void fill_keys(EventOrderParams& params, const EventOrderArgs& args, int64_t p) {
  const int64_t rows = args.bank_rows, slots = args.num_slots;
  SDM_EXPECT(rows >= 1 && rows < int64_t{1} << 31, kValue, kName, "bank_rows", "1..2^31 - 1", rows);
  SDM_EXPECT(slots == 0 || (rows % p == 0 && slots == rows / p), kValue, kName, "num_slots",
             cat("0, or those of each of ", p, " sequences in ", rows, " bank rows"), slots);
  params.num_slots = static_cast<int32_t>(slots);
  params.key_rows = static_cast<int32_t>(slots == 0 ? rows : slots);
  params.key_bits = bits_below(params.key_rows);
}

EventOrderParams check_and_fill(const plancap::Target& target, const EventOrderArgs& args) {
  EventOrderParams params{};
  params.wide_k_idx = expect_indices(kName, "k_idx", args.k_idx, {"P", "T", "W"});
  const int64_t p = args.k_idx.shape[0], t = args.k_idx.shape[1];
  params.wide_q_idx = expect_indices(kName, "q_idx", args.q_idx, {p, t, "R"});
  const ChunkShape shape{t,
                         static_cast<int32_t>(args.first_step),
                         static_cast<int32_t>(p),
                         static_cast<int32_t>(args.chunk_size),
                         static_cast<int32_t>(args.k_idx.shape[2]),
                         static_cast<int32_t>(args.q_idx.shape[2])};
  const int64_t chunks = args.order.ndim == 2 ? args.order.shape[0] : 0;
  expect_chunks(kName, shape, chunks);
  fill_keys(params, args, p);
  expect_tensor(kName, "sorted_slots", args.sorted_slots, Dtype::kInt32, {chunks, shape.events()});
  expect_tensor(kName, "order", args.order, Dtype::kInt32, {chunks, shape.events()});
  expect_device(kName, "k_idx", args.k_idx, target.device);
  expect_device(kName, "q_idx", args.q_idx, target.device);
  expect_device(kName, "sorted_slots", args.sorted_slots, target.device);
  expect_device(kName, "order", args.order, target.device);

  if (args.outside) {
    expect_tensor(kName, "outside", *args.outside, Dtype::kInt64, {2});
    expect_device(kName, "outside", *args.outside, Device{});
    params.outside = static_cast<int64_t*>(args.outside->data);
  }

  params.k_idx = args.k_idx.data;
  params.q_idx = args.q_idx.data;
  params.sorted_slots = static_cast<int32_t*>(args.sorted_slots.data);
  params.order = static_cast<int32_t*>(args.order.data);
  params.place_bits = bits_below(shape.events());
  put_shape(params, shape, chunks);
  return params;
}

}  // namespace

const KernelInfo& event_order_info() {
  static constexpr KernelInfo info =
      plancap::make_kernel_info<EventOrderParams>(kName, kFields, run_host);
  return info;
}

void event_order(plancap::Sink& sink, const EventOrderArgs& args) {
  // Check and fill.
  const EventOrderParams params = check_and_fill(sink.target(), args);

  // Choose.
  plancap::Launch launch;
  launch.kernel = &event_order_info();
  launch.params = &params;
  if (sink.target().backend == plancap::Backend::kCuda) {
    use_geometry(launch, event_order_geometry(sink.target(), params), false);
  }

  // Launch.
  sink.launch(launch);
}

}  // namespace sdm
