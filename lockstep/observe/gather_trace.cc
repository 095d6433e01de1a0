#include "lockstep/observe/gather_trace.h"

#include <algorithm>
#include <cstring>

#include "lockstep/base/error.h"
#include "lockstep/collective/worker_group.h"
#include "lockstep/data/io/whole_file.h"
#include "lockstep/observe/clock_bounds.h"
#include "lockstep/strategy/strategy.h"

namespace lockstep {
namespace {

constexpr int kMeetings = 32;

using Visit = ClockBounds::Visit;

std::string bytes_of(const std::vector<Visit>& visits) {
  return {reinterpret_cast<const char*>(visits.data()), visits.size() * sizeof(Visit)};
}

// By worker: what its clock is behind the first worker's.
std::vector<ClockBounds> compare_clocks(WorkerGroup& workers) {
  std::vector<Visit> mine(kMeetings);
  for (auto& visit : mine) {
    visit.came = trace::now();
    workers.barrier("comparing the clocks");
    visit.left = trace::now();
  }
  std::vector<std::vector<Visit>> all;
  for (const auto& bytes : workers.exchange("comparing the clocks' times", bytes_of(mine))) {
    auto& visits = all.emplace_back(kMeetings);
    if (bytes.size() != kMeetings * sizeof(Visit))
      throw Error(ErrorCode::kInternal, "a worker met a different number of times");
    std::memcpy(visits.data(), bytes.data(), bytes.size());
  }
  std::vector<ClockBounds> bounds(all.size());
  for (std::size_t w = 1; w < all.size(); ++w)
    for (std::size_t k = 0; k < kMeetings; ++k) bounds[w].add(all[0][k], all[w][k]);
  return bounds;
}

}  // namespace

std::vector<WorkerTrace> gather_trace(WorkerGroup& workers, const trace::Recording& mine) {
  const auto& layout = workers.layout();
  const auto bounds = compare_clocks(workers);
  const auto messages = workers.exchange("gathering the trace", internal::to_bytes(mine));
  std::vector<WorkerTrace> all;
  for (int worker = 0; worker < layout.size(); ++worker) {
    const auto w = static_cast<std::size_t>(worker);
    WorkerTrace one{layout.name_of(worker), internal::recording_from_bytes(messages[w]), bounds[w].offset(), bounds[w].error()};
    if (layout.machines[w] == layout.machines[0] && bounds[w].holds(0)) one.clock_offset = one.clock_error = 0;
    all.push_back(std::move(one));
  }
  return all;
}

void write_trace(const std::string& path, const trace::Recording& mine, const Strategy& strategy) {
  WorkerGroup* const workers = strategy.replicas().workers();
  if (workers == nullptr) return write_trace(path, mine);
  const auto all = gather_trace(*workers, mine);
  if (workers->layout().rank == 0) data::write_whole_file(path, {chrome_trace(all)});
}

}  // namespace lockstep
