#!/usr/bin/env bash
# Builds the extension in place, into build/dev, for work in a checkout: run with PYTHONPATH=<checkout>.
# Options are passed on to CMake: tools/dev/dev_build.sh -DCMAKE_BUILD_TYPE=Debug
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
python=${PYTHON:-python3}
cmake -S . -B build/dev -G Ninja -DCMAKE_LIBRARY_OUTPUT_DIRECTORY="$PWD/sdm_runtime" \
  -DSDM_TESTING=ON \
  -DPython_EXECUTABLE="$(command -v "$python")" \
  -Dpybind11_DIR="$("$python" -m pybind11 --cmakedir)" "$@" >build-dev.log 2>&1 ||
  { cat build-dev.log; exit 1; }
rm -f build-dev.log
cmake --build build/dev -j "${JOBS:-2}"
