#include "tools/lockstep/link.h"

#include <unistd.h>

#include <cerrno>
#include <utility>

#include "lockstep/base/errno_text.h"
#include "lockstep/base/error.h"
#include "lockstep/base/str.h"

namespace lockstep::tool {

Link::Link(int input, int output, Greeting greeting, std::chrono::nanoseconds lost_after)
    : input_(input),
      output_(output),
      lost_after_(lost_after),
      is_greeted_(greeting == Greeting::kSent),
      reader_(greeting == Greeting::kSent ? kMostToNode : kMostToLauncher) {
  make_nonblocking(input);
  make_nonblocking(output);
  if (greeting == Greeting::kSent) outgoing_ = kGreeting;
}

void Link::send(const Message& message) {
  if (!broken_.empty() || is_deaf_) return;
  outgoing_ += to_bytes(message);
  write_some();
}

std::vector<Message> Link::work(bool reads) {
  if (Clock::now() - last_alive_ >= kAliveEvery && is_flushed()) {
    last_alive_ = Clock::now();
    send({MessageKind::kAlive, ""});
  }
  write_some();
  std::vector<Message> messages;
  if (reads) read_some();
  try {
    while (reads && is_greeted_) {
      auto message = reader_.next();
      if (!message) break;
      if (message->kind != MessageKind::kAlive) messages.push_back(std::move(*message));
    }
  } catch (const Error& error) {
    broken_ = error.message();
  }
  check_silence(reads);
  return messages;
}

void Link::watch(std::vector<pollfd>& watched) const {
  if (!broken_.empty()) return;
  watched.push_back({input_, POLLIN, 0});
  if (!is_flushed()) watched.push_back({output_, POLLOUT, 0});
}

void Link::read_some() {
  constexpr int kReadsAtOnce = 16;
  char buffer[16 << 10];
  for (int k = 0; k < kReadsAtOnce && broken_.empty(); ++k) {
    const auto count = read(input_, buffer, sizeof buffer);
    if (count > 0) {
      last_heard_ = Clock::now();
      take({buffer, static_cast<std::size_t>(count)});
    } else if (count == 0) {
      broken_ = "the connection was closed";
    } else if (errno == EAGAIN) {
      return;
    } else if (errno != EINTR) {
      broken_ = str("the connection broke (", errno_text(errno), ")");
    }
  }
}

void Link::take(std::string_view bytes) {
  constexpr std::size_t kMostBanner = 64 << 10;
  if (is_greeted_) return reader_.add(bytes);
  unseen_ += bytes;
  const auto found = unseen_.find(kGreeting);
  if (found == std::string::npos) {
    if (unseen_.size() > kMostBanner) broken_ = "it writes other things than a Lockstep node does";
    return;
  }
  is_greeted_ = true;
  banner_ = unseen_.substr(0, found);
  reader_.add(std::string_view(unseen_).substr(found + kGreeting.size()));
  unseen_.clear();
}

void Link::write_some() {
  while (!is_flushed()) {
    const auto count = write(output_, outgoing_.data() + written_, outgoing_.size() - written_);
    if (count > 0) written_ += static_cast<std::size_t>(count);
    else if (errno == EAGAIN) break;
    else if (errno != EINTR) is_deaf_ = true;
    if (is_deaf_) written_ = outgoing_.size();
  }
  if (written_ * 2 > outgoing_.size()) outgoing_.erase(0, std::exchange(written_, 0));
}

// A side that does not read cannot say that the other is silent.
void Link::check_silence(bool reads) {
  if (!reads || !is_greeted_) last_heard_ = Clock::now();
  else if (broken_.empty() && Clock::now() - last_heard_ > lost_after_)
    broken_ = str("nothing was heard of it for ", std::chrono::duration<double>(lost_after_).count(), " s");
}

}  // namespace lockstep::tool
