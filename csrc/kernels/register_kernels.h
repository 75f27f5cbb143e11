// Puts every kernel into the registry. Called once, by the bindings.
#pragma once

namespace sdm {

void register_kernels();

}  // namespace sdm
