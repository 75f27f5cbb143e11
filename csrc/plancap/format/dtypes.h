// Element types by name and size.
#pragma once
#include <cstdint>

#include "plancap/format/plan_format.h"

namespace sdm {

using plancap::Dtype;

const char* dtype_name(Dtype dtype);
uint32_t dtype_bytes(Dtype dtype);

}  // namespace sdm
