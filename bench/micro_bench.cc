// What single calls cost: run() of nothing, and all-reduce inside run(). One JSON line for each figure, times in
// microseconds; "samples" are the medians of the rounds. Options: --rounds=7, --marker (only the machine's marker).

#include <cstdio>
#include <cstring>
#include <exception>
#include <thread>

#include "bench/all_reduce_bench.h"
#include "bench/timing.h"
#include "lockstep/lockstep.h"

namespace bench {
namespace {

namespace ls = lockstep;

// The marker of the machine's state: a round trip of one cache line between two spinning threads. It flips between two
// values within minutes here, and everything that two cores do together moves with it.
std::vector<double> measure_marker() {
  constexpr int kCalls = 2000;
  constexpr double kLimit = 50'000;  // on a busy machine a round trip can take a scheduler's time slice
  constexpr int kStop = -1;
  std::atomic<int> ball{0};
  std::thread other([&] {
    for (int seen = 0;; relax()) {
      const int now = ball.load(std::memory_order_acquire);
      if (now == kStop) return;
      if (now == seen) continue;
      seen = now + 1;
      ball.store(seen, std::memory_order_release);
    }
  });
  std::vector<double> times;
  const double start = now_us();
  for (int i = 0; i < kCalls && now_us() - start < kLimit; ++i) {
    const double begin = now_us();
    ball.store(2 * i + 1, std::memory_order_release);
    while (ball.load(std::memory_order_acquire) != 2 * i + 2) relax();
    times.push_back(now_us() - begin);
  }
  ball.store(kStop, std::memory_order_release);
  other.join();
  return times;
}

std::vector<double> measure_empty_run(ls::Strategy& strategy, int calls) {
  std::vector<double> times;
  for (int i = 0; i < calls; ++i) {
    const double begin = now_us();
    strategy.run([] {});
    times.push_back(now_us() - begin);
  }
  return times;
}

// Every replica computes for 300 us; what run() takes beyond that.
std::vector<double> measure_run_beyond_work(ls::Strategy& strategy, int calls) {
  constexpr double kWork = 300;
  std::vector<double> times;
  for (int i = 0; i < calls; ++i) {
    const double begin = now_us();
    strategy.run([] {
      for (const double start = now_us(); now_us() - start < kWork;) relax();
    });
    times.push_back(now_us() - begin - kWork);
  }
  return times;
}

void bench_calls(ls::Strategy& strategy, int rounds) {
  Sample marker("marker", 0), empty("run_empty", 0), beyond("run_beyond_300us", 0);
  measure_empty_run(strategy, 1000);
  for (int round = 0; round < rounds; ++round) {
    marker.add_round(measure_marker());
    empty.add_round(measure_empty_run(strategy, 5000));
    beyond.add_round(measure_run_beyond_work(strategy, 200));
  }
  marker.print();
  empty.print();
  beyond.print();
}

}  // namespace
}  // namespace bench

int main(int argc, char** argv) {
  int rounds = 7;
  const bool has_marker_only = argc == 2 && std::strcmp(argv[1], "--marker") == 0;
  if (argc > 2 || (argc == 2 && !has_marker_only && std::sscanf(argv[1], "--rounds=%d", &rounds) != 1)) {
    std::fprintf(stderr, "usage: micro_bench [--rounds=N | --marker]\n");
    return 2;
  }
  try {
    if (has_marker_only) {
      bench::Sample marker("marker", 0);
      for (int round = 0; round < rounds; ++round) marker.add_round(bench::measure_marker());
      marker.print();
      return 0;
    }
    lockstep::MirroredStrategy strategy({"CPU:0", "CPU:1"});
    bench::bench_calls(strategy, rounds);
    bench::bench_all_reduce(strategy, rounds);
    return 0;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "micro_bench: %s\n", error.what());
    return 1;
  }
}
