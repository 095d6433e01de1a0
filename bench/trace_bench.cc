// What a trace's span costs while nothing is recorded and while it is, and an event writer's calls. One JSON line for each
// figure, in nanoseconds of processor time a call; "samples" are the rounds' means.

#include <unistd.h>

#include <cstdio>
#include <ctime>
#include <functional>
#include <string>
#include <vector>

#include "bench/timing.h"
#include "lockstep/base/trace.h"
#include "lockstep/observe/event_writer.h"
#include "lockstep/observe/step_stats.h"

namespace bench {
namespace {

namespace trace = lockstep::trace;

constexpr int kRounds = 15;

// Of this thread: what else runs on the machine does not count.
double cpu_ns() {
  timespec now = {};
  ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) * 1e9 + static_cast<double>(now.tv_nsec);
}

void measure(const char* name, int calls, const std::function<void(int)>& body) {
  std::vector<double> samples;
  for (int round = 0; round < kRounds; ++round) {
    const double begin = cpu_ns();
    body(calls);
    samples.push_back((cpu_ns() - begin) / calls);
  }
  std::string all;
  for (const double one : samples) all += (all.empty() ? "" : ", ") + std::to_string(one);
  std::printf("{\"name\": \"%s\", \"median_ns\": %.2f, \"samples\": [%s]}\n", name, quantile(samples, 0.5), all.c_str());
}

// The compiler must not take the loop away.
void keep() { asm volatile("" ::: "memory"); }

int main() {
  constexpr int kMany = 20'000'000;
  constexpr int kFew = 50'000;
  measure("empty loop", kMany, [](int calls) {
    for (int k = 0; k < calls; ++k) keep();
  });
  measure("span, off", kMany, [](int calls) {
    for (int k = 0; k < calls; ++k) {
      const trace::Span span("x", trace::Category::kCompute, {"k", k});
      keep();
    }
  });
  trace::start({.spans_per_thread = std::size_t{kFew} * kRounds});
  measure("span, on", kFew, [](int calls) {
    for (int k = 0; k < calls; ++k) {
      const trace::Span span("x", trace::Category::kCompute, {"k", k});
      keep();
    }
  });
  trace::stop();
  lockstep::StepClock clock;
  measure("StepClock::enter", kFew, [&](int calls) {
    for (int k = 0; k < calls; ++k) clock.enter(lockstep::StepPhase::kCompute);
  });
  const std::string folder = "/tmp/lockstep_trace_bench_" + std::to_string(::getpid());
  {
    lockstep::EventWriter writer(folder);
    measure("EventWriter::scalar", kFew, [&](int calls) {
      for (int k = 0; k < calls; ++k) writer.scalar("loss", k, k);
    });
    const std::vector<float> values(100'000, 0.25F);
    measure("EventWriter::histogram of 100,000", 10, [&](int calls) {
      for (int k = 0; k < calls; ++k) writer.histogram("weights", values, k);
    });
    ::unlink(writer.path().c_str());
  }
  ::rmdir(folder.c_str());
  return 0;
}

}  // namespace
}  // namespace bench

int main() { return bench::main(); }
