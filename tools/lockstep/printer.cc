#include "tools/lockstep/printer.h"

#include <limits.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "lockstep/base/str.h"

namespace lockstep::tool {

void Printer::work() {
  while (output_.write_some()) continue;
  while (errors_.write_some()) continue;
}

void Printer::watch(std::vector<pollfd>& watched) const {
  for (const auto* outlet : {&output_, &errors_})
    if (!outlet->is_empty()) watched.push_back({outlet->descriptor, POLLOUT, 0});
}

void Printer::hurry() {
  constexpr std::chrono::seconds kMoment(2);
  if (!hurried_until_) hurried_until_ = Deadline::after(kMoment);
}

void Printer::finish(int stop) {
  constexpr int kMilliseconds = 100;
  for (work(); !output_.is_empty() || !errors_.is_empty(); work()) {
    std::vector<pollfd> watched = {{stop, POLLIN, 0}};
    watch(watched);
    poll(watched.data(), watched.size(), kMilliseconds);
    if (watched[0].revents == 0 && !(hurried_until_ && hurried_until_->has_passed())) continue;
    output_.drop();
    errors_.drop();
  }
}

bool Printer::Outlet::write_some() {
  if (is_empty()) return false;
  pollfd entry = {descriptor, POLLOUT, 0};
  if (poll(&entry, 1, 0) <= 0) return false;
  // A pipe that is ready takes this much without blocking.
  const auto count = write(descriptor, waiting.data() + written, std::min<std::size_t>(waiting.size() - written, PIPE_BUF));
  if (count > 0) written += static_cast<std::size_t>(count);
  else if (errno != EINTR && errno != EAGAIN) drop();
  if (written * 2 > waiting.size()) waiting.erase(0, std::exchange(written, 0));
  return !is_empty();
}

void say(Printer& printer, const std::string& text) {
  printer.complain(str("lockstep run: ", text, "\n"));
  printer.work();
}

}  // namespace lockstep::tool
