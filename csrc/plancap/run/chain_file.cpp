#include <cstring>

#include "plancap/base/crc32.h"
#include "plancap/format/file_header.h"
#include "plancap/run/chain.h"

namespace sdm::plancap {
namespace {

#define SDM_CHAIN_CHECK(condition, byte, ...) \
  SDM_FORMAT_CHECK("chain", condition, byte, __VA_ARGS__)

void check_header(const ChainHeader& header) {
  SDM_CHAIN_CHECK(header.steps >= 1 && header.steps <= 0x7fffffff, offsetof(ChainHeader, steps),
                  header.steps, " steps, expected 1..2^31-1");
  SDM_CHAIN_CHECK(header.num_plans >= 1, offsetof(ChainHeader, num_plans), "no plan in it");
  SDM_CHAIN_CHECK(header.order <= static_cast<uint32_t>(StepOrder::kAscending),
                  offsetof(ChainHeader, order), "step order ", header.order,
                  ", expected 0 (last step first) or 1 (first step first)");
}

}  // namespace

std::vector<std::byte> encode_chain(std::span<const std::shared_ptr<const Plan>> plans,
                                    uint32_t steps, StepOrder order) {
  check_together(plans, steps);
  ChainHeader header{};
  header.magic = kChainMagic;
  header.version = kFormatVersion;
  header.oldest_reader = kOldestReader;
  header.header_bytes = sizeof(ChainHeader);
  header.steps = steps;
  header.num_plans = static_cast<uint32_t>(plans.size());
  header.order = static_cast<uint32_t>(order);

  std::vector<std::byte> bytes(sizeof(ChainHeader) + plans.size() * sizeof(ChainEntry));
  for (size_t i = 0; i < plans.size(); ++i) {
    const ChainEntry entry{bytes.size(), plans[i]->bytes().size()};
    std::memcpy(bytes.data() + sizeof(ChainHeader) + i * sizeof(ChainEntry), &entry, sizeof(entry));
    bytes.insert(bytes.end(), plans[i]->bytes().begin(), plans[i]->bytes().end());
  }
  header.total_bytes = bytes.size();
  std::memcpy(bytes.data(), &header, sizeof(header));
  header.checksum = crc32(std::span(bytes).subspan(offsetof(ChainHeader, version)));
  std::memcpy(bytes.data(), &header, sizeof(header));
  return bytes;
}

DecodedChain decode_chain(std::span<const std::byte> bytes) {
  const auto header = read_header<ChainHeader>("chain", kChainMagic, bytes);
  check_header(header);

  DecodedChain chain;
  chain.steps = header.steps;
  chain.order = static_cast<StepOrder>(header.order);
  const uint64_t table_end = sizeof(ChainHeader) + uint64_t{header.num_plans} * sizeof(ChainEntry);
  SDM_CHAIN_CHECK(table_end <= bytes.size(), offsetof(ChainHeader, num_plans), header.num_plans,
                  " plans do not fit into ", bytes.size(), " bytes");
  uint64_t next = table_end;
  for (uint32_t i = 0; i < header.num_plans; ++i) {
    const size_t at = sizeof(ChainHeader) + i * sizeof(ChainEntry);
    ChainEntry entry;
    std::memcpy(&entry, bytes.data() + at, sizeof(entry));
    SDM_CHAIN_CHECK(entry.offset == next && entry.size <= bytes.size() - next, at, "plan ", i,
                    " lies at ", entry.offset, " with ", entry.size, " bytes, expected at ", next);
    const auto part = bytes.subspan(entry.offset, entry.size);
    try {
      chain.plans.push_back(Plan::decode({part.begin(), part.end()}));
    } catch (const Error& error) {
      throw Error(error.kind(),
                  cat("chain: plan ", i, " at byte ", entry.offset, ": ", error.what()));
    }
    SDM_CHAIN_CHECK(chain.plans.back()->header().steps >= header.steps, at, "plan ", i, " covers ",
                    chain.plans.back()->header().steps, " steps, the chain has ", header.steps);
    next += entry.size;
  }
  SDM_CHAIN_CHECK(next == bytes.size(), next, "bytes after the last plan");
  check_together(chain.plans, chain.steps);
  return chain;
}

}  // namespace sdm::plancap
