#!/usr/bin/env bash
# Builds the host backend with AddressSanitizer and UndefinedBehaviorSanitizer, into
# build/sanitize, and runs tests on it: those given, or the kernels' and the plan runtime's.
#     tools/dev/sanitize_host.sh [pytest arguments]
# Any finding ends the run with an error. GCC; PYTHON names an interpreter that can run the tests.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
python=${PYTHON:-python3}
build=build/sanitize
site=$PWD/$build/site
# One instruction set, this machine's: the twins' text is the same for all.
flags="-O1 -g1 -march=native -DSDM_NO_MULTIVERSION -fno-omit-frame-pointer"
flags+=" -fsanitize=address,undefined -fno-sanitize-recover=all"

# A copy of the package, so that its extension is the sanitized one and no other.
mkdir -p "$site/sdm_runtime"
rm -rf "$site"/sdm_runtime/*
cp -r sdm_runtime "$site/"
rm -rf "$site"/sdm_runtime/{_core*.so,device}
# An editable install would lead back to the other one.
cat >"$site/sitecustomize.py" <<'END'
import sys

sys.meta_path[:] = [f for f in sys.meta_path if "_editable" not in type(f).__module__]
END

cmake -S . -B "$build" -G Ninja -DCMAKE_BUILD_TYPE=None -DSDM_CUDA=OFF -DSDM_TESTING=ON \
  -DCMAKE_CXX_FLAGS="$flags" -DCMAKE_LIBRARY_OUTPUT_DIRECTORY="$site/sdm_runtime" \
  -DPython_EXECUTABLE="$("$python" -c 'import sys; print(sys.executable)')" \
  -Dpybind11_DIR="$("$python" -m pybind11 --cmakedir)"
cmake --build "$build" -j "${JOBS:-2}"

# The interpreter is not built with the sanitizers: their runtime comes first, and what Python and
# torch keep until they exit is no leak of ours. A SEGV stays one: a test plants it.
preload=()
for name in libasan.so libubsan.so libstdc++.so; do
  preload+=("$("${CXX:-g++}" -print-file-name=$name)")
done
run() {
  LD_PRELOAD="${preload[*]}" PYTHONPATH="$site" UBSAN_OPTIONS=print_stacktrace=1 \
    OMP_WAIT_POLICY=passive \
    ASAN_OPTIONS=detect_leaks=0:alloc_dealloc_mismatch=0:handle_segv=0 \
    "$python" -P "$@"
}

# The control: a planted overflow must be found.
if run tools/dev/sanitize_control.py >"$build/control.log" 2>&1 ||
  ! grep -q heap-buffer-overflow "$build/control.log"; then
  cat "$build/control.log"
  echo "sanitize_host.sh: expected a planted overflow to be found, got none" >&2
  exit 1
fi

# The emulated device code switches stacks, which the sanitizers do not follow.
[ $# -gt 0 ] || set -- tests/kernels tests/plan tests/tensor --ignore-glob="*/test_emulated*"
run -m pytest -p no:cacheprovider -q "$@"
