// Plain bits on their way between global memory, shared rings and registers, moved by the widest
// access that their size allows.
#pragma once
#include <cstdint>

#include "kernels/common/ptx/ptx.cuh"

namespace sdm {

template <int kBytes>
struct alignas(kBytes < 16 ? kBytes : 16) RawBits {
  static_assert(kBytes == 4 || kBytes == 8 || kBytes % 16 == 0);
  uint32_t word[kBytes / 4];
};
template <>
struct alignas(2) RawBits<2> {
  uint16_t word[1];
};

// From L2, into registers.
template <int kBytes>
__device__ __forceinline__ RawBits<kBytes> load_bits(const char* from) {
  RawBits<kBytes> bits;
  if constexpr (kBytes == 2) {
    bits.word[0] = ptx::load_l2(reinterpret_cast<const uint16_t*>(from));
  } else if constexpr (kBytes == 4) {
    bits.word[0] = ptx::load_l2(reinterpret_cast<const uint32_t*>(from));
  } else if constexpr (kBytes == 8) {
    const uint2 v = ptx::load_l2(reinterpret_cast<const uint2*>(from));
    bits.word[0] = v.x, bits.word[1] = v.y;
  } else {
#pragma unroll
    for (int i = 0; i < kBytes / 16; ++i) {
      const uint4 v = ptx::load_l2(reinterpret_cast<const uint4*>(from) + i);
      bits.word[4 * i] = v.x, bits.word[4 * i + 1] = v.y;
      bits.word[4 * i + 2] = v.z, bits.word[4 * i + 3] = v.w;
    }
  }
  return bits;
}

// The same bits, to be decoded anew: fewer registers than their floats, where those are seldom
// used.
template <int kBytes>
__device__ __forceinline__ RawBits<kBytes> decoded_later(RawBits<kBytes> bits) {
  if constexpr (kBytes >= 4) {
#pragma unroll
    for (int i = 0; i < kBytes / 4; ++i) bits.word[i] = ptx::opaque(bits.word[i]);
  }
  return bits;
}

// From shared memory, or from global memory through L1.
template <int kBytes>
__device__ __forceinline__ RawBits<kBytes> read_bits(const void* from) {
  RawBits<kBytes> bits;
  if constexpr (kBytes == 8) {
    const uint2 v = *static_cast<const uint2*>(from);
    bits.word[0] = v.x, bits.word[1] = v.y;
  } else if constexpr (kBytes >= 16) {
#pragma unroll
    for (int i = 0; i < kBytes / 16; ++i) {
      const uint4 v = static_cast<const uint4*>(from)[i];
      bits.word[4 * i] = v.x, bits.word[4 * i + 1] = v.y;
      bits.word[4 * i + 2] = v.z, bits.word[4 * i + 3] = v.w;
    }
  } else {
    bits = *static_cast<const RawBits<kBytes>*>(from);
  }
  return bits;
}

// From global memory through L1, started where it is written.
template <int kBytes>
__device__ __forceinline__ RawBits<kBytes> read_bits_now(const char* from) {
  if constexpr (kBytes < 16) {
    return read_bits<kBytes>(from);
  } else {
    RawBits<kBytes> bits;
#pragma unroll
    for (int i = 0; i < kBytes / 16; ++i) {
      const uint4 v = ptx::load_now(reinterpret_cast<const uint4*>(from) + i);
      bits.word[4 * i] = v.x, bits.word[4 * i + 1] = v.y;
      bits.word[4 * i + 2] = v.z, bits.word[4 * i + 3] = v.w;
    }
    return bits;
  }
}

// Into this thread's part of a stage of a ring; there after copy_wait().
template <int kBytes>
__device__ __forceinline__ void fetch_bits(RawBits<kBytes>* to, const char* from) {
  if constexpr (kBytes == 2) {  // no asynchronous copy is this small
    to->word[0] = ptx::load_l2(reinterpret_cast<const uint16_t*>(from));
  } else if constexpr (kBytes <= 16) {
    ptx::copy_async<kBytes>(to, from);
  } else {
#pragma unroll
    for (int i = 0; i < kBytes / 16; ++i) {
      ptx::copy_async<16>(reinterpret_cast<char*>(to) + 16 * i, from + 16 * i);
    }
  }
}

// The same through L1, each 16 bytes into a plane of a PlanesRing.
template <int kBytes>
__device__ __forceinline__ void fetch_planes_cached(char* to, int32_t plane_bytes,
                                                    const char* from) {
  static_assert(kBytes % 16 == 0);
#pragma unroll
  for (int i = 0; i < kBytes / 16; ++i) {
    ptx::copy_async_cached(to + i * plane_bytes, from + 16 * i);
  }
}

template <int kBytes>
__device__ __forceinline__ void store_bits(char* to, const RawBits<kBytes>& bits) {
  if constexpr (kBytes == 8) {
    *reinterpret_cast<uint2*>(to) = make_uint2(bits.word[0], bits.word[1]);
  } else if constexpr (kBytes >= 16) {
#pragma unroll
    for (int i = 0; i < kBytes / 16; ++i) {
      reinterpret_cast<uint4*>(to)[i] = make_uint4(bits.word[4 * i], bits.word[4 * i + 1],
                                                   bits.word[4 * i + 2], bits.word[4 * i + 3]);
    }
  } else {
    *reinterpret_cast<RawBits<kBytes>*>(to) = bits;
  }
}

}  // namespace sdm
