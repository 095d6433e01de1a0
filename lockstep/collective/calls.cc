#include "lockstep/collective/calls.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "lockstep/base/str.h"

namespace lockstep {

std::uint64_t Calls::begin(std::string text, bool is_numbered, std::chrono::nanoseconds timeout) {
  const std::lock_guard lock(mu_);
  if (std::exchange(is_step_new_, false)) ++step_;
  const auto number = is_numbered ? ++count_ : ++unnumbered_;
  open_[number] = {number, step_, std::move(text), std::chrono::system_clock::now(), std::chrono::steady_clock::now(), timeout};
  return number;
}

void Calls::end(std::uint64_t number, const std::string& error) {
  const std::lock_guard lock(mu_);
  const auto it = open_.find(number);
  if (it == open_.end()) return;
  Call& call = it->second;
  call.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - call.since).count();
  call.error = error;
  ended_.push_back(std::move(call));
  if (ended_.size() > kKept) ended_.pop_front();
  open_.erase(it);
}

void Calls::begin_step() {
  const std::lock_guard lock(mu_);
  is_step_new_ = true;
}

std::uint64_t Calls::step() const {
  const std::lock_guard lock(mu_);
  return step_;
}

void Calls::catch_up(std::uint64_t step) {
  const std::lock_guard lock(mu_);
  step_ = std::max(step_, step);
}

std::uint64_t Calls::count() const {
  const std::lock_guard lock(mu_);
  return count_;
}

std::vector<Call> Calls::under_way() const {
  const std::lock_guard lock(mu_);
  std::vector<Call> calls;
  for (const auto& [number, call] : open_) calls.push_back(call);
  return calls;
}

std::vector<Call> Calls::last() const {
  std::vector<Call> calls;
  {
    const std::lock_guard lock(mu_);
    calls.assign(ended_.begin(), ended_.end());
    for (const auto& [number, call] : open_) calls.push_back(call);
  }
  std::ranges::sort(calls, {}, &Call::number);
  return calls;
}

std::string Calls::describe() const {
  const std::lock_guard lock(mu_);
  if (!open_.empty()) return str(open_.begin()->second.text, " #", open_.begin()->first);
  if (ended_.empty()) return "code before its first collective";
  return str("code after ", ended_.back().text, " #", ended_.back().number);
}

std::string Calls::flight_record(const std::string& task, std::chrono::nanoseconds clock_offset) const {
  std::string lines;
  for (const auto& call : last()) {
    nlohmann::ordered_json line = {
        {"task", task},
        {"number", call.number},
        {"step", call.step},
        {"call", call.text},
        {"begun", std::chrono::duration<double>(call.begun.time_since_epoch() + clock_offset).count()}};
    if (call.seconds) line["seconds"] = *call.seconds;
    if (!call.error.empty()) line["error"] = call.error;
    lines += line.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace) + "\n";
  }
  return lines;
}

}  // namespace lockstep
