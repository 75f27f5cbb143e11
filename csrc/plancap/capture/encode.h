// A recorded launch as bytes.
#pragma once
#include <cstddef>
#include <vector>

#include "plancap/capture/sink.h"
#include "plancap/format/kernel_info.h"

namespace sdm::plancap {

// Serializes a launch of a device function in the image of this hash. Pointer fields leave as
// zeros: a relocation says what belongs there. Throws kInternal for a launch that does not describe
// its own parameter block.
std::vector<std::byte> encode_plan(const Launch& launch, const Target& target,
                                   const ImageHash& image_hash);

}  // namespace sdm::plancap
