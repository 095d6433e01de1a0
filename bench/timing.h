#pragma once

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <string>
#include <thread>
#include <vector>

namespace bench {

inline double now_us() {
  return std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

inline void relax() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#endif
}

// Makes threads start together, to within a core-to-core latency. Spins; yields only when somebody is very late.
class SpinBarrier {
 public:
  explicit SpinBarrier(int threads) : threads_(threads) {}

  void wait() {
    const auto seen = generation_.load(std::memory_order_acquire);
    if (arrived_.fetch_add(1, std::memory_order_acq_rel) + 1 == threads_) {
      arrived_.store(0, std::memory_order_relaxed);
      generation_.fetch_add(1, std::memory_order_release);
      return;
    }
    for (int spins = 0; generation_.load(std::memory_order_acquire) == seen; ++spins) {
      if (spins < 100'000) relax();
      else std::this_thread::yield();
    }
  }

 private:
  const int threads_;
  std::atomic<int> arrived_{0};
  std::atomic<std::uint32_t> generation_{0};
};

inline double quantile(std::vector<double> values, double q) {
  if (values.empty()) return 0;
  const auto at = static_cast<std::size_t>(q * static_cast<double>(values.size() - 1) + 0.5);
  std::nth_element(values.begin(), values.begin() + static_cast<std::ptrdiff_t>(at), values.end());
  return values[at];
}

// Microseconds of many calls, measured in rounds that alternate with those of other candidates.
class Sample {
 public:
  Sample(std::string name, std::int64_t bytes) : name_(std::move(name)), bytes_(bytes) {}

  void add_round(const std::vector<double>& calls) {
    round_medians_.push_back(quantile(calls, 0.5));
    all_.insert(all_.end(), calls.begin(), calls.end());
  }

  // One JSON object on a line of its own.
  void print() const {
    std::printf(
        "{\"name\": \"%s\", \"bytes\": %lld, \"p50_us\": %.3f, \"min_us\": %.3f, \"p99_us\": %.3f, \"calls\": %zu, "
        "\"samples\": [",
        name_.c_str(), static_cast<long long>(bytes_), quantile(all_, 0.5), quantile(all_, 0), quantile(all_, 0.99),
        all_.size());
    for (std::size_t i = 0; i < round_medians_.size(); ++i) std::printf("%s%.3f", i > 0 ? ", " : "", round_medians_[i]);
    std::printf("]}\n");
    std::fflush(stdout);
  }

 private:
  const std::string name_;
  const std::int64_t bytes_;
  std::vector<double> round_medians_;
  std::vector<double> all_;
};

}  // namespace bench
