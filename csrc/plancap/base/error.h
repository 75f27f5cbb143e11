// Errors with the Python exception kind chosen where they are thrown.
#pragma once
#include <charconv>
#include <cstdint>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <type_traits>

namespace sdm {

enum class ErrorKind {
  kValue,     // ValueError: a caller's mistake in a value or shape
  kType,      // TypeError: a caller's mistake in a dtype or kind
  kPlan,      // PlanError: a plan that is damaged, foreign or bound wrongly
  kCuda,      // CudaError: a driver or library call failed
  kMemory,    // CudaOutOfMemoryError: a driver or library call found no memory
  kInternal,  // RuntimeError: our bug
};

class Error : public std::runtime_error {
 public:
  Error(ErrorKind kind, const std::string& message) : std::runtime_error(message), kind_(kind) {}
  ErrorKind kind() const { return kind_; }

  // Of a run that failed: the launches that it had issued. The first to note them is right.
  std::optional<uint64_t> issued() const { return issued_; }
  void note_issued(uint64_t launches) {
    if (!issued_) issued_ = launches;
  }

 private:
  ErrorKind kind_;
  std::optional<uint64_t> issued_;
};

inline void append(std::string& text, std::string_view part) { text += part; }

template <typename T>
  requires std::is_arithmetic_v<T>
void append(std::string& text, T part) {
  if constexpr (std::is_same_v<T, char>) {
    text += part;
  } else if constexpr (std::is_same_v<T, bool>) {
    text += part ? "true" : "false";
  } else {
    char digits[64];  // the shortest form of any double takes 24
    text.append(digits, std::to_chars(digits, digits + sizeof(digits), part).ptr);
  }
}

// An address, as 0x...; text pointers are text.
template <typename T>
  requires(std::is_pointer_v<T> &&
           !std::is_same_v<std::remove_cv_t<std::remove_pointer_t<T>>, char>)
void append(std::string& text, T address) {
  char digits[2 * sizeof(address)];
  const auto value = reinterpret_cast<uintptr_t>(address);
  text += "0x";
  text.append(digits, std::to_chars(digits, digits + sizeof(digits), value, 16).ptr);
}

// The parts as one string: cat("expected ", 3, ", got ", n). Made without streams: those depend on
// the process's locale, and an extension that carries its own libstdc++ may not share that state.
template <typename... Parts>
std::string cat(const Parts&... parts) {
  std::string text;
  (append(text, parts), ...);
  return text;
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
