#include <ATen/ATen.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <cstdint>
#include <functional>
#include <iostream>
#include <string>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/base/str.h"
#include "lockstep/ps/connections.h"
#include "lockstep/ps/server_variables.h"
#include "lockstep/serve/server.h"
#include "lockstep/strategy/parameter_server_strategy.h"
#include "tests/faults/job.h"

// A job with parameter servers that counts: `ps_job [key=value ...]`, as all of its tasks. The chief says "begun", and in the
// end "counted N", or "error CODE MESSAGE" with exit code 3, or "mismatch ..." with 1.
//
// Note [what was counted]
// 1. A closure makes requests to one server. Each adds 1 to `count` some times, and with it, all or nothing, writes into a row
//    of `ledger` how many additions it has made so far: a request that is done twice, or lost, parts the two.
// 2. Every run of a closure has a row of its own, which `tickets` tells it: a worker that is killed leaves a row behind.
// 3. What was acknowledged is noted beside, in a file that all workers have mapped: a row of the ledger may be ahead of it by
//    the one request that was under way, and only where the run did not end.
// So when all closures have ended, count = the sum of the ledger = what was acknowledged, and what was under way in runs that
// were killed, which is told apart.

namespace lockstep::testing {
namespace {

using ps::Operation;
using std::chrono::milliseconds;

constexpr std::int64_t kMostRuns = 64;  // of a closure

at::Tensor longs(std::vector<std::int64_t> values) { return at::tensor(values, at::kLong); }

// What was acknowledged, by row.
class Acknowledged {
 public:
  Acknowledged(const std::string& path, std::int64_t rows) : bytes_(static_cast<std::size_t>(rows) * sizeof(std::int64_t)) {
    const int file = open(path.c_str(), O_RDWR | O_CREAT, 0600);
    if (file < 0 || ftruncate(file, static_cast<off_t>(bytes_)) != 0)
      throw Error(ErrorCode::kInternal, str("cannot map ", path));
    memory_ = mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    close(file);
    if (memory_ == MAP_FAILED) throw Error(ErrorCode::kInternal, str("cannot map ", path));
  }
  ~Acknowledged() { munmap(memory_, bytes_); }
  Acknowledged(const Acknowledged&) = delete;
  Acknowledged& operator=(const Acknowledged&) = delete;

  std::atomic_ref<std::int64_t> of(std::int64_t row) const {
    return std::atomic_ref<std::int64_t>(static_cast<std::int64_t*>(memory_)[row]);
  }

 private:
  std::size_t bytes_;
  void* memory_ = nullptr;
};

struct Work {
  std::int64_t closures, requests, additions;
  std::string acknowledged;

