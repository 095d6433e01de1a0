#include "lockstep/ps/client.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>

#include <condition_variable>
#include <deque>
#include <random>

#include "lockstep/base/thread.h"
#include "lockstep/ps/store.h"
#include "tests/support/ps_testing.h"
#include "tests/support/testing.h"

namespace lockstep::ps {
namespace {

using lockstep::testing::Arrived;
using lockstep::testing::MethodTable;
using lockstep::testing::on_threads;
using lockstep::testing::plain_rule;
using lockstep::testing::ThrowsCode;
using std::chrono::milliseconds;
using std::chrono::seconds;
using ::testing::ElementsAre;
using Kind = Operation::Kind;

// What can happen to a call, each so often in 100.
struct Faults {
  int lost_requests = 0;
  int lost_replies = 0;
  int duplicates = 0;  // the request arrives a second time, at some later moment
  int delays = 0;      // the request arrives after the client has given up on it
};

// A store that is called on the caller's thread, through a network that loses, repeats and delays.
class FaultyTarget final : public CallTarget {
 public:
  FaultyTarget(std::string name, VariableStore& store, Faults faults = {})
      : name_(std::move(name)),
        methods_(store.methods()),
        faults_(faults),
        late_(start_thread("late", [this](std::stop_token stop) { deliver(stop); })) {}

  const std::string& name() const noexcept override { return name_; }

  std::unique_ptr<Pending> start(const std::string& method, const Outgoing& request, const Deadline&) override {
    ++calls;
    if (is_down) return std::make_unique<Done>(nullptr, ErrorCode::kUnavailable);
    if (happens(faults_.lost_requests)) return std::make_unique<Done>(nullptr, ErrorCode::kUnavailable);
    if (happens(faults_.duplicates)) send_later(method, request);
    if (happens(faults_.delays)) {
      send_later(method, request);
      return std::make_unique<Done>(nullptr, ErrorCode::kDeadlineExceeded);
    }
    try {
      auto reply = methods_.call(method, request);
      if (happens(faults_.lost_replies)) return std::make_unique<Done>(nullptr, ErrorCode::kUnavailable);
      return std::make_unique<Done>(std::move(reply), ErrorCode::kInternal);
    } catch (const Error& error) {
      return std::make_unique<Done>(nullptr, error.code(), error.message());
    }
  }

  std::atomic<int> calls{0};
  std::atomic<bool> is_down{false};

 private:
  struct Done final : Pending {
    Done(std::unique_ptr<Incoming> with, ErrorCode or_code, std::string text = "lost")
        : reply(std::move(with)), code(or_code), message(std::move(text)) {}
    std::unique_ptr<Incoming> wait() override {
      if (reply == nullptr) throw Error(code, message);
      return std::move(reply);
    }
    std::unique_ptr<Incoming> reply;
    ErrorCode code;
    std::string message;
  };

  bool happens(int percent) {
    const std::lock_guard lock(mu_);
    return percent > 0 && static_cast<int>(random_() % 100) < percent;
  }
  void send_later(const std::string& method, const Outgoing& request) {
    auto copy = request;
    for (auto& piece : copy.payload) {  // whatever becomes of the sender's memory
      const auto bytes = std::make_shared<std::vector<std::byte>>(piece.bytes.begin(), piece.bytes.end());
      piece = {*bytes, bytes};
    }
    const std::lock_guard lock(mu_);
    waiting_.emplace_back(method, std::move(copy));
    changed_.notify_all();
  }
  // In another order than they were sent, some calls later.
  void deliver(const std::stop_token& stop) {
    std::mt19937 random(3);
    for (;;) {
      std::pair<std::string, Outgoing> one;
      {
        std::unique_lock lock(mu_);
        changed_.wait(lock, stop, [&] { return waiting_.size() > 5; });
        if (waiting_.empty()) return;
        const auto at = waiting_.begin() + static_cast<std::ptrdiff_t>(random() % waiting_.size());
        one = std::move(*at);
        waiting_.erase(at);
      }
      try {
        methods_.call(one.first, one.second);
      } catch (const Error&) {  // nobody waits for the answer
      }
    }
  }

  const std::string name_;
  const MethodTable methods_;
  const Faults faults_;
  std::mutex mu_;
  std::condition_variable_any changed_;
  // Guarded by mu_.
  std::mt19937 random_{17};
  std::deque<std::pair<std::string, Outgoing>> waiting_;

