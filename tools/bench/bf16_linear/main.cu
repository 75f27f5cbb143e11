// bf16_linear without Python: kUsage.
#include <cstring>

#include "harness.h"

namespace {
constexpr const char* kUsage =
    "usage: main check CUBINS [small]\n"
    "       main measure CUBINS RESULTS.jsonl\n"
    "       main profile CUBINS M N K ENTRY SPLITS PDL\n";
}  // namespace

int main(int argc, char** argv) {
  if ((argc == 3 || argc == 4) && std::strcmp(argv[1], "check") == 0) {
    return sdm::bench::check(sdm::bench::Kernels(argv[2]), argc == 4) != 0;
  }
  if (argc == 4 && std::strcmp(argv[1], "measure") == 0) {
    return sdm::bench::measure(sdm::bench::Kernels(argv[2]), argv[3]) != 0;
  }
  if (argc == 9 && std::strcmp(argv[1], "profile") == 0) {
    const sdm::Bf16LinearShape shape{std::atoll(argv[3]), std::atoll(argv[4]), std::atoll(argv[5])};
    return sdm::bench::profile(sdm::bench::Kernels(argv[2]), shape, argv[6], std::atoi(argv[7]),
                               std::atoi(argv[8]) != 0);
  }
  std::fputs(kUsage, stdout);
  return 2;
}
