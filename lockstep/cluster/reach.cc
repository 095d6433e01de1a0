#include "lockstep/cluster/reach.h"

#include <poll.h>

#include <algorithm>
#include <utility>

#include "lockstep/base/deadline.h"
#include "lockstep/base/str.h"

namespace lockstep {
namespace {

using internal::Socket;
using std::chrono::milliseconds;

constexpr milliseconds kGreeting(500);
constexpr int kAttempts = 15;               // in the time of silence that is judged
constexpr std::size_t kFewestAttempts = 8;  // before anybody is

}  // namespace

Reach::Reach(std::vector<Peer> peers, milliseconds silence) : silence_(silence) {
  for (auto& peer : peers) peers_.push_back({std::move(peer)});
}

void Reach::Asked::forget_attempts() {
  attempts = 0;
  open.clear();
}

bool Reach::has_answer(Asked& asked) {
  bool is_there = false;
  std::erase_if(asked.open, [&](const Socket& socket) {
    const auto answer = socket.answer();
    is_there = is_there || answer == Socket::Answer::kYes;
    return answer != Socket::Answer::kNotYet;
  });
  return is_there;
}

bool Reach::ask(Asked& asked, Clock::time_point now) const {
  if (now < asked.next) return false;
  asked.next = now + silence_ / kAttempts;
  auto answer = Socket::Answer::kNotYet;
  auto socket = Socket::begin_connect(asked.peer.address, answer);
  if (!socket.is_open()) return false;  // that is no attempt
  if (asked.attempts++ == 0) asked.first = now;
  if (answer == Socket::Answer::kNotYet) asked.open.push_back(std::move(socket));
  return answer == Socket::Answer::kYes;
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
    for (const auto& socket : asked.open) opened.push_back({socket.descriptor(), POLLOUT, 0});
  ::poll(opened.data(), opened.size(), static_cast<int>(longest.count()));
}

std::string Reach::look(bool is_wanted) {
  const auto now = Clock::now();
  const bool was_absent = now - std::exchange(looked_, now) > silence_ / 2;  // this process was stopped
  const bool is_beginning = now - begun_ < silence_;
  std::vector<std::string> silent;
  for (auto& asked : peers_) {
    const bool is_asked = is_wanted || (is_beginning && !asked.has_ever_answered);
    if (has_answer(asked) || (is_asked && ask(asked, now))) {
      asked.has_ever_answered = true;
      asked.forget_attempts();
      asked.next = now + silence_ / 8;
    }
    if (was_absent || !is_asked) asked.forget_attempts();
    if (asked.has_ever_answered && asked.attempts >= kFewestAttempts && now - asked.first > silence_)
      silent.push_back(str(asked.peer.name, " (", asked.peer.address, ")"));
  }
  return join(", ", silent);
}

}  // namespace lockstep
