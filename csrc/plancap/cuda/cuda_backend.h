// CUDA devices as plans and chains know them.
#pragma once

namespace sdm::plancap::cuda {

// Makes this folder the build's CUDA backend. Touches no driver.
void register_backend();

}  // namespace sdm::plancap::cuda
