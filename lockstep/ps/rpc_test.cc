#include "lockstep/ps/rpc.h"

#include <atomic>
#include <cstring>
#include <future>
#include <new>
#include <random>
#include <stdexcept>
#include <thread>

#include "tests/support/rpc_pair.h"
#include "tests/support/testing.h"

namespace lockstep::ps {
namespace {

using namespace std::chrono_literals;
using namespace testing;
using lockstep::testing::code_of;
using lockstep::testing::ThrowsCode;
using ::testing::HasSubstr;

TEST(Rpc, MoreThanTheMessageHasCannotBeRead) {
  Pair pair;
  const auto sent = bytes_of(10, 0);
  const auto reply = pair.call("echo", {.payload = {{sent}}});
  std::vector<std::byte> got(11);
  EXPECT_THAT([&] { reply->read(got); }, ThrowsCode(ErrorCode::kInvalidArgument, "10", "11"));
  EXPECT_EQ(payload_of(*reply), sent);
}

TEST(Rpc, ErrorsKeepCodeAndText) {
  std::string text;
  auto code = ErrorCode::kNotFound;
  Pair pair({{"fail", {[&](Incoming&, Outgoing&) { throw Error(code, text); }}}});
  for (code = ErrorCode::kInvalidArgument; code <= ErrorCode::kInternal;
       code = static_cast<ErrorCode>(static_cast<int>(code) + 1)) {
    text = str("row 7 of \"w\"\n\t\xC3\xA4 ", std::string(20'000, 'x'), "end");
    EXPECT_THAT([&] { pair.call("fail"); }, ThrowsCode(code, "/job:ps/task:0", text.c_str()));
  }
  code = ErrorCode::kNotFound;
  text = "begins" + std::string(1'000'000, 'x') + "ends";
  try {
    pair.call("fail");
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kNotFound);
    EXPECT_LT(error.message().size(), 100'000U);
    EXPECT_THAT(error.message(), ::testing::AllOf(HasSubstr("begins"), HasSubstr("left out"), ::testing::EndsWith("ends")));
  }
  EXPECT_EQ(pair.call("echo", {.fields = "still there"})->fields(), "still there");
}

TEST(Rpc, WhateverAHandlerThrowsTheServerGoesOn) {
  Pair pair(
      {{"bug", {[](Incoming&, Outgoing&) { throw std::logic_error("a bug"); }}},
       {"memory", {[](Incoming&, Outgoing&) { throw std::bad_alloc(); }}},
       {"torch", {[](Incoming&, Outgoing&) { throw std::runtime_error("DefaultCPUAllocator: can't allocate memory: you"); }}},
       {"number", {[](Incoming&, Outgoing&) { throw 7; }, HandlerKind::kQuick}}});
  for (int round = 0; round < 3; ++round) {
    EXPECT_THAT([&] { pair.call("bug"); }, ThrowsCode(ErrorCode::kInternal, "a bug"));
    EXPECT_THAT([&] { pair.call("memory"); }, ThrowsCode(ErrorCode::kUnavailable, "out of memory"));
    EXPECT_THAT([&] { pair.call("torch"); }, ThrowsCode(ErrorCode::kUnavailable, "out of memory"));
    EXPECT_THAT([&] { pair.call("number"); }, ThrowsCode(ErrorCode::kInternal));
    EXPECT_EQ(pair.call("echo", {.fields = "still there"})->fields(), "still there");
  }
}

TEST(Rpc, StrangersAreRefusedAndNothingOfTheirsIsRead) {
  std::atomic<int> calls = 0;
  Pair pair({{"count", {[&](Incoming&, Outgoing&) { ++calls; }}}}, {.secret = "ours", .build = "b1"},
            {.secret = "ours", .build = "b1"});
  const auto refused = [&](const RpcOptions& options) {
    RpcChannel stranger("/job:ps/task:0", pair.address(), options);
    const auto sent = bytes_of(3 << 20, 0);
    try {
      stranger.call("count", {.payload = {{sent}}}, soon());
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kFailedPrecondition);
      return error.message();
    }
    return std::string("nobody");
  };
  for (const std::string secret : {"", "our", "ours ", "theirs", std::string("ours\0", 5).c_str() + 1})
    EXPECT_THAT(refused({.secret = secret, .build = "b1"}), HasSubstr("secret")) << secret;
  EXPECT_THAT(refused({.secret = "ours", .build = "b2"}), ::testing::AllOf(HasSubstr("'b1'"), HasSubstr("'b2'")));
  EXPECT_THAT([&] { RpcChannel("x", pair.address(), {.secret = "no"}).wait_until_reachable(soon()); },
              ThrowsCode(ErrorCode::kFailedPrecondition, "secret"));
  EXPECT_EQ(calls, 0);
  pair.call("count");
  EXPECT_EQ(calls, 1);
}

TEST(Rpc, AnUnknownMethodIsNamed) {
  Pair pair;
  EXPECT_THAT([&] { pair.call("ecco"); }, ThrowsCode(ErrorCode::kUnimplemented, "'ecco'", "echo"));
}

TEST(Rpc, WhatIsTooLargeIsRefusedOnBothSides) {
  const auto large = bytes_of(200'000, 0);
  Pair pair({{"much", {[&](Incoming&, Outgoing& reply) { reply.payload.push_back({large}); }}}}, {.most_bytes = 100'000});
  // The client would send it.
  EXPECT_THAT([&] { pair.call("echo", {.payload = {{large}}}); }, ThrowsCode(ErrorCode::kInvalidArgument, "echo"));
  EXPECT_THAT([&] { pair.call("much"); }, ThrowsCode(ErrorCode::kInvalidArgument, "200000", "100000"));
  RpcChannel careful("/job:ps/task:0", pair.address(), {.most_bytes = 1000});
  EXPECT_THAT([&] { careful.call("echo", {.payload = {{large}}}, soon()); },
              ThrowsCode(ErrorCode::kInvalidArgument, "200000", "1000"));
  EXPECT_THAT([&] { RpcChannel("x", pair.address(), {.most_bytes = 1UL << 32}); }, ThrowsCode(ErrorCode::kInvalidArgument));
  EXPECT_EQ(payload_of(*pair.call("echo", {.payload = {{std::span(large).first(99'000)}}})).size(), 99'000U);
}

TEST(Rpc, ACallThatIsNotAnsweredEndsAtItsDeadline) {
  Gate gate;
  Pair pair({{"wait", gate.method()}});
  const auto seconds = lockstep::testing::time_of([&] {
    EXPECT_THAT([&] { pair.channel.call("wait", {}, Deadline::after(100ms)); },
                ThrowsCode(ErrorCode::kDeadlineExceeded, "/job:ps/task:0", "wait"));
  });
  EXPECT_LT(seconds.count(), 5);
  EXPECT_EQ(code_of([&] { pair.channel.call("echo", {}, Deadline::after(-1s)); }), ErrorCode::kDeadlineExceeded);
  gate.open.set_value();
}

TEST(Rpc, ACancelledCallEndsAtOnce) {
  Gate gate;
  Pair pair({{"wait", gate.method()}});
  auto call = pair.channel.start("wait", {}, soon());
  gate.wait_for_arrivals(1);
  auto waits = std::async(std::launch::async, [&] { return code_of([&] { call.wait(); }); });
  call.cancel();
  ASSERT_EQ(waits.wait_for(5s), std::future_status::ready);
  EXPECT_EQ(waits.get(), ErrorCode::kCancelled);
  EXPECT_EQ(code_of([&] { call.wait(); }), ErrorCode::kInvalidArgument);  // once
  { auto dropped = pair.channel.start("wait", {}, soon()); }
  gate.open.set_value();
}

TEST(Rpc, HandlersRunAtTheSameTimeUpToTheLimitAndOthersWaitTheirTurn) {
  Gate gate;
  Pair pair({{"wait", gate.method()}}, {.most_threads = 3});
  std::vector<PendingCall> calls;
  for (int k = 0; k < 8; ++k) calls.push_back(pair.channel.start("wait", {}, soon()));
  gate.wait_for_arrivals(3);
  EXPECT_EQ(pair.call("quick", {.fields = "meanwhile"})->fields(), "meanwhile");
  EXPECT_EQ(gate.arrived, 3);
  gate.open.set_value();
  for (auto& call : calls) call.wait();
  EXPECT_EQ(gate.arrived, 8);
}

TEST(Rpc, AServerWithTooMuchToDoSaysSo) {
  Gate gate;
  Pair pair({{"wait", gate.method()}}, {.most_bytes = 1 << 20, .most_threads = 1});
  const auto sent = bytes_of(600'000, 0);
  auto running = pair.channel.start("wait", {}, soon());
  gate.wait_for_arrivals(1);
  std::vector<PendingCall> calls;
  for (int k = 0; k < 4; ++k)
    calls.push_back(pair.channel.start("wait", {.payload = {{std::span(sent).first(60'000)}}}, soon()));
  std::vector<PendingCall> large;
  for (int k = 0; k < 20; ++k)
    large.push_back(pair.channel.start("wait", {.payload = {{std::span(sent).first(60'000)}}}, soon()));
  EXPECT_THAT([&] { large.back().wait(); }, ThrowsCode(ErrorCode::kUnavailable, "/job:ps/task:0", "busy"));
  gate.open.set_value();
  running.wait();
  for (auto& call : calls) call.wait();
}

TEST(Rpc, AServerThatEndsAnswersWhatWaitsAndWaitsForWhatRuns) {
  Gate gate;
  auto pair = std::make_unique<Pair>(std::map<std::string, Method>{{"wait", gate.method()}}, RpcOptions{.most_threads = 1});
  RpcChannel channel("/job:ps/task:0", pair->address());
  auto running = channel.start("wait", {}, soon());
  gate.wait_for_arrivals(1);
  auto waiting = channel.start("wait", {}, soon());
  channel.call("quick", {}, soon());  // came after it, on the same connection
  auto ending = std::async(std::launch::async, [&] { pair.reset(); });
  EXPECT_THAT([&] { waiting.wait(); }, ThrowsCode(ErrorCode::kUnavailable, "/job:ps/task:0", "ending"));
  EXPECT_EQ(ending.wait_for(0s), std::future_status::timeout);
  gate.open.set_value();
  running.wait();
  ASSERT_EQ(ending.wait_for(10s), std::future_status::ready);
  EXPECT_EQ(gate.arrived, 1);
  EXPECT_EQ(code_of([&] { channel.call("echo", {}, soon()); }), ErrorCode::kUnavailable);
}

TEST(Rpc, AServerThatWasStartedAgainIsFound) {
  const auto methods = Pair::with_echo({});
  auto server = std::make_unique<RpcServer>(Address{"127.0.0.1", 0}, methods);
  const Address address{"127.0.0.1", server->port()};
  RpcChannel channel("/job:ps/task:1", address);
  channel.wait_until_reachable(soon());
  const auto sent = bytes_of(3'000'000, 5);
  for (int round = 0; round < 2; ++round) {
    EXPECT_EQ(payload_of(*channel.call("echo", {.payload = {{sent}}}, soon())), sent);
    server.reset();
    EXPECT_THAT([&] { channel.call("echo", {.payload = {{sent}}}, soon()); },
                ThrowsCode(ErrorCode::kUnavailable, "/job:ps/task:1", str(address).c_str()));
    server = std::make_unique<RpcServer>(address, methods);
    const auto seconds = lockstep::testing::time_of([&] { channel.wait_until_reachable(soon()); });
    EXPECT_LT(seconds.count(), 5);
  }
  EXPECT_EQ(payload_of(*channel.call("echo", {.payload = {{sent}}}, soon())), sent);
  EXPECT_THAT([&] { RpcServer(address, methods); }, ThrowsCode(ErrorCode::kFailedPrecondition, str(address).c_str()));
}

TEST(Rpc, WhoIsNotThereIsNamedAtTheDeadline) {
  int port = 0;
  port = RpcServer({"127.0.0.1", 0}, {}).port();
  RpcChannel channel("/job:ps/task:2", {"127.0.0.1", port});
  EXPECT_THAT([&] { channel.wait_until_reachable(Deadline::after(300ms)); },
              ThrowsCode(ErrorCode::kDeadlineExceeded, "/job:ps/task:2", str("127.0.0.1:", port).c_str()));
  EXPECT_THAT([&] { channel.call("echo", {}, soon()); }, ThrowsCode(ErrorCode::kUnavailable, "/job:ps/task:2"));
}

}  // namespace
}  // namespace lockstep::ps