  static Work given() {
    return {number("closures", 40), number("requests", 50), number("additions", 8), parameters()["acknowledged"]};
  }
  std::int64_t rows() const { return closures * kMostRuns; }
};

// See Note [what was counted]. What was acknowledged.
std::int64_t count(WorkerContext& worker, std::int64_t closure) {
  const auto work = Work::given();
  auto& client = worker.find<ps::ServerVariables>()->client();
  const auto server = static_cast<std::size_t>(closure) % client.size();
  const auto tickets = at::empty({work.closures}, at::kLong);
  client.update({{server, "tickets", Operation::Kind::kAddRows, longs({1}), longs({closure}), 0, tickets}});
  const auto run = tickets[closure].item<std::int64_t>() - 1;
  if (run >= kMostRuns) throw Error(ErrorCode::kInternal, "a closure was run too often");
  const auto row = closure * kMostRuns + run;
  const Acknowledged acknowledged(work.acknowledged, work.rows());
  std::int64_t done = 0;
  for (std::int64_t i = 0; i < work.requests; ++i) {
    if (worker.is_cancelled()) throw Error(ErrorCode::kCancelled, "the closure is not wanted any more");
    done += work.additions;
    std::vector<ps::ParameterClient::Update> updates(static_cast<std::size_t>(work.additions),
                                                     {server, "count", Operation::Kind::kAdd, longs({1})});
    updates.push_back({server, "ledger", Operation::Kind::kUpdateRows, longs({done}), longs({row})});
    client.update(updates);
    acknowledged.of(row) = done;
  }
  return done;
}
const auto kCount = remote_function("ps_job.count", count);
const auto kPoison = remote_function("ps_job.poison", [] { throw Error(ErrorCode::kInvalidArgument, "a poisoned closure"); });

at::Tensor read(ps::ParameterClient& client, std::size_t server, const std::string& name, std::int64_t size) {
  const auto value = at::empty({size}, at::kLong);
  client.read({{server, name, value}});
  return value;
}

struct Totals {
  std::int64_t counted = 0, in_ledger = 0, acknowledged = 0, under_way = 0;
  std::string problem = "";
};

Totals totals(ps::ParameterClient& client, const Work& work) {
  Totals all;
  const Acknowledged acknowledged(work.acknowledged, work.rows());
  for (std::size_t server = 0; server < client.size(); ++server) {
    all.counted += read(client, server, "count", 1).item<std::int64_t>();
    const auto ledger = read(client, server, "ledger", work.rows());
    for (std::int64_t row = 0; row < work.rows(); ++row) {
      if (static_cast<std::size_t>(row / kMostRuns) % client.size() != server) continue;
      const auto written = ledger[row].item<std::int64_t>(), known = acknowledged.of(row).load();
      all.in_ledger += written;
      all.acknowledged += known;
      all.under_way += written - known;
      if (written < known || written > known + work.additions)
        all.problem = str("row ", row, " has ", written, " additions, and ", known, " were acknowledged");
    }
  }
  if (all.counted != all.in_ledger) all.problem = str("the counts are ", all.counted, ", the ledgers ", all.in_ledger);
  return all;
}

// A worker that was stopped for long may still end a request that nobody waits for: what does not fit must fit soon.
Totals settled_totals(ps::ParameterClient& client, const Work& work) {
  const auto deadline = Deadline::after(std::chrono::seconds(5));
  for (;;) {
    auto all = totals(client, work);
    if (all.problem.empty() || deadline.has_passed()) return all;
  }
}

void create_variables(ps::ParameterClient& client, const Work& work) {
  const std::map<std::string, std::int64_t> sizes = {{"count", 1}, {"ledger", work.rows()}, {"tickets", work.closures}};
  for (std::size_t server = 0; server < client.size(); ++server)
    for (const auto& [name, size] : sizes) {
      ps::Description description{name, static_cast<std::int8_t>(at::kLong), {size}, {size}};
      description.is_trainable = false;
      client.create({{server, description, at::zeros({size}, at::kLong)}});
    }
}

void poison(ClusterCoordinator& coordinator) {
  coordinator.schedule(kPoison);
  try {
    coordinator.join(Deadline::after(std::chrono::seconds(30)));
    std::cout << "the poison did nothing" << std::endl;
  } catch (const Error& error) {
    std::cout << "poisoned " << name_of(error.code()) << std::endl;
  }
}

int lead() {
  const auto work = Work::given();
  ParameterServerStrategy strategy(
      nullptr, nullptr, {.join_timeout = std::chrono::seconds(30), .call_timeout = milliseconds(number("call", 20'000))});
  ClusterCoordinator coordinator(strategy, {.queue_size = static_cast<std::size_t>(number("queue", 1'000)),
                                            .schedule_timeout = milliseconds(number("schedule", 60'000)),
                                            .silence_timeout = milliseconds(number("silence", 2'000))});
  auto& client = strategy.variables()->client();
  create_variables(client, work);
  std::cout << "found " << totals(client, work).counted << "\nbegun" << std::endl;
  std::vector<RemoteValue<std::int64_t>> results;
  for (std::int64_t closure = 0; closure < work.closures; ++closure) {
    results.push_back(coordinator.schedule(kCount, closure));
    if (number("poison", 0) == 0 || closure != work.closures / 2) continue;
    coordinator.join(Deadline::after(std::chrono::minutes(10)));
    poison(coordinator);
  }
  coordinator.join(Deadline::after(std::chrono::minutes(60)));
  std::int64_t returned = 0;
  for (const auto& result : results) returned += result.get();
  const auto all = settled_totals(client, work);
  if (!all.problem.empty() || returned != work.closures * work.requests * work.additions) {
    std::cout << "mismatch " << all.problem << "; the closures returned " << returned << std::endl;
    return 1;
  }
  std::cout << "counted " << all.counted << " acknowledged " << all.acknowledged << " under way in lost runs " << all.under_way
            << std::endl;
  return 0;
}

}  // namespace
}  // namespace lockstep::testing

int main(int argc, char** argv) {
  const auto options = [] {
    lockstep::ServerOptions options;
    options.call_timeout = lockstep::testing::milliseconds(lockstep::testing::number("call", 20'000));
    return options;
  };
  return lockstep::testing::run_job(argc, argv, options, lockstep::testing::lead);
}
