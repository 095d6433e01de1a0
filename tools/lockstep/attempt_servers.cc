#include <algorithm>
#include <cmath>

#include "lockstep/base/str.h"
#include "tools/lockstep/attempt.h"
#include "tools/lockstep/log_files.h"

// Note [jobs with parameter servers]

namespace lockstep::tool {
namespace {

// ", in 2 s"; empty for at once.
std::string describe_pause(std::chrono::steady_clock::duration pause) {
  const auto tenths = std::llround(10 * std::chrono::duration<double>(pause).count());
  return tenths > 0 ? str(", in ", static_cast<double>(tenths) / 10, " s") : "";
}

}  // namespace

void Attempt::look_after(std::vector<std::size_t>& ended) {
  const auto& chief = entries_.front();
  const bool is_all_well = chief.is_over() && chief.report->ending.is_good();
  for (const auto task : ended)
    if (!decides(entries_[task]) && !end_began_ && !is_all_well) replace(entries_[task]);
  std::erase_if(ended, [this](std::size_t task) { return !decides(entries_[task]); });
  if (!ended.empty() && !end_began_ && !is_all_well && replace_chief()) ended.clear();
}

void Attempt::replace(Entry& server) {
  if (server.is_done()) return;
  const int most = job_.options.task_restarts;
  const auto what = str(name_of(server), " has ended (", describe(server.report->ending), "); ");
  const bool is_lost = job_.nodes[server.node]->is_lost();
  if (is_lost || job_.task_restarts >= most)
    return say(job_.printer, str(what, "the job goes on without it (",
                                 is_lost ? "its machine is lost" : str("--task-restarts is ", most), ")"));
  const auto now = Clock::now();
  server.again_at = server.backoff.next_start(now);
  say(job_.printer, str(what, "starts it again as attempt ", server.number + 1, describe_pause(*server.again_at - now), " (",
                        ++job_.task_restarts, " of ", most, ")"));
}

// False when it cannot be done, or not any more.
bool Attempt::replace_chief() {
  const auto& chief = entries_.front();
  const int most = job_.options.max_restarts;
  const auto is_lost_server = [](const Entry& entry) { return entry.task.type == "ps" && entry.is_over(); };
  if (job_.restarts >= most || std::ranges::any_of(entries_, is_lost_server) ||
      std::ranges::any_of(job_.nodes, [](const auto& node) { return node->is_lost(); }))
    return false;
  const auto now = Clock::now();
  for (auto& entry : entries_)
    if (entry.is_over() && !entry.is_done()) entry.again_at = entry.backoff.next_start(now);
  show(chief,
       str(name_of(chief), " has ended (", describe(chief.report->ending), "); starts it again as attempt ", chief.number + 1,
           describe_pause(*chief.again_at - now), " (", ++job_.restarts, " of ", most, "), the others keep running"));
  return true;
}

void Attempt::start_due() {
  for (std::size_t task = 0; task < entries_.size(); ++task) {
    auto& entry = entries_[task];
    if (!entry.again_at || Clock::now() < *entry.again_at) continue;
    entry.again_at.reset();
    auto& node = *job_.nodes[entry.node];
    if (node.is_lost()) {
      news_.push_back(task);  // it has ended for good
      continue;
    }
    ++entry.number;
    entry.output = make_output_again(job_.printer, str(entry.task), log_file(job_.options.log_dir, entry.task, entry.number));
    entry.report.reset();
    node.again(entry.place, entry.number);
  }
}

}  // namespace lockstep::tool
