#!/bin/bash
# Builds the standalone check and timing of bf16_linear and runs them on the current GPU.
# usage: tools/tune/bf16_linear_harness/run.sh [RESULTS.jsonl]     (BUILD_ONLY=1: only builds)
# The debug kernels give up a wait after WAIT_SECONDS (2): more for a slow tool, such as racecheck.
set -euo pipefail
cd "$(dirname "$0")/../../.."
results=${1:-build/bf16_linear/results.jsonl}
build=build/bf16_linear
mkdir -p $build/debug $build/release
bounded="-DSDM_BOUNDED_WAIT -DSDM_BOUNDED_WAIT_SECONDS=${WAIT_SECONDS:-2}"
flags="-O3 -std=c++20 -Icsrc -DSDM_WITH_CUDA -gencode=arch=compute_90a,code=sm_90a"
{
  for file in csrc/kernels/linear/bf16_linear/inst/*.cu; do
    name=$(basename "$file" .cu)
    echo "-cubin -o $build/release/$name.cubin $file"
    echo "$bounded -cubin -o $build/debug/$name.cubin $file"
  done
  for name in harness check measure profile main; do
    echo "-c -o $build/$name.o tools/tune/bf16_linear_harness/$name.cu"
  done
  for name in pick maps; do
    echo "-c -o $build/$name.o csrc/kernels/linear/bf16_linear/bf16_linear_$name.cpp"
  done
} | xargs -P "$(nproc)" -I{} sh -c "nvcc $flags {}"
nvcc $flags -o $build/main $build/{harness,check,measure,profile,main,pick,maps}.o
[ -n "${BUILD_ONLY:-}" ] && exit 0
timeout 240 $build/main check $build/debug
timeout 120 $build/main check $build/release
timeout 240 $build/main measure $build/release "$results"
