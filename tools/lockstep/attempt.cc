#include "tools/lockstep/attempt.h"

#include <poll.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <utility>

#include "lockstep/base/deadline.h"
#include "lockstep/base/error.h"
#include "lockstep/base/reminder.h"
#include "lockstep/base/str.h"
#include "tools/lockstep/log_files.h"

namespace lockstep::tool {
namespace {

double seconds(std::chrono::steady_clock::duration duration) {
  return static_cast<double>(std::chrono::duration_cast<std::chrono::milliseconds>(duration).count()) / 1000;
}

std::chrono::milliseconds time_to_save(const RunOptions& options) { return std::max(options.grace, options.save_grace); }

std::string current_folder() {
  std::error_code error;
  return std::filesystem::current_path(error).string();
}

}  // namespace

Attempt::Attempt(Job& job, int number) : job_(job), number_(number), time_to_end_(job.options.grace) {}

Outcome Attempt::run() {
  if (!prepare()) return Outcome::kInterrupted;
  start();
  while (!std::ranges::all_of(entries_, &Entry::is_over)) {
    wait_for_news();
    for (const int signal : job_.signals.take()) interrupt(signal);
    work();
    start_due();
    note_failures();
    end_in_time();
  }
  if (was_interrupted_) return Outcome::kInterrupted;
  if (is_saved() && !failed_) return Outcome::kPreempted;
  note_mixed_endings();
  return failed_ ? Outcome::kFailed : Outcome::kGood;
}

bool Attempt::prepare() {
  const auto places = place_tasks(job_.shape);
  for (std::size_t node = 0; node < places.size(); ++node) job_.nodes[node]->prepare(places[node].size());
  const auto deadline = Deadline::after(job_.options.join_timeout);
  Reminder reminder(std::chrono::seconds(5));
  const auto is_ready = [](const auto& node) { return node->ports().has_value(); };
  while (true) {
    const auto waited_for = std::ranges::find_if_not(job_.nodes, is_ready);
    if (waited_for == job_.nodes.end()) return true;
    if (deadline.has_passed())
      throw Error(ErrorCode::kDeadlineExceeded,
                  str((*waited_for)->name(), " has not answered in ", seconds(job_.options.join_timeout), " s"));
    if (reminder.is_due()) say(job_.printer, str("waits for ", (*waited_for)->name()));
    wait_for_news();
    if (!job_.signals.take().empty()) return false;
    work();
  }
}

void Attempt::start() {
  std::vector<std::vector<int>> ports;
  for (const auto& node : job_.nodes) ports.push_back(*node->ports());
  auto planned = plan_tasks(job_.shape, ports,
                            {.secret = job_.secret,
                             .attempt = number_,
                             .max_restarts = job_.options.max_restarts + job_.options.task_restarts,
                             .run_id = job_.options.run_id,
                             .master_port = job_.options.master_port});
  begin_ = Clock::now();
  const bool is_alone = job_.nodes.size() == 1;
  for (std::size_t node = 0; node < planned.size(); ++node)
    for (std::size_t place = 0; place < planned[node].size(); ++place) {
      const auto& task = planned[node][place].task;
      auto output = std::make_unique<TaskOutput>(job_.printer, str(task), log_file(job_.options.log_dir, task, number_));
      entries_.push_back({task, node, place, number_, std::move(output), Backoff(begin_)});
    }
  std::size_t first = 0;
  for (std::size_t node = 0; node < planned.size(); ++node) {
    const auto count = planned[node].size();
    Work work{.tasks = std::move(planned[node]),
              .command = job_.options.command,
              .folder = current_folder(),
              .attempt = number_,
              .grace = job_.options.grace,
              .save_grace = job_.options.save_grace};
    if (!is_alone) work.variables = carried_variables();
    job_.nodes[node]->start(
        work, {[this, first](std::size_t task, std::string_view bytes) { entries_[first + task].output->take(bytes); },
               [this, first](const Report& report) {
                 entries_[first + report.task].report = report;
                 news_.push_back(first + report.task);
               }});
    first += count;
  }
}

void Attempt::wait_for_news() const {
  constexpr int kMilliseconds = 100;
  std::vector<pollfd> watched = {{job_.signals.descriptor(), POLLIN, 0}};
  const bool wants_output = !job_.printer.is_full();
  for (const auto& node : job_.nodes) node->watch(watched, wants_output);
  job_.printer.watch(watched);
  poll(watched.data(), watched.size(), kMilliseconds);
}

void Attempt::work() {
  for (const auto& node : job_.nodes) node->work(!job_.printer.is_full());
  job_.printer.work();
}

// Of several that ended since the last look, one that was killed is the cause and those that threw are the consequence.
void Attempt::note_failures() {
  auto ended = std::exchange(news_, {});
  for (const auto task : ended) entries_[task].output->finish();
  if (has_coordinator(job_.shape)) look_after(ended);
  std::optional<std::size_t> bad;
  for (const auto task : ended) {
    const auto& ending = entries_[task].report->ending;
    if (ending.is_preempted()) {
      if (!preempted_) preempted_ = {task, Clock::now()};
      continue;
    }
    if (!ending.is_good() && (!bad || ending.signal != 0 || !ending.lost.empty())) bad = task;
  }
  if (bad && !failed_ && !end_began_) failed_ = {*bad, Clock::now()};
}

// One that says it was told to go, while others say that all is done, has failed.
void Attempt::note_mixed_endings() {
  if (!failed_) failed_ = preempted_;
}

bool Attempt::decides(const Entry& entry) const {
  return has_coordinator(job_.shape) ? entry.task.type == "chief" : is_training(entry.task);
}

bool Attempt::is_saved() const {
  return !entries_.empty() && std::ranges::all_of(entries_, [this](const Entry& entry) {
    return !decides(entry) || (entry.report && entry.report->ending.is_preempted());
  });
}

bool Attempt::is_decided() const {
  return std::ranges::all_of(entries_, [this](const Entry& entry) { return entry.is_over() || !decides(entry); });
}

int Attempt::last_number() const {
  int last = number_;
  for (const auto& entry : entries_) last = std::max(last, entry.number);
  return last;
}

// Tasks that lost another one say so, write down what they last did and end by themselves, if they are given the time.
void Attempt::end_in_time() {
  constexpr std::chrono::seconds kOwnEnd(1);
  const bool had_its_time = failed_ && Clock::now() - failed_->at > std::min<Clock::duration>(kOwnEnd, job_.options.grace);
  // Those that save with one that has saved already are not hurried.
  const bool is_saving_over = preempted_ && Clock::now() - preempted_->at > time_to_save(job_.options);
  if (!end_began_ && (had_its_time || is_saving_over || is_decided())) begin_end(SIGTERM);
  if (is_chief_asked_ && is_decided()) {
    is_chief_asked_ = false;
    send(SIGTERM);
  }
  if (!end_began_ || was_killed_ || Clock::now() - *end_began_ <= time_to_end_) return;
  was_killed_ = true;
  send(SIGKILL);
}

void Attempt::interrupt(int signal) {
  if (was_interrupted_) {
    was_killed_ = true;
    return send(SIGKILL);
  }
  was_interrupted_ = true;
  job_.printer.hurry();
  if (signal == SIGTERM) time_to_end_ = time_to_save(job_.options);
  say(job_.printer, str("passes ", strsignal(signal), " on to ", has_coordinator(job_.shape) ? "the chief" : "all tasks"));
  begin_end(signal);
}

void Attempt::begin_end(int signal) {
  if (!end_began_) end_began_ = Clock::now();
  for (auto& entry : entries_) entry.again_at.reset();
  is_chief_asked_ = has_coordinator(job_.shape) && !is_decided();
  if (is_chief_asked_) job_.nodes[entries_.front().node]->send(signal, entries_.front().place);
  else send(signal);
}

void Attempt::send(int signal) {
  for (const auto& node : job_.nodes) node->send(signal, std::nullopt);
}

std::string Attempt::name_of(const Entry& entry) const {
  return str(entry.task, job_.nodes.size() > 1 ? str(" on ", job_.nodes[entry.node]->name()) : "");
}

std::string Attempt::failure() const {
  if (!failed_) return "";
  const auto& entry = entries_[failed_->task];
  return str(name_of(entry), " failed first: ", describe(entry.report->ending), ", ", seconds(failed_->at - begin_),
             " s after the start");
}

void Attempt::show_failure() const {
  if (failed_) show(entries_[failed_->task], failure());
}

// With the task's last lines.
void Attempt::show(const Entry& entry, const std::string& text) const {
  const auto& shown_here = entry.output->last_lines();
  auto lines = entry.report->last_lines;
  lines.insert(lines.end(), shown_here.begin(), shown_here.end());
  say(job_.printer, str(text, lines.empty() ? "; it wrote nothing" : "; its last lines:"));
  for (const auto& line : lines) job_.printer.complain(str("    ", line, "\n"));
  job_.printer.work();
}

}  // namespace lockstep::tool
