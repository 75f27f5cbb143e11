// A warp's positions of a chunk. Most events have their slot to themselves and are done as they are
// met; the starts of other runs are put together first, so that walks keep all lanes busy and no
// lane waits for another kind's.
#pragma once
#include "kernels/chunk/chunk_gradients/chunk_gradients_block.h"
#include "kernels/common/records/chunk_runs.h"

namespace sdm {

class WarpRuns {
 public:
  // Of the `warps` that share `size` events; `lists` are those of the block's.
  __device__ __forceinline__ WarpRuns(const ChunkEvent* events, int32_t size, int32_t warp,
                                      int32_t warps, char* lists)
      : events_(events),
        span_(warp_span(size, warps)),
        first_(warp * span_),
        end_(min(first_ + span_, size)),
        list_(reinterpret_cast<uint16_t*>(lists) +
              static_cast<int32_t>(threadIdx.x) / kWarpLanes * span_) {}

  // Lists the runs, and calls alone(event) for non-padding events that are alone. By all lanes.
  template <typename Alone>
  __device__ __forceinline__ void find(const Alone& alone) {
    constexpr int32_t kBatch = 2;  // loads of a lane under way at once
    for (int32_t row = 0; row < span_; row += kBatch * kWarpLanes) {
      ChunkEvent events[kBatch];
#pragma unroll
      for (int32_t b = 0; b < kBatch; ++b) events[b] = load(row + b * kWarpLanes + lane());
#pragma unroll
      for (int32_t b = 0; b < kBatch; ++b) take(events[b], row + b * kWarpLanes + lane(), alone);
    }
    __syncwarp();
  }

  // visit(position) for the start of every run of writes, or of reads, but those alone.
  template <typename Visit>
  __device__ __forceinline__ void for_writes(const Visit& visit) const {
    for (int32_t i = lane(); i < writes_; i += kWarpLanes) visit(first_ + list_[i]);
  }
  template <typename Visit>
  __device__ __forceinline__ void for_reads(const Visit& visit) const {
    for (int32_t i = lane(); i < reads_; i += kWarpLanes) visit(first_ + list_[span_ - 1 - i]);
  }

  // visit(position) from the warp's last position back, by each lane while it is true.
  template <typename Visit>
  __device__ __forceinline__ void for_last(const Visit& visit) const {
#pragma unroll 1
    for (int32_t at = end_ - 1 - lane(); at >= first_ && visit(at); at -= kWarpLanes) {
    }
  }

 private:
  static constexpr uint32_t kPadding = kRecordFirst | kRecordLast | kRecordInvalid;

  __device__ static __forceinline__ int32_t lane() {
    return static_cast<int32_t>(threadIdx.x) % kWarpLanes;
  }

  // 16 bytes at once.
  __device__ __forceinline__ ChunkEvent load(int32_t offset) const {
    if (first_ + offset >= end_) return {0.0, 0.0f, kPadding};
    const uint4 bits = *reinterpret_cast<const uint4*>(events_ + first_ + offset);
    return __builtin_bit_cast(ChunkEvent, bits);
  }

  template <typename Alone>
  __device__ __forceinline__ void take(const ChunkEvent& event, int32_t offset,
                                       const Alone& alone) {
    const bool opens = !event_alone(event.word) && opens_run(events_, first_ + offset, event.word);
    const uint32_t writes = __ballot_sync(~0u, opens && !event_read(event.word));
    const uint32_t reads = __ballot_sync(~0u, opens && event_read(event.word));
    const uint32_t below = (1u << lane()) - 1u;
    if (opens) {
      // Writes from the list's front, reads from its back.
      const int32_t at = event_read(event.word) ? span_ - 1 - (reads_ + __popc(reads & below))
                                                : writes_ + __popc(writes & below);
      list_[at] = static_cast<uint16_t>(offset);
    }
    writes_ += __popc(writes);
    reads_ += __popc(reads);
    if (event_alone(event.word) && !record_invalid(event.word)) alone(event);
  }

  const ChunkEvent* events_;
  const int32_t span_, first_, end_;
  uint16_t* list_;
  int32_t writes_ = 0, reads_ = 0;
};

}  // namespace sdm