  std::jthread late_;
};

struct Cluster {
  explicit Cluster(std::size_t servers, Faults faults = {}, ClientOptions options = {.piece_bytes = 64}) {
    for (std::size_t i = 0; i < servers; ++i) {
      stores.push_back(std::make_unique<VariableStore>(StoreOptions{.rules = plain_rule}));
      targets.push_back(std::make_shared<FaultyTarget>(str("/job:ps/task:", i), *stores[i], faults));
    }
    client =
        std::make_unique<ParameterClient>(std::vector<std::shared_ptr<CallTarget>>(targets.begin(), targets.end()), options);
  }
  at::Tensor value(std::size_t server, const std::string& name) const {
    at::Tensor copy;
    stores[server]->find(name)->look([&](const at::Tensor& value, const UpdateRule*, std::uint64_t) { copy = value.clone(); });
    return copy;
  }

  std::vector<std::unique_ptr<VariableStore>> stores;
  std::vector<std::shared_ptr<FaultyTarget>> targets;
  std::unique_ptr<ParameterClient> client;
};

ParameterClient::New variable(std::size_t server, const std::string& name, const at::Tensor& value,
                              const std::string& rule = "") {
  return {server,
          {.name = name,
           .dtype = static_cast<std::int8_t>(value.scalar_type()),
           .shape = value.sizes().vec(),
           .whole_shape = value.sizes().vec(),
           .rule = rule},
          value};
}

TEST(ParameterClient, UsesVariablesOfSeveralServers) {
  Cluster cluster(2);
  auto& client = *cluster.client;
  const auto small = at::arange(6, at::kFloat).reshape({2, 3});
  const auto large = at::arange(1000, at::kDouble).reshape({100, 10});  // many pieces
  const auto made =
      client.create({variable(0, "small", small, "0.5"), variable(1, "large", large), variable(1, "empty", at::empty({0, 2}))});
  EXPECT_TRUE(made[0].is_new && made[1].is_new && made[2].is_new);
  EXPECT_FALSE(client.create({variable(1, "large", large)})[0].is_new);
  EXPECT_TRUE(cluster.value(1, "large").equal(large));

  const auto a = at::empty({2, 3});
  const auto b = at::empty({10, 100}, at::kDouble).t();  // its memory is in another order
  const auto c = at::empty({0, 2});
  const auto results = client.read({{0, "small", a}, {1, "large", b}, {1, "empty", c}});
  EXPECT_TRUE(a.equal(small));
  EXPECT_TRUE(b.equal(large));
  EXPECT_EQ(results[1].version, 0U);

  const auto pulled = at::empty({2, 3});
  const auto pulled_large = at::empty({100, 10}, at::kDouble);
  const auto versions = client.update({{0, "small", Kind::kGradient, at::ones({2, 3})},
                                       {1, "large", Kind::kAdd, large, {}, 0, pulled_large},
                                       {0, "small", Kind::kAdd, at::ones({2, 3}), {}, 0, pulled},
                                       {0, "small", Kind::kSetLearningRate, {}, {}, 0.25}});
  EXPECT_THAT(versions, ElementsAre(1, 1, 2, 3));
  EXPECT_TRUE(pulled.equal(small + 0.5));
  EXPECT_TRUE(pulled_large.equal(large * 2));
  EXPECT_TRUE(cluster.value(1, "large").equal(large * 2));

  const auto same = client.read({{0, "small", a, 3}, {1, "large", b, 0}});
  EXPECT_FALSE(same[0].is_newer);
  EXPECT_TRUE(same[1].is_newer);
  EXPECT_TRUE(a.equal(small));
  EXPECT_TRUE(b.equal(large * 2));

  EXPECT_EQ(client.describe(1).size(), 2U);
  EXPECT_EQ(client.statistics(0).updates, 3U);
  EXPECT_EQ(client.client_state(0).last_done, cluster.stores[0]->client_state(client.id_at(0)).last_done);
  client.remove(0, {"small"});
  EXPECT_EQ(client.statistics(0).variables, 0U);
}

TEST(ParameterClient, ReadsAndWritesRowsInPieces) {
  Cluster cluster(2);
  auto& client = *cluster.client;
  const auto table = at::arange(400, at::kFloat).reshape({100, 4});
  client.create({variable(0, "a", table, "1"), variable(1, "b", table)});
  const auto ids = at::randint(0, 100, {77}, at::kLong);
  const auto into = at::empty({77, 4});
  const auto other = at::empty({3, 4});
  const auto none = at::empty({0, 4});
  client.read_rows(
      {{0, "a", ids, into}, {1, "b", at::tensor({5, 5, 0}, at::kLong), other}, {1, "b", at::empty({0}, at::kLong), none}});
  EXPECT_TRUE(into.equal(table.index_select(0, ids)));
  EXPECT_TRUE(other[2].equal(table[0]));
  client.update({{0, "a", Kind::kGradientRows, at::ones({77, 4}), ids},
                 {1, "b", Kind::kUpdateRows, at::zeros({2, 4}), at::tensor({7, 9}, at::kLong)}});
  EXPECT_TRUE(cluster.value(0, "a").equal(table.index_add(0, ids, at::ones({77, 4}), -1)));
  EXPECT_TRUE(cluster.value(1, "b")[9].equal(at::zeros({4})));
}

TEST(ParameterClient, PassesOnWhatTheServerRefuses) {
  Cluster cluster(2);
  auto& client = *cluster.client;
  client.create({variable(0, "a", at::ones({3, 2})), variable(1, "b", at::ones({3, 2}))});
  EXPECT_THAT(
      [&] {
        client.read({{1, "x", at::empty({2})}});
      },
      ThrowsCode(ErrorCode::kNotFound, "/job:ps/task:1", "'x'", "'b'"));
  EXPECT_THAT([&] { client.read({{0, "a", at::empty({2, 3})}}); }, ThrowsCode(ErrorCode::kInvalidArgument, "[3, 2]", "[2, 3]"));
  EXPECT_THAT(
      [&] {
        client.read_rows({{0, "a", at::tensor({3}, at::kLong), at::empty({1, 2})}});
      },
      ThrowsCode(ErrorCode::kOutOfRange, "row 3"));
  EXPECT_THAT(
      [&] {
        client.read_rows({{0, "a", at::tensor({2}, at::kLong), at::empty({1, 3})}});
      },
      ThrowsCode(ErrorCode::kInvalidArgument, "shapes differ"));
  EXPECT_THAT(
      [&] {
        client.read_rows({{0, "a", at::tensor({2}, at::kInt), at::empty({1, 2})}});
      },
      ThrowsCode(ErrorCode::kInvalidArgument, "int64"));
  EXPECT_THAT(
      [&] {
        client.update({{2, "a", Kind::kAdd, at::ones({3, 2})}});
      },
      ThrowsCode(ErrorCode::kInvalidArgument, "server 2 of 2"));
  EXPECT_THAT([&] { client.update({{0, "a", Kind::kAdd}}); }, ThrowsCode(ErrorCode::kInvalidArgument, "without values"));
  // The other server does its part.
  EXPECT_THAT(
      [&] {
        client.update({{0, "x", Kind::kAdd, at::ones({3, 2})}, {1, "b", Kind::kAdd, at::ones({3, 2})}});
      },
      ThrowsCode(ErrorCode::kNotFound));
  EXPECT_EQ(cluster.stores[1]->find("b")->version(), 1U);
}

TEST(ParameterClient, GivesUpAtTheDeadlineAndNamesTheServer) {
  Cluster cluster(2);
  auto& client = *cluster.client;
  client.create({variable(0, "a", at::ones({2})), variable(1, "b", at::ones({2}))});
  cluster.targets[1]->is_down = true;
  EXPECT_THAT(
      [&] {
        client.update({{1, "b", Kind::kAdd, at::ones({2})}}, Deadline::after(milliseconds(60)));
      },
      ThrowsCode(ErrorCode::kUnavailable, "/job:ps/task:1", "tries"));
  EXPECT_GE(cluster.targets[1]->calls, 3);
  client.update({{0, "a", Kind::kAdd, at::ones({2})}});
  {
    const auto back = start_thread("back", [&](std::stop_token) {
      while (cluster.targets[1]->calls < 12) std::this_thread::yield();
      cluster.targets[1]->is_down = false;
    });
    client.update({{1, "b", Kind::kAdd, at::ones({2})}}, Deadline::after(seconds(20)));
  }
  EXPECT_EQ(cluster.stores[1]->find("b")->version(), 1U);
}

TEST(ParameterClient, CreatesMoreVariablesThanItHasRequestsAtATime) {
  Cluster cluster(2);
  std::vector<ParameterClient::New> many;
  for (std::size_t i = 0; i < 1'500; ++i) many.push_back(variable(i % 2, str("v", i), at::ones({2})));
  cluster.client->create(many);
  EXPECT_EQ(cluster.stores[0]->statistics().variables, 750U);
  EXPECT_LE(cluster.stores[1]->client_state(cluster.client->id_at(1)).answers, 256U);
}

// Everything that an acknowledged update changes is changed once: dense in one message, dense in pieces, and by rows.
TEST(ParameterClient, EachAcknowledgedUpdateIsDoneOnce) {
  Cluster cluster(2, {.lost_requests = 5, .lost_replies = 5, .duplicates = 10, .delays = 5});
  auto& client = *cluster.client;
  const auto forever = Deadline::after(seconds(120));
  client.create({variable(0, "one", at::zeros({2}, at::kLong)), variable(1, "large", at::zeros({50}, at::kLong)),
                 variable(1, "table", at::zeros({10, 2}, at::kLong))},
                forever);
  constexpr int kThreads = 4;
  constexpr int kUpdates = 400;
  on_threads(kThreads, [&](int) {
    for (int i = 0; i < kUpdates; ++i) {
      client.update({{0, "one", Kind::kAdd, at::ones({2}, at::kLong)},
                     {1, "table", Kind::kAddRows, at::ones({2, 2}, at::kLong), at::tensor({i % 10, 3}, at::kLong)}},
                    forever);
      if (i % 8 == 0) client.update({{1, "large", Kind::kAdd, at::ones({50}, at::kLong)}}, forever);
    }
  });
  EXPECT_TRUE(cluster.value(0, "one").equal(at::full({2}, kThreads * kUpdates, at::kLong)));
  EXPECT_TRUE(cluster.value(1, "large").equal(at::full({50}, kThreads * kUpdates / 8, at::kLong)));
  EXPECT_EQ(cluster.value(1, "table").sum().item<std::int64_t>(), kThreads * kUpdates * 4);
  EXPECT_EQ(cluster.stores[0]->find("one")->version(), static_cast<std::uint64_t>(kThreads * kUpdates));
}

// Servers whose connections are cut again and again; their stores stay.
TEST(ParameterClient, CountsRightOverANetworkThatIsCut) {
  constexpr std::size_t kServers = 2;
  std::vector<std::unique_ptr<VariableStore>> stores;
  std::vector<std::unique_ptr<RpcServer>> servers;
  std::vector<std::shared_ptr<RpcChannel>> channels;
  for (std::size_t i = 0; i < kServers; ++i) {
    stores.push_back(std::make_unique<VariableStore>(StoreOptions{.rules = plain_rule}));
    servers.push_back(std::make_unique<RpcServer>(Address{"127.0.0.1", 0}, stores[i]->methods()));
    channels.push_back(std::make_shared<RpcChannel>(str("/job:ps/task:", i), Address{"127.0.0.1", servers[i]->port()}));
  }
  ParameterClient client(channels);
  const auto large = at::rand({3 << 20});  // three pieces
  client.create({variable(0, "large", large, "1"), variable(1, "count", at::zeros({4}, at::kLong))});
  std::atomic<bool> is_over{false};
  std::atomic<std::int64_t> done{0};
  {
    const auto worker = start_thread("worker", [&](std::stop_token) {
      for (; !is_over; ++done) client.update({{1, "count", Kind::kAdd, at::ones({4}, at::kLong)}});
    });
    const auto reader = start_thread("reader", [&](std::stop_token) {
      const auto into = at::empty_like(large);
      while (!is_over) {
        client.read({{0, "large", into}});
        EXPECT_TRUE(into.equal(large));
      }
    });
    for (int cut = 0; cut < 3; ++cut) {
      for (const auto seen = done.load(); done < seen + 20;) std::this_thread::yield();
      for (std::size_t i = 0; i < kServers; ++i) {
        const int port = servers[i]->port();
        servers[i].reset();
        servers[i] = std::make_unique<RpcServer>(Address{"127.0.0.1", port}, stores[i]->methods());
      }
    }
    is_over = true;
  }
  const auto count = at::empty({4}, at::kLong);
  EXPECT_EQ(client.read({{1, "count", count}})[0].version, static_cast<std::uint64_t>(done));
  EXPECT_TRUE(count.equal(at::full({4}, done.load(), at::kLong)));
  const auto pulled = at::empty_like(large);
  client.update({{0, "large", Kind::kGradient, large, {}, 0, pulled}});
  EXPECT_TRUE(pulled.equal(at::zeros_like(large)));
}

}  // namespace
}  // namespace lockstep::ps
