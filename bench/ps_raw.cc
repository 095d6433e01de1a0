#include "bench/ps_raw.h"

#include <arpa/inet.h>
#include <netinet/tcp.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <random>
#include <stdexcept>
#include <string>

#include "lockstep/base/fetch_early.h"

namespace bench {
namespace {

enum class Order : std::uint32_t { kPullDense, kPushDense, kPullRows, kPushRows };

struct Message {
  Order order;
  std::uint32_t batch;
};

void check(bool holds, const char* what) {
  if (!holds) throw std::runtime_error(std::string("raw TCP: ") + what);
}

void send_all(int to, std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const auto sent = send(to, bytes.data(), bytes.size(), MSG_NOSIGNAL);
    check(sent > 0, "the connection is gone");
    bytes = bytes.subspan(static_cast<std::size_t>(sent));
  }
}

// False: the other one has gone.
bool receive_all(int from, std::span<std::byte> bytes) {
  while (!bytes.empty()) {
    const auto got = recv(from, bytes.data(), bytes.size(), 0);
    if (got <= 0) return false;
    bytes = bytes.subspan(static_cast<std::size_t>(got));
  }
  return true;
}

sockaddr_in loopback(int port) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  address.sin_port = htons(static_cast<std::uint16_t>(port));
  return address;
}

void no_delay(int fd) {
  const int yes = 1;
  setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes);
}

class RawServer {
 public:
  RawServer(int port, std::int64_t rows) : socket_(socket(AF_INET, SOCK_STREAM, 0)), piece_(kPieceBytes) {
    auto address = loopback(port);
    check(connect(socket_, reinterpret_cast<sockaddr*>(&address), sizeof address) == 0, "cannot connect");
    no_delay(socket_);
    const auto bytes = static_cast<std::size_t>(rows) * kColumns * sizeof(float);
    // As the parameter server has it: pages of 2 MB, all there.
    table_ = static_cast<float*>(std::aligned_alloc(std::size_t{2} << 20, (bytes + (2 << 20) - 1) >> 21 << 21));
    check(table_ != nullptr, "no memory");
    madvise(table_, bytes, MADV_HUGEPAGE);
    std::fill_n(table_, static_cast<std::size_t>(rows) * kColumns, 1.0F);
    for (std::uint32_t batch = 0; batch < kIdBatches; ++batch) ids_.push_back(random_ids(batch, rows));
  }
  ~RawServer() {
    close(socket_);
    std::free(table_);
  }

  void run() {
    for (Message message{}; receive_all(socket_, std::as_writable_bytes(std::span(&message, 1)));) {
      switch (message.order) {
        case Order::kPullDense:
          for (std::size_t at = 0; at < kDenseBytes; at += kPieceBytes) send_all(socket_, piece_);
          break;
        case Order::kPushDense:
          for (std::size_t at = 0; at < kDenseBytes; at += kPieceBytes) check(receive_all(socket_, piece_), "cut");
          answer();
          break;
        case Order::kPullRows: pull(ids_.at(message.batch)); break;
        case Order::kPushRows: push(ids_.at(message.batch)); break;
      }
    }
  }

 private:
  void answer() const { send_all(socket_, std::as_bytes(std::span("1", 1))); }
  float* row(std::int64_t id) const { return table_ + static_cast<std::size_t>(id) * kColumns; }
  std::span<std::byte> rows() { return std::span(piece_).first(kRowsAtOnce * kRowBytes); }

  void pull(const std::vector<std::int64_t>& ids) {
    each(ids, [&](std::size_t k, float* from) { std::memcpy(piece_.data() + k * kRowBytes, from, kRowBytes); });
    send_all(socket_, rows());
  }
  void push(const std::vector<std::int64_t>& ids) {
    check(receive_all(socket_, rows()), "cut");
    const auto* const given = reinterpret_cast<const float*>(piece_.data());
    each(ids, [&](std::size_t k, float* into) {
      for (std::size_t i = 0; i < kColumns; ++i) into[i] += given[k * kColumns + i];
    });
    answer();
  }
  template <typename Do>
  void each(const std::vector<std::int64_t>& ids, Do work) const {
    constexpr std::size_t kAhead = 24;
    for (std::size_t k = 0; k < ids.size(); ++k) {
      if (k + kAhead < ids.size()) lockstep::fetch_early(row(ids[k + kAhead]), kRowBytes);
      work(k, row(ids[k]));
    }
  }

  static constexpr std::size_t kRowBytes = kColumns * sizeof(float);

  const int socket_;
  std::vector<std::byte> piece_;
  float* table_ = nullptr;
  std::vector<std::vector<std::int64_t>> ids_;
};

void order(int to, Order what, std::uint32_t batch = 0) {
  const Message message{what, batch};
  send_all(to, std::as_bytes(std::span(&message, 1)));
}

void await_answer(int from) {
  std::byte answer{};
  check(receive_all(from, {&answer, 1}), "the other process has gone");
}

}  // namespace

std::vector<std::int64_t> random_ids(std::uint32_t batch, std::int64_t rows) {
  std::mt19937_64 random(batch + 1);
  std::vector<std::int64_t> ids(kRowsAtOnce);
  for (auto& id : ids) id = static_cast<std::int64_t>(random() % static_cast<std::uint64_t>(rows));
  return ids;
}

RawPeer::RawPeer(std::int64_t rows) : piece_(kPieceBytes) {
  const int listener = socket(AF_INET, SOCK_STREAM, 0);
  auto address = loopback(0);
  socklen_t size = sizeof address;
  auto* const raw = reinterpret_cast<sockaddr*>(&address);
  check(bind(listener, raw, size) == 0 && listen(listener, 1) == 0 && getsockname(listener, raw, &size) == 0, "cannot listen");
  child_ =
      std::make_unique<Child>(std::vector{"--raw=" + std::to_string(ntohs(address.sin_port)), "--rows=" + std::to_string(rows)},
                              std::map<std::string, std::string>());
  socket_ = accept(listener, nullptr, nullptr);
  close(listener);
  check(socket_ >= 0, "nobody came");
  no_delay(socket_);
}

RawPeer::~RawPeer() { close(socket_); }

void RawPeer::pull_dense() {
  order(socket_, Order::kPullDense);
  for (std::size_t at = 0; at < kDenseBytes; at += kPieceBytes)
    check(receive_all(socket_, piece_), "the other process has gone");
}

void RawPeer::push_dense() {
  order(socket_, Order::kPushDense);
  for (std::size_t at = 0; at < kDenseBytes; at += kPieceBytes) send_all(socket_, piece_);
  await_answer(socket_);
}

void RawPeer::pull_rows(std::uint32_t batch, std::span<float> rows) {
  order(socket_, Order::kPullRows, batch);
  check(receive_all(socket_, std::as_writable_bytes(rows)), "the other process has gone");
}

void RawPeer::push_rows(std::uint32_t batch, std::span<const float> rows) {
  order(socket_, Order::kPushRows, batch);
  send_all(socket_, std::as_bytes(rows));
  await_answer(socket_);
}

void serve_raw(int port, std::int64_t rows) { RawServer(port, rows).run(); }

}  // namespace bench
