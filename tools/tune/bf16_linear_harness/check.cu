// Every tactic against a float64 product: values, untouched surroundings, repeated bits, bits with
// programmatic launches, and the bits of a row on its own.
#include <algorithm>
#include <cmath>

#include "harness.h"

namespace sdm::bench {
namespace {

constexpr uint16_t kPoison = 0xffff;  // a bf16 NaN

__device__ double from_bf16(uint16_t bits) { return __uint_as_float(uint32_t{bits} << 16); }

// reference[m, n] and magnitude[m, n] = sum of |products|, one thread each.
__global__ void reference_kernel(double2* out, Bf16LinearOperands in, int m_count, int n_count,
                                 int k_count) {
  const int n = blockIdx.x * blockDim.x + threadIdx.x, m = blockIdx.y;
  if (n >= n_count) return;
  double sum = 0, magnitude = 0;
  for (int k = 0; k < k_count; ++k) {
    const double product =
        from_bf16(in.weight[n * in.weight_stride + k]) * from_bf16(in.x[m * in.x_stride + k]);
    sum += product;
    magnitude += fabs(product);
  }
  if (in.bias != nullptr) sum += from_bf16(in.bias[n]);
  out[size_t(m) * n_count + n] = {sum, magnitude};
}

struct Verdict {
  double error2, norm2;  // sums of squares
  unsigned wrong;        // values outside their bound
  unsigned spilled;      // written elements outside [M, N]
  unsigned different;    // bits unlike the other output's
};

// y covers `lines` rows of y_stride elements, of which [m_count, n_count] is the output.
__global__ void compare_kernel(Verdict* verdict, const uint16_t* y, const uint16_t* other,
                               int64_t y_stride, int lines, const double2* reference, int m_count,
                               int n_count) {
  const int64_t i = blockIdx.x * int64_t{blockDim.x} + threadIdx.x;
  if (i >= lines * y_stride) return;
  const int64_t m = i / y_stride, n = i % y_stride;
  if (m >= m_count || n >= n_count) {
    if (y[i] != kPoison) atomicAdd(&verdict->spilled, 1);
    return;
  }
  if (other != nullptr && y[i] != other[i]) atomicAdd(&verdict->different, 1);
  const double2 want = reference[m * n_count + n];
  const double error = from_bf16(y[i]) - want.x;
  // One rounding to 8 bits (unit roundoff 2^-8), and the f32 sum's own error.
  const double bound = fabs(want.x) * 0x1.02p-8 + want.y * 0x1p-20 + 1e-30;
  if (!(fabs(error) <= bound)) atomicAdd(&verdict->wrong, 1);
  atomicAdd(&verdict->error2, error * error);
  atomicAdd(&verdict->norm2, want.x * want.x);
}

struct Problem {
  Bf16LinearShape shape;
  bool bias;
  int64_t pad;  // elements between rows of x, the weight and y (a multiple of 8)
};

class Case {
 public:
  Case(const Problem& problem, uint64_t seed)
      : shape_(problem.shape),
        weight_(shape_.num_rows * (shape_.depth + problem.pad)),
        x_(shape_.num_tokens * (shape_.depth + problem.pad)),
        bias_(shape_.num_rows),
        y_((shape_.num_tokens + 1) * (shape_.num_rows + problem.pad)),
        again_(y_.count()),
        reference_(shape_.num_tokens * shape_.num_rows),
        verdict_(1) {
    fill_random(weight_, 3 * seed);
    fill_random(x_, 3 * seed + 1);
    fill_random(bias_, 3 * seed + 2);
    in_.weight = weight_.data(), in_.x = x_.data(), in_.y = y_.data();
    in_.bias = problem.bias ? bias_.data() : nullptr;
    in_.weight_stride = in_.x_stride = shape_.depth + problem.pad;
    in_.y_stride = shape_.num_rows + problem.pad;
    const dim3 grid((shape_.num_rows + 127) / 128, shape_.num_tokens);
    reference_kernel<<<grid, 128>>>(reference_.data(), in_, shape_.num_tokens, shape_.num_rows,
                                    shape_.depth);
    CHECK_CUDA(cudaGetLastError());
  }

  // The number of failed checks of one tactic; prints the failures.
  int run(const Kernels& kernels, Bf16LinearChoice choice) {
    int failures = 0;
    y_.poison(0xff);
    kernels.launch(nullptr, in_, shape_, choice, false);
    failures += judge(y_, nullptr, choice, "first run");
    for (const bool pdl : {false, true}) {
      again_.poison(0xff);
      Bf16LinearOperands in = in_;
      in.y = again_.data();
      const Bf16LinearOverlap overlaps[] = {{}, {0, 4}, {2, 16}};
      for (int i = 0; i < (pdl ? 3 : 1); ++i) {
        kernels.launch(nullptr, in, shape_, choice, pdl, overlaps[i]);
      }
      failures += judge(again_, &y_, choice, pdl ? "PDL" : "repeat");
    }
    return failures + single_row(kernels, choice);
  }

