// Every chunk's writes and reads in one stable order by slot.
#pragma once
#include <optional>

#include "kernels/chunk/event_order/event_order_params.h"
#include "plancap/capture/sink.h"

namespace sdm {

// N = steps * P chunks, which may be some of the call's; E = C*(W+R).
struct EventOrderArgs {
  TensorRef k_idx;         // int32 or int64 [P, T, W], absolute bank rows
  TensorRef q_idx;         // int32 or int64 [P, T, R]
  TensorRef sorted_slots;  // int32 [N, E], out: ascending bank rows, then -1 for what has none
  TensorRef order;         // int32 [N, E], out: staged places within the chunk
  // int64 [2], in the host's memory, where the target can write it: an outside_word() of k_idx and
  // of q_idx is put there, if there is one.
  std::optional<TensorRef> outside;
  int64_t num_slots = 0;  // rows of a sequence; 0: every sequence has the whole bank
  int64_t bank_rows = 0;
  int64_t chunk_size = 0;
  int64_t first_step = 0;  // of the N chunks
};

// Checks the arguments, chooses the geometry for the sink's target and hands over one launch. A
// slot outside its sequence's rows has none: such events come behind all others, in the order of
// their places, and padding behind them.
void event_order(plancap::Sink& sink, const EventOrderArgs& args);

// The host twin.
void event_order_host(const EventOrderParams& params);

const plancap::KernelInfo& event_order_info();

}  // namespace sdm
