#include "lockstep/cluster/reach.h"

#include <poll.h>

#include <algorithm>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/base/str.h"

namespace lockstep {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds kGreeting(500);
constexpr int kAttempts = 15;               // in the time of silence that is judged
constexpr std::size_t kFewestAttempts = 8;  // before anybody is
constexpr int kMostAtOnce = 256;

}  // namespace

Doorstep::Doorstep(const std::string& host)
    : listener_(internal::Socket::listen({host.find(':') == std::string::npos ? "0.0.0.0" : "::", 0})) {}

void Doorstep::clear() const {
  for (int visitor = 0; visitor < kMostAtOnce && listener_.accept().is_open();) ++visitor;
}

Reach::Reach(std::vector<Peer> peers, milliseconds silence) : silence_(silence) {
  for (auto& peer : peers) peers_.push_back({std::move(peer)});
}

bool Reach::has_answer(const Asked& asked) {
  return std::ranges::any_of(asked.attempts, [](const internal::Socket& socket) { return socket.is_answered(); });
}

void Reach::ask(Asked& asked, Clock::time_point now) const {
  if (now < asked.next) return;
  if (asked.attempts.empty()) asked.first = now;
  asked.next = now + silence_ / kAttempts;
  asked.attempts.push_back(internal::Socket::begin_connect(asked.peer.address));
}

void Reach::greet() {
  const auto end = Deadline::after(kGreeting);
  const auto has_answered = [](const Asked& asked) { return asked.has_ever_answered; };
  while (look(/*is_wanted=*/false), !std::ranges::all_of(peers_, has_answered) && !end.has_passed())
    wait_for_answer(silence_ / kAttempts);
}

void Reach::wait_for_answer(milliseconds longest) const {
  std::vector<pollfd> opened;
  for (const auto& asked : peers_)
    for (const auto& socket : asked.attempts)
      if (socket.is_open()) opened.push_back({socket.descriptor(), POLLOUT, 0});
  ::poll(opened.data(), opened.size(), static_cast<int>(longest.count()));
}

std::string Reach::look(bool is_wanted) {
  const auto now = Clock::now();
  const bool was_absent = now - std::exchange(looked_, now) > silence_ / 2;  // this process was stopped
  const bool is_beginning = now - begun_ < silence_;
  std::vector<std::string> silent;
  for (auto& asked : peers_) {
    if (has_answer(asked)) {
      asked.has_ever_answered = true;
      asked.attempts.clear();
      asked.next = now + silence_ / 4;
    }
    const bool is_asked = is_wanted || (is_beginning && !asked.has_ever_answered);
    if (was_absent || !is_asked) asked.attempts.clear();
    if (!is_asked) continue;
    if (asked.has_ever_answered && asked.attempts.size() >= kFewestAttempts && now - asked.first > silence_)
      silent.push_back(str(asked.peer.name, " (", asked.peer.address, ")"));
    ask(asked, now);
  }
  return join(", ", silent);
}

}  // namespace lockstep
