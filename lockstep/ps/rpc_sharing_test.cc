#include <cstring>
#include <fstream>
#include <random>

#include "lockstep/ps/rpc.h"
#include "lockstep/ps/rpc_lane.h"
#include "tests/support/rpc_pair.h"
#include "tests/support/testing.h"

// What is sent arrives, whichever way it goes: through the socket, through shared memory, and with too little of it.

namespace lockstep::ps {
namespace {

using namespace std::chrono_literals;
using namespace testing;
using internal::kSlotBytes;
using internal::Lane;
using lockstep::testing::code_of;
using lockstep::testing::ThrowsCode;

void wait_until(const std::function<bool()>& is_so) {
  const auto deadline = soon();
  while (!is_so() && !deadline.has_passed()) std::this_thread::sleep_for(1ms);
  ASSERT_TRUE(is_so());
}

// Calls until memory is shared.
void share(RpcChannel& channel) {
  wait_until([&] {
    channel.call("quick", {}, soon());
    return channel.shares_memory();
  });
}

struct RpcBytes : ::testing::TestWithParam<std::size_t> {
  static RpcOptions options() { return {.shared_bytes = GetParam()}; }
  static void begin(Pair& pair) {
    if (GetParam() > 0) share(pair.channel);
  }
};

INSTANTIATE_TEST_SUITE_P(Shared, RpcBytes, ::testing::Values(0, 4 * kSlotBytes, 256 * kSlotBytes));

TEST_P(RpcBytes, BytesOfEverySizeComeBack) {
  Pair pair({}, options(), options());
  begin(pair);
  for (const std::size_t size : {0UL, 1UL, 7UL, 2047UL, 2048UL, 65'537UL, 1'000'003UL, (5UL << 20) + 1})
    for (const std::string method : {"echo", "quick"}) {
      const auto sent = bytes_of(size, 1);
      const auto reply = pair.call(method, {.fields = "size " + std::to_string(size), .payload = {{sent}}});
      EXPECT_EQ(reply->fields(), "size " + std::to_string(size));
      EXPECT_EQ(reply->left(), size);
      EXPECT_EQ(payload_of(*reply), sent);
    }
}

TEST_P(RpcBytes, ManyPiecesAreOnePayloadAndAreReadInAnyCuts) {
  Pair pair({}, options(), options());
  begin(pair);
  std::vector<std::vector<std::byte>> memory;
  std::vector<std::byte> expected;
  for (std::size_t k = 0; k < 300; ++k) {
    memory.push_back(bytes_of((k * k * 7) % 9001, static_cast<unsigned>(k)));
    expected.insert(expected.end(), memory.back().begin(), memory.back().end());
  }
  Outgoing request{.fields = std::string(100'000, 'f')};
  for (std::size_t k = 0; k < memory.size(); ++k)
    request.payload.push_back(k % 2 == 0 ? Piece{memory[k]} : piece_of(memory[k]));
  const auto reply = pair.call("echo", request);
  EXPECT_EQ(reply->fields(), request.fields);
  std::vector<std::byte> got(expected.size());
  for (std::size_t at = 0, count = 1; at < got.size(); at += count, count = count * 3 + 1) {
    count = std::min(count, got.size() - at);
    reply->read(std::span(got).subspan(at, count));
  }
  EXPECT_EQ(got, expected);
}

// The memory is written to, and given back, at once after the end: a sanitizer sees who reads it later, and the server must
// never see what was written.
TEST_P(RpcBytes, MemoryWithoutAnOwnerIsNotTouchedAfterTheEnd) {
  const std::vector<std::byte> ones(4 << 20, std::byte{1});
  std::atomic<int> wrong = 0;
  Pair pair({{"check", {[&](Incoming& request, Outgoing&) {
                const auto got = payload_of(request);
                if (std::memcmp(got.data(), ones.data(), got.size()) != 0) ++wrong;
              }}}},
            options(), options());
  begin(pair);
  std::mt19937 random(1);
  for (int round = 0; round < 40; ++round) {
    auto memory = ones;
    {
      auto call = pair.channel.start("check", {.payload = {{memory}}}, soon());
      std::this_thread::sleep_for(std::chrono::microseconds(random() % 2000));
    }
    std::memset(memory.data(), 2, memory.size());
  }
  pair.call("check");
  EXPECT_EQ(wrong, 0);
}

TEST_P(RpcBytes, ManyThreadsGetTheirOwnBytes) {
  Pair pair({}, options(), options());
  begin(pair);
  std::atomic<int> calls = 0;
  lockstep::testing::on_threads(8, [&](int k) {
    std::mt19937 random(static_cast<unsigned>(k));
    const auto until = Deadline::after(1s);
    while (!until.has_passed()) {
      std::vector<std::vector<std::byte>> sent;
      std::vector<PendingCall> pending;
      for (int i = 0; i < 3; ++i) {
        sent.push_back(bytes_of(random() % (random() % 4 == 0 ? 1'500'000 : 3000), random()));
        pending.push_back(
            pair.channel.start(i == 0 ? "quick" : "echo", {.fields = std::to_string(k), .payload = {{sent[i]}}}, soon()));
      }
      for (int i = 2; i >= 0; --i) {
        const auto reply = pending[i].wait();
        if (reply->fields() != std::to_string(k) || payload_of(*reply) != sent[i]) ADD_FAILURE();
        ++calls;
      }
    }
  });
  EXPECT_GT(calls, 100);
}

// Blocks of memory that this process has mapped.
int blocks() {
  std::ifstream maps("/proc/self/maps");
  int count = 0;
  for (std::string line; std::getline(maps, line);) count += line.find("memfd:lockstep") != std::string::npos;
  return count;
}

TEST(RpcSharing, EndsWithTheChannelAndWithTheServer) {
  ASSERT_EQ(blocks(), 0);
  auto pair = std::make_unique<Pair>();
  share(pair->channel);
  EXPECT_EQ(blocks(), 2);  // each side's
  {
    RpcChannel other("/job:ps/task:0", pair->address());
    share(other);
    EXPECT_EQ(blocks(), 4);
  }
  wait_until([] { return blocks() == 2; });
  EXPECT_TRUE(pair->channel.shares_memory());
  pair.reset();
  EXPECT_EQ(blocks(), 0);
}

TEST(RpcSharing, IsLeftToEitherSide) {
  for (const bool is_server : {true, false}) {
    const RpcOptions without{.shared_bytes = 0};
    Pair pair({}, is_server ? without : RpcOptions{}, is_server ? RpcOptions{} : without);
    const auto sent = bytes_of(1 << 20, 3);
    for (int k = 0; k < 5; ++k) EXPECT_EQ(payload_of(*pair.call("echo", {.payload = {{sent}}})), sent);
    EXPECT_FALSE(pair.channel.shares_memory());
  }
}

// The server reads the request of a call that was given up, while others are sent and answered.
TEST(RpcSharing, ACancelledCallsBytesStayAsTheyWere) {
  Gate gate;
  std::promise<std::vector<std::byte>> read;
  Pair pair({{"read", {[&](Incoming& request, Outgoing& reply) {
                gate.pass();
                got = payload_of(request);
                reply.payload.push_back(piece_of(bytes_of(got.size(), 9)));  // that nobody wants
                read.set_value(std::move(got));
              }}}});
  share(pair.channel);
  const auto sent = bytes_of(3 << 20, 1);
  {
    const auto call = pair.channel.start("read", {.payload = {{sent}}}, soon());
    gate.wait_for_arrivals(1);
  }
  EXPECT_FALSE(pair.channel.shares_memory());
  share(pair.channel);
  for (unsigned k = 0; k < 20; ++k) {
    const auto other = bytes_of(3 << 20, k);
    EXPECT_EQ(payload_of(*pair.call("echo", {.payload = {{other}}})), other);
  }
  gate.open.set_value();
  EXPECT_EQ(read.get_future().get(), sent);
  wait_until([] { return blocks() == 2; });  // and the memory of then is gone
}

TEST(RpcSharing, RepliesAreKeptUntilTheyAreRead) {
  Pair pair({}, {}, {.shared_bytes = 16 * kSlotBytes});
  share(pair.channel);
  std::vector<std::unique_ptr<Incoming>> replies;
  for (unsigned k = 0; k < 12; ++k) {
    const auto sent = bytes_of(2 * kSlotBytes, k);
    replies.push_back(pair.call("echo", {.payload = {{sent}}}));
  }
  for (unsigned k = 0; k < 12; ++k) EXPECT_EQ(payload_of(*replies[k]), bytes_of(2 * kSlotBytes, k));
}

TEST(RpcSharing, AServerThatWasStartedAgainIsGivenMemoryAgain) {
  auto server = std::make_unique<RpcServer>(Address{"127.0.0.1", 0}, Pair::with_echo({}));
  const Address address{"127.0.0.1", server->port()};
  RpcChannel channel("/job:ps/task:1", address);
  const auto sent = bytes_of(1 << 20, 5);
  for (int round = 0; round < 3; ++round) {
    channel.wait_until_reachable(soon());
    share(channel);
    EXPECT_EQ(payload_of(*channel.call("echo", {.payload = {{sent}}}, soon())), sent);
    server.reset();
    server = std::make_unique<RpcServer>(address, Pair::with_echo({}));
  }
}

TEST(Lane, HasEverySlotOnceAndGivesItAgainWhenItIsFree) {
  Lane lane(8 * kSlotBytes);
  const auto sent = bytes_of(2 * kSlotBytes - 5, 1);
  const auto put = [&](Lane::Half half) { return lane.put(half, {{sent}}, sent.size()); };
  const auto first = put(Lane::Half::kRequests);
  const auto second = put(Lane::Half::kRequests);
  EXPECT_THAT(*first, ::testing::ElementsAre(0, 1));
  EXPECT_THAT(*second, ::testing::ElementsAre(2, 3));
  EXPECT_FALSE(put(Lane::Half::kRequests));
  EXPECT_THAT(*put(Lane::Half::kReplies), ::testing::ElementsAre(4, 5));
  const auto other = Lane::open(lane.offer());
  internal::Cursor there(other->find(Lane::Half::kRequests, *second, sent.size()));
  std::vector<std::byte> got(there.left());
  there.read(got);
  EXPECT_EQ(got, sent);
  other->free(*first);
  EXPECT_THAT(*put(Lane::Half::kRequests), ::testing::ElementsAre(0, 1));
  EXPECT_FALSE(lane.put(Lane::Half::kReplies, {{std::span(sent).first(100)}}, 100));  // too small
}

TEST(Lane, KnowsNoSlotsButItsOwn) {
  Lane lane(8 * kSlotBytes);
  using Slots = std::vector<std::uint32_t>;
  EXPECT_EQ(lane.find(Lane::Half::kReplies, {4, 7}, 2 * kSlotBytes).size(), 2U);
  for (const auto& [slots, bytes] :
       std::vector<std::pair<Slots, std::size_t>>{{{3}, 1}, {{8}, 1}, {{~0U}, 1}, {{4}, kSlotBytes + 1}, {Slots(5, 4), 1}})
    EXPECT_EQ(code_of([&] { lane.find(Lane::Half::kReplies, slots, bytes); }), ErrorCode::kInvalidArgument);
  EXPECT_THAT([] { Lane::open({.ticket = "nonsense"}); }, ThrowsCode(ErrorCode::kInvalidArgument));
  const SharedBlock block(1000);
  EXPECT_THAT([&] { Lane::open({.ticket = block.ticket()}); }, ThrowsCode(ErrorCode::kInvalidArgument, "1000"));
}

}  // namespace
}  // namespace lockstep::ps
