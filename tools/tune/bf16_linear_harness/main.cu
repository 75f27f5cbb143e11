// bf16_linear without Python: kUsage.
#include <cstring>

#include "harness.h"

namespace {
constexpr const char* kUsage =
    "usage: main check CUBINS [all|small [MATCH]]    MATCH: in \"bf16_linear_r64_t8_k128_s6 x3\"\n"
    "       main measure CUBINS RESULTS.jsonl [M...]\n"
    "       main profile CUBINS M N K ENTRY SPLITS PDL\n";
}  // namespace

int main(int argc, char** argv) {
  if (argc >= 3 && argc <= 5 && std::strcmp(argv[1], "check") == 0) {
    const bool small = argc > 3 && std::strcmp(argv[3], "small") == 0;
    return sdm::bench::check(sdm::bench::Kernels(argv[2]), small, argc > 4 ? argv[4] : "") != 0;
  }
  if (argc >= 4 && std::strcmp(argv[1], "measure") == 0) {
    std::vector<int64_t> tokens;
    for (int i = 4; i < argc; ++i) tokens.push_back(std::atoll(argv[i]));
    if (tokens.empty()) tokens = {1, 8, 32, 64, 128};
    return sdm::bench::measure(sdm::bench::Kernels(argv[2]), argv[3], tokens) != 0;
  }
  if (argc == 9 && std::strcmp(argv[1], "profile") == 0) {
    const sdm::Bf16LinearShape shape{std::atoll(argv[3]), std::atoll(argv[4]), std::atoll(argv[5])};
    return sdm::bench::profile(sdm::bench::Kernels(argv[2]), shape, argv[6], std::atoi(argv[7]),
                               std::atoi(argv[8]) != 0);
  }
  std::fputs(kUsage, stdout);
  return 2;
}
