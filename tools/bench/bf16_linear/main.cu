// bf16_linear without Python: main check CUBINS | main measure CUBINS RESULTS.jsonl
#include <cstring>

#include "harness.h"

int main(int argc, char** argv) {
  if (argc == 3 && std::strcmp(argv[1], "check") == 0) {
    return sdm::bench::check(sdm::bench::Kernels(argv[2])) != 0;
  }
  if (argc == 4 && std::strcmp(argv[1], "measure") == 0) {
    return sdm::bench::measure(sdm::bench::Kernels(argv[2]), argv[3]) != 0;
  }
  std::printf("usage: %s check CUBINS | measure CUBINS RESULTS.jsonl\n", argv[0]);
  return 2;
}