 private:
  int judge(const Buffer<uint16_t>& y, const Buffer<uint16_t>* other, Bf16LinearChoice choice,
            const char* what) {
    verdict_.poison(0);
    const auto lines = static_cast<int>(shape_.num_tokens + 1);
    const auto blocks = static_cast<unsigned>((y.count() + 255) / 256);
    compare_kernel<<<blocks, 256>>>(verdict_.data(), y.data(), other ? other->data() : nullptr,
                                    in_.y_stride, lines, reference_.data(), shape_.num_tokens,
                                    shape_.num_rows);
    CHECK_CUDA(cudaGetLastError());
    Verdict verdict;
    CHECK_CUDA(cudaMemcpy(&verdict, verdict_.data(), sizeof verdict, cudaMemcpyDeviceToHost));
    const double error = std::sqrt(verdict.error2 / std::max(verdict.norm2, 1e-300));
    worst_ = std::max(worst_, error);
    // One rounding to bf16 is at most 2^-8 and by norm 1.7e-3, unless only a few values are
    // counted.
    const double most = y.count() < 256 ? 0x1.02p-8 : 3e-3;
    const bool good =
        verdict.wrong == 0 && verdict.spilled == 0 && verdict.different == 0 && error < most;
    if (!good) {
      std::printf("FAIL %s, bias %d, %s: wrong %u, spilled %u, different bits %u, error %.2e\n",
                  describe(shape_, choice).c_str(), in_.bias != nullptr, what, verdict.wrong,
                  verdict.spilled, verdict.different, error);
    }
    return !good;
  }

  // The last row alone has the bits that it has among the others.
  int single_row(const Kernels& kernels, Bf16LinearChoice choice) {
    const int64_t row = shape_.num_tokens - 1;
    again_.poison(0xff);
    Bf16LinearOperands in = in_;
    in.x += row * in.x_stride;
    in.y = again_.data();
    kernels.launch(nullptr, in, {1, shape_.num_rows, shape_.depth}, choice, false);
    std::vector<uint16_t> alone(shape_.num_rows), among(shape_.num_rows);
    const size_t bytes = shape_.num_rows * 2;
    CHECK_CUDA(cudaMemcpy(alone.data(), again_.data(), bytes, cudaMemcpyDeviceToHost));
    CHECK_CUDA(
        cudaMemcpy(among.data(), y_.data() + row * in_.y_stride, bytes, cudaMemcpyDeviceToHost));
    if (alone == among) return 0;
    std::printf("FAIL %s: the last row alone has other bits\n", describe(shape_, choice).c_str());
    return 1;
  }

  Bf16LinearShape shape_;
  Buffer<uint16_t> weight_, x_, bias_, y_, again_;
  Buffer<double2> reference_;
  Buffer<Verdict> verdict_;
  Bf16LinearOperands in_;

 public:
  double worst_ = 0;
};

std::vector<Problem> problems(bool small) {
  if (small) {
    return {{{1, 7, 520}, true, 0},
            {{33, 200, 1032}, false, 8},
            {{129, 130, 520}, true, 0},
            {{9, 65, 72}, true, 0}};
  }
  // Fewer depth tiles than splits, as many, more that no number divides; tokens that end in the
  // tile, also before the last split's share.
  std::vector<Problem> list;
  const int64_t tokens[] = {1, 2, 7, 8, 9, 15, 17, 31, 33, 63, 65, 100, 127, 128, 129};
  const int64_t rows[] = {1, 7, 64, 65, 130, 200};
  const int64_t depths[] = {8, 56, 64, 72, 376, 520, 1032, 1272, 2056};
  int i = 0;
  for (const int64_t m : tokens) {
    for (const int64_t n : rows) {
      for (const int64_t k : depths) {
        if (++i % 5 == 0) list.push_back({{m, n, k}, i % 2 == 0, i % 3 == 0 ? 8 : 0});
      }
    }
  }
  const int64_t large[][2] = {{1024, 2048}, {2112, 7168}, {4096, 4096}, {11008, 4096}};
  for (const auto& [n, k] : large) {
    for (const int64_t m : {1, 33, 129}) list.push_back({{m, n, k}, m > 1, 0});
  }
  return list;
}

}  // namespace

int check(const Kernels& kernels, bool small, const std::string& match) {
  int failures = 0, runs = 0;
  double worst = 0;
  for (const Problem& problem : problems(small)) {
    Case one(problem, 17 + runs);
    for (const Bf16LinearChoice choice : all_choices()) {
      if (name(choice).find(match) == std::string::npos) continue;
      failures += one.run(kernels, choice);
      ++runs;
      if (failures > 40) {
        std::printf("too many failures\n");
        return failures;
      }
    }
    worst = std::max(worst, one.worst_);
  }
  std::printf("check: %d runs, %d failed, largest error by norm %.2e\n", runs, failures, worst);
  return failures + (runs == 0);
}

}  // namespace sdm::bench
