#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <future>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "lockstep/ps/rpc.h"

// A server and a way to it, for tests of calls.

namespace lockstep::ps::testing {

inline Deadline soon() { return Deadline::after(std::chrono::seconds(20)); }

inline std::vector<std::byte> bytes_of(std::size_t count, unsigned seed) {
  std::vector<std::byte> bytes(count);
  for (std::size_t i = 0; i < count; ++i) bytes[i] = static_cast<std::byte>(i * 131 + i / 251 + seed);
  return bytes;
}

inline std::vector<std::byte> payload_of(Incoming& message) {
  std::vector<std::byte> bytes(message.left());
  message.read(bytes);
  return bytes;
}

inline Piece piece_of(std::vector<std::byte> bytes) {
  const auto owner = std::make_shared<const std::vector<std::byte>>(std::move(bytes));
  return {*owner, owner};
}

inline void echo(Incoming& request, Outgoing& reply) {
  reply.fields = request.fields();
  reply.payload.push_back(piece_of(payload_of(request)));
}

// A server with some methods, which handlers of tests can be added to, and a way to it.
struct Pair {
  explicit Pair(std::map<std::string, Method> methods = {}, const RpcOptions& with = {}, const RpcOptions& client = {})
      : server({"127.0.0.1", 0}, with_echo(std::move(methods)), with), channel("/job:ps/task:0", address(), client) {}

  static std::map<std::string, Method> with_echo(std::map<std::string, Method> methods) {
    methods["echo"] = {echo};
    methods["quick"] = {echo, HandlerKind::kQuick};
    return methods;
  }
  Address address() const { return {"127.0.0.1", server.port()}; }
  std::unique_ptr<Incoming> call(const std::string& method, const Outgoing& request = {}) {
    return channel.call(method, request, soon());
  }

  RpcServer server;
  RpcChannel channel;
};

// For handlers that wait until the test lets them go, and counts them.
struct Gate {
  Method method() {
    return {[this](Incoming&, Outgoing&) { pass(); }};
  }
  void pass() {
    ++arrived;
    EXPECT_EQ(opened.wait_for(std::chrono::seconds(20)), std::future_status::ready);
  }
  void wait_for_arrivals(int count) {
    const auto deadline = soon();
    while (arrived < count && !deadline.has_passed()) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    ASSERT_GE(arrived, count);
  }

  std::atomic<int> arrived = 0;
  std::promise<void> open;
  std::shared_future<void> opened = open.get_future().share();
};

}  // namespace lockstep::ps::testing
