#include "tools/lockstep/probe.h"

#include <algorithm>
#include <cstring>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/base/random.h"
#include "lockstep/base/str.h"
#include "lockstep/base/thread.h"
#include "lockstep/cluster/clock_offset.h"

namespace lockstep::tool {
namespace {

using internal::Socket;
using std::chrono::nanoseconds;

constexpr std::chrono::milliseconds kLookAround(100);  // how soon a request to stop is seen
constexpr std::chrono::seconds kTimeToAsk(2);          // for one that has connected, or has been answered
constexpr std::int64_t kMostBytes = 256 << 20;
constexpr std::size_t kPieceBytes = 256 << 10;

enum class Question : std::int64_t { kPing = 1, kTake = 2, kGive = 3 };

struct Request {
  Question question;
  std::int64_t bytes;  // to take or to give
};

void receive_all(const Socket& socket, void* data, std::size_t bytes, const Deadline& deadline) {
  char* next = static_cast<char*>(data);
  while (bytes > 0) {
    if (!socket.wait_readable(deadline)) throw Error(ErrorCode::kDeadlineExceeded, "no answer in time");
    std::string why;
    const auto count = socket.receive(next, bytes, why);
    if (count == 0) throw Error(ErrorCode::kUnavailable, why);
    if (count < 0) continue;
    next += count;
    bytes -= static_cast<std::size_t>(count);
  }
}

void receive_pieces(const Socket& socket, std::int64_t bytes, const Deadline& deadline) {
  std::vector<char> piece(kPieceBytes);
  while (bytes > 0) {
    const auto count = std::min<std::int64_t>(bytes, kPieceBytes);
    receive_all(socket, piece.data(), static_cast<std::size_t>(count), deadline);
    bytes -= count;
  }
}

void send_pieces(const Socket& socket, std::int64_t bytes, const Deadline& deadline) {
  const std::vector<char> piece(kPieceBytes);
  while (bytes > 0) {
    const auto count = std::min<std::int64_t>(bytes, kPieceBytes);
    socket.send(piece.data(), static_cast<std::size_t>(count), deadline);
    bytes -= count;
  }
}

void answer(const Socket& socket, const Request& request, const Deadline& deadline) {
  if (request.bytes < 0 || request.bytes > kMostBytes) throw Error(ErrorCode::kInvalidArgument, "no such request");
  if (request.question == Question::kTake) receive_pieces(socket, request.bytes, deadline);
  if (request.question == Question::kGive) return send_pieces(socket, request.bytes, deadline);
  const auto time = ClockOffset::clock().count();
  socket.send(&time, sizeof time, deadline);
}

void answer_all(const Socket& socket, std::uint64_t token) {
  constexpr std::chrono::seconds kLongest(10);
  std::uint64_t shown = 0;
  socket.send_at_once();
  receive_all(socket, &shown, sizeof shown, Deadline::after(kTimeToAsk));
  while (shown == token) {
    Request request = {};
    receive_all(socket, &request, sizeof request, Deadline::after(kTimeToAsk));
    answer(socket, request, Deadline::after(kLongest));
  }
}

// Asks for more and more bytes until a transfer is long enough to be measured.
double measure(const std::function<void(std::int64_t bytes)>& transfer) {
  constexpr double kLongEnough = 0.1;  // seconds
  constexpr std::int64_t kFirst = 256 << 10;
  for (auto bytes = kFirst;; bytes *= 4) {
    const auto begin = std::chrono::steady_clock::now();
    transfer(bytes);
    const auto seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
    if (seconds >= kLongEnough || bytes * 4 > kMostBytes) return static_cast<double>(bytes) / std::max(seconds, 1e-9);
  }
}

}  // namespace

ProbeServer::ProbeServer(const Address& address) : listener_(Socket::listen(address)), token_(unguessable_number()) {
  thread_ = start_thread("lockstep:probe", [this](const std::stop_token& stop) { serve(stop); });
}

ProbeServer::~ProbeServer() = default;

void ProbeServer::serve(const std::stop_token& stop) const {
  while (!stop.stop_requested()) {
    if (!listener_.wait_readable(Deadline::after(kLookAround))) continue;
    const auto socket = listener_.accept();
    if (!socket.is_open()) continue;
    try {
      answer_all(socket, token_);
    } catch (const Error&) {  // it has gone, or it is a stranger
    }
  }
}

Probe::Probe(const Address& address, std::uint64_t token, const Deadline& deadline)
    : deadline_(deadline), socket_(Socket::connect(address, deadline)) {
  socket_.send_at_once();
  socket_.send(&token, sizeof token, deadline_);
}

Probe::Times Probe::ping(int rounds) const {
  Times best{nanoseconds::max(), nanoseconds(0)};
  for (int k = 0; k < rounds; ++k) {
    const Request request{Question::kPing, 0};
    const auto clock = ClockOffset::clock().count();
    const auto begin = std::chrono::steady_clock::now();
    socket_.send(&request, sizeof request, deadline_);
    std::int64_t theirs = 0;
    receive_all(socket_, &theirs, sizeof theirs, deadline_);
    const auto took = std::chrono::duration_cast<nanoseconds>(std::chrono::steady_clock::now() - begin);
    if (took < best.round_trip) best = {took, nanoseconds(theirs - clock) - took / 2};
  }
  return best;
}

double Probe::rate_there() const {
  return measure([&](std::int64_t bytes) {
    const Request request{Question::kTake, bytes};
    socket_.send(&request, sizeof request, deadline_);
    send_pieces(socket_, bytes, deadline_);
    std::int64_t time = 0;
    receive_all(socket_, &time, sizeof time, deadline_);
  });
}

double Probe::rate_back() const {
  return measure([&](std::int64_t bytes) {
    const Request request{Question::kGive, bytes};
    socket_.send(&request, sizeof request, deadline_);
    receive_pieces(socket_, bytes, deadline_);
  });
}

}  // namespace lockstep::tool
