// Errors with the Python exception kind chosen where they are thrown.
#pragma once
#include <sstream>
#include <stdexcept>
#include <string>

namespace sdm {

enum class ErrorKind {
  kValue,     // ValueError: a caller's mistake in a value or shape
  kType,      // TypeError: a caller's mistake in a dtype or kind
  kPlan,      // PlanError: a plan that is damaged, foreign or bound wrongly
  kCuda,      // CudaError: a driver call failed
  kInternal,  // RuntimeError: our bug
};

class Error : public std::runtime_error {
 public:
  Error(ErrorKind kind, const std::string& message) : std::runtime_error(message), kind_(kind) {}
  ErrorKind kind() const { return kind_; }

 private:
  ErrorKind kind_;
};

// The parts streamed into one string: cat("expected ", 3, ", got ", n).
template <typename... Parts>
std::string cat(const Parts&... parts) {
  std::ostringstream out;
  (out << ... << parts);
  return out.str();
}

// A caller's mistake: SDM_EXPECT(n > 0, kValue, "gx_gemm", "steps", "at least 1", n).
#define SDM_EXPECT(condition, error_kind, where, argument, expected, given)                  \
  do {                                                                                       \
    if (!(condition)) {                                                                      \
      throw ::sdm::Error(                                                                    \
          ::sdm::ErrorKind::error_kind,                                                      \
          ::sdm::cat("[", where, "] ", argument, ": expected ", expected, ", got ", given)); \
    }                                                                                        \
  } while (0)

// Our own bug, never a caller's: the message says so.
#define SDM_INTERNAL_CHECK(condition, ...)                                             \
  do {                                                                                 \
    if (!(condition)) {                                                                \
      throw ::sdm::Error(                                                              \
          ::sdm::ErrorKind::kInternal,                                                 \
          ::sdm::cat("internal error in sdm_runtime (please report): ", __VA_ARGS__)); \
    }                                                                                  \
  } while (0)

}  // namespace sdm
