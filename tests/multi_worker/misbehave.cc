#include <lockstep/lockstep.h>
#include <torch/torch.h>

#include <unistd.h>

#include <chrono>
#include <iostream>
#include <stdexcept>
#include <thread>

#include "tests/multi_worker/scenarios.h"

namespace lockstep::testing {
namespace {

// What the worker `who` does at step `at`, in place of what all others do.
struct Misdeed {
  explicit Misdeed(const Parameters& parameters)
      : kind(parameters.text("kind", "none")), who(parameters.number("who", 1)), at(parameters.number("at", 5)) {}
  bool is_now(int rank, int step) const { return rank == who && step == at; }

  std::string kind;
  int who;
  int at;
};

}  // namespace

// Sums a tensor a step. kind=throw: the worker throws inside run(); leave: its program ends; skip: it leaves out one
// collective; shape, dtype: its tensor is another; order: it makes two calls the other way round; pause: it sleeps for
// `pause` seconds in its own code; exit: _exit(7) without a word.
void misbehave(const Parameters& parameters) {
  const Misdeed misdeed(parameters);
  MultiWorkerMirroredStrategy strategy(nullptr, options_of(parameters));
  const int rank = strategy.worker_rank();
  const int steps = parameters.number("steps", 1'000'000);
  const int milliseconds = parameters.number("work", 2);
  for (int step = 1; step <= steps; ++step) {
    const bool is_now = misdeed.is_now(rank, step);
    const auto is = [&](const char* kind) { return is_now && misdeed.kind == kind; };
    if (is("leave")) break;
    if (is("exit")) _exit(7);
    if (is("pause")) std::this_thread::sleep_for(std::chrono::seconds(parameters.number("pause", 3)));
    const auto sums = strategy.run([&](ReplicaContext& context) {
      std::this_thread::sleep_for(std::chrono::milliseconds(milliseconds));
      if (is("throw")) throw std::runtime_error("the valve is stuck");
      const auto mine = torch::full({is("shape") ? 3 : 2}, step, is("dtype") ? torch::kDouble : torch::kFloat);
      if (is("order")) context.all_gather(mine, 0);
      const auto sum = is("skip") ? mine : context.all_reduce("sum", mine);
      const auto again = context.all_reduce("sum", mine * 2);
      if (!is("order")) context.all_gather(mine, 0);
      return sum + again;
    });
    if (step == 1) std::cout << "begun" << std::endl;
  }
  std::cout << "done" << std::endl;
}

}  // namespace lockstep::testing
