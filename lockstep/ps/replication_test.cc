#include <ATen/ATen.h>
#include <gmock/gmock.h>

#include "lockstep/base/str.h"
#include "lockstep/base/thread.h"
#include "lockstep/ps/client.h"
#include "lockstep/ps/fields.h"
#include "lockstep/ps/group_target.h"
#include "lockstep/ps/replica_host.h"
#include "lockstep/ps/view_keeper.h"
#include "tests/support/ps_testing.h"
#include "tests/support/testing.h"

// Replicated groups on servers in this process, over real connections. Note [replication]

namespace lockstep::ps {
namespace {

using lockstep::testing::code_of;
using lockstep::testing::plain_rule;
using lockstep::testing::ThrowsCode;
using std::chrono::milliseconds;
using std::chrono::seconds;
using Kind = Operation::Kind;

// A way to a server that can be cut.
class CuttableTarget final : public CallTarget {
 public:
  explicit CuttableTarget(std::shared_ptr<CallTarget> target) : target_(std::move(target)) {}
  const std::string& name() const noexcept override { return target_->name(); }
  std::unique_ptr<Pending> start(const std::string& method, const Outgoing& request, const Deadline& deadline) override {
    if (is_cut) throw Error(ErrorCode::kUnavailable, "cut");
    return target_->start(method, request, deadline);
  }
  std::atomic<bool> is_cut{false};

 private:
  const std::shared_ptr<CallTarget> target_;
};
using Targets = std::vector<std::shared_ptr<CallTarget>>;

struct Replicated : ::testing::Test {
  struct One {
    std::vector<std::shared_ptr<CuttableTarget>> ways;  // from it
    std::unique_ptr<ReplicaHost> host;
    std::unique_ptr<RpcServer> server;
  };

  explicit Replicated(std::size_t count = 2) : servers(count) {
    for (std::size_t i = 0; i < count; ++i) {  // ports that nobody else takes: the servers listen at them again
      RpcServer taken(Address{"127.0.0.1", 0}, {});
      ports.push_back(taken.port());
    }
    for (std::size_t i = 0; i < count; ++i) start(i);
    for (const auto& way : ways()) from_keeper.push_back(std::make_shared<CuttableTarget>(way));
    keeper = make_keeper();
    client = make_client();
  }
  ~Replicated() override {
    for (std::size_t i = 0; i < servers.size(); ++i) stop(i);
  }

  Targets ways() const {
    Targets all;
    for (std::size_t i = 0; i < ports.size(); ++i)
      all.push_back(target_of(std::make_shared<RpcChannel>(str("/job:ps/task:", i), Address{"127.0.0.1", ports[i]})));
    return all;
  }
  std::unique_ptr<ViewKeeper> make_keeper() const {
    return std::make_unique<ViewKeeper>(Targets(from_keeper.begin(), from_keeper.end()), soon(),
                                        ViewKeeperOptions{.period = milliseconds(20)});
  }
  std::unique_ptr<ParameterClient> make_client(Replication replication = Replication::kAsk) const {
    return std::make_unique<ParameterClient>(targets_of_groups(ways(), replication));
  }
  // A process ends, and loses what it had; another one starts at its address.
  void stop(std::size_t i) {
    if (servers[i].host != nullptr) servers[i].host->stop();
    servers[i].server.reset();
    servers[i].host.reset();
  }
  void start(std::size_t i) {
    auto& one = servers[i];
    one.ways.clear();
    ReplicaHostOptions options{.server = static_cast<std::uint32_t>(i), .store = {.rules = plain_rule}};
    for (const auto& way : ways()) options.servers.push_back(one.ways.emplace_back(std::make_shared<CuttableTarget>(way)));
    one.host = std::make_unique<ReplicaHost>(options);
    one.server = std::make_unique<RpcServer>(Address{"127.0.0.1", ports[i]}, one.host->methods());
  }
  static Deadline soon() { return Deadline::after(seconds(30)); }
  template <typename Predicate>
  static bool comes_true(Predicate&& predicate) {
    for (const auto until = soon(); !until.has_passed(); std::this_thread::yield())
      if (predicate()) return true;
    return false;
  }

  void make(std::size_t group, const std::string& name, const at::Tensor& value, const std::string& rule = "") const {
    client->create({{group,
                     {.name = name,
                      .dtype = static_cast<std::int8_t>(value.scalar_type()),
                      .shape = value.sizes().vec(),
                      .whole_shape = value.sizes().vec(),
                      .rule = rule},
                     value}});
  }
  // A variable as one server has it.
  struct Copy {
    at::Tensor value = {};
    std::uint64_t version = 0;
    std::int64_t steps = 0;
  };
  Copy copy(std::size_t server, std::uint32_t group, const std::string& name) const {
    const auto store = servers[server].host->store(group);
    const auto variable = store == nullptr ? nullptr : store->find(name);
    Copy out;
    if (variable == nullptr) return out;
    variable->look([&](const at::Tensor& value, const UpdateRule* rule, std::uint64_t version) {
      out = {value.clone(), version, rule == nullptr ? 0 : rule->steps()};
    });
    return out;
  }
  void expect_same_on_both(std::uint32_t group, const std::string& name, std::uint64_t version) const {
    const auto first = copy(0, group, name);
    const auto second = copy(1, group, name);
    ASSERT_TRUE(first.value.defined() && second.value.defined()) << name;
    EXPECT_TRUE(first.value.equal(second.value)) << name;
    EXPECT_EQ(first.version, version) << name;
    EXPECT_EQ(second.version, version) << name;
    EXPECT_EQ(first.steps, second.steps) << name;
  }

  std::vector<int> ports;
  std::vector<One> servers;
  std::vector<std::shared_ptr<CuttableTarget>> from_keeper;
  std::unique_ptr<ViewKeeper> keeper;
  std::unique_ptr<ParameterClient> client;
};

TEST_F(Replicated, BothServersHaveTheSameBits) {
  const auto large = at::rand({3, 1 << 20});  // three pieces
  make(0, "a", at::rand({4, 3}), "0.5");
  make(1, "table", at::rand({10, 2}), "0.1");
  make(1, "large", large);
  make(0, "gone", at::ones({2}));
  for (int i = 0; i < 5; ++i) {
    client->update({{0, "a", Kind::kGradient, at::rand({4, 3})},
                    {1, "table", Kind::kGradientRows, at::rand({3, 2}), at::tensor({1, 7, 1}, at::kLong)},
                    {1, "large", Kind::kAdd, large}});
  }
  client->update({{0, "a", Kind::kSetLearningRate, {}, {}, 0.25}});
  client->update({{0, "a", Kind::kGradient, at::rand({4, 3})}});
  client->remove(0, {"gone"});
  expect_same_on_both(0, "a", 7);
  expect_same_on_both(1, "table", 5);
  expect_same_on_both(1, "large", 5);
  EXPECT_EQ(servers[0].host->store(0)->find("gone"), nullptr);
  EXPECT_EQ(servers[1].host->store(0)->find("gone"), nullptr);
  for (const std::uint32_t group : {0U, 1U}) {
    const auto id = client->id_at(group);
    EXPECT_EQ(servers[0].host->store(group)->client_state(id).last_done,
              servers[1].host->store(group)->client_state(id).last_done);
  }
  // What is refused changes nothing anywhere.
  EXPECT_EQ(code_of([&] {
              client->update({{1, "table", Kind::kAddRows, at::ones({1, 2}), at::tensor({10}, at::kLong)}});
            }),
            ErrorCode::kOutOfRange);
  expect_same_on_both(1, "table", 5);
}

// Each thread counts what was acknowledged to it.
TEST_F(Replicated, NothingAcknowledgedIsLostWithAServer) {
  constexpr int kThreads = 4;
  make(0, "count", at::zeros({4}, at::kLong));
  make(1, "count", at::zeros({4}, at::kLong));
  std::atomic<std::int64_t> done{0};
  std::atomic<bool> is_over{false};
  {
    std::vector<std::jthread> threads;
    for (int i = 0; i < kThreads; ++i)
      threads.push_back(start_thread("counts", [&](std::stop_token) {
        const auto mine = make_client();
        for (; !is_over; ++done)
          mine->update(
              {{0, "count", Kind::kAdd, at::ones({4}, at::kLong)}, {1, "count", Kind::kAdd, at::ones({4}, at::kLong)}});
      }));
    for (const std::size_t victim : {0U, 1U, 0U}) {
      for (const auto seen = done.load(); done < seen + 50;) std::this_thread::yield();
      stop(victim);
      for (const auto seen = done.load(); done < seen + 50;) std::this_thread::yield();  // the other one goes on
      start(victim);
      EXPECT_TRUE(comes_true([&] { return keeper->is_complete(); }));
    }
    is_over = true;
  }
  for (const std::size_t group : {0U, 1U}) {
    const auto count = at::empty({4}, at::kLong);
    EXPECT_EQ(client->read({{group, "count", count}})[0].version, static_cast<std::uint64_t>(done));
    EXPECT_TRUE(count.equal(at::full({4}, done.load(), at::kLong)));
    expect_same_on_both(static_cast<std::uint32_t>(group), "count", static_cast<std::uint64_t>(done));
  }
}

// The coordinator does not see server 0 any more, and replaces it; server 0 lives, and has not heard of it.
TEST_F(Replicated, APrimaryThatWasReplacedAcknowledgesNothing) {
  make(0, "v", at::zeros({2}));
  from_keeper[0]->is_cut = true;
  ASSERT_TRUE(comes_true([&] { return keeper->views()[0].primary == 1; }));
  // Straight to the old primary, as a client does that knows nothing.
  const UpdateRequest request{{77, 1, 1},
                              {{.name = "v", .kind = Kind::kAdd, .dtype = static_cast<std::int8_t>(at::kFloat), .shape = {2}}}};
  const auto ones = at::ones({2});
  const auto call = [&] {
    ways()[0]
        ->start(methods::kGroupCall,
                {to_bytes(GroupCall{0, 1, methods::kUpdate, to_bytes(request)}), {testing::piece_of(ones)}}, soon())
        ->wait();
  };
  EXPECT_EQ(code_of(call), ErrorCode::kUnavailable);
  client->update({{0, "v", Kind::kAdd, at::full({2}, 5.0F)}});
  EXPECT_TRUE(copy(1, 0, "v").value.equal(at::full({2}, 5.0F)));
  from_keeper[0]->is_cut = false;
  EXPECT_TRUE(comes_true([&] { return keeper->is_complete(); }));
  expect_same_on_both(0, "v", 1);
}

TEST_F(Replicated, AServerThatComesBackIsFilledWhileOthersWrite) {
  std::vector<at::Tensor> values;
  for (int i = 0; i < 20; ++i) {
    values.push_back(at::rand({100, 7}));
    make(0, str("v", i), values.back(), "0.5");
    client->update({{0, str("v", i), Kind::kGradient, at::rand({100, 7})}});
  }
  make(0, "large", at::rand({3, 1 << 20}));
  std::atomic<int> done{0};
  std::atomic<bool> is_over{false};
  {
    const auto writer = start_thread("writes", [&](std::stop_token) {
      for (; !is_over; ++done) {
        client->update({{0, str("v", done % 20), Kind::kGradient, at::rand({100, 7})}});
        if (done % 10 == 5) make(0, str("later", done.load()), at::rand({3}));
      }
    });
    stop(1);
    for (const int seen = done; done < seen + 20;) std::this_thread::yield();
    start(1);
    EXPECT_TRUE(comes_true([&] { return keeper->is_complete(); }));
    for (const int seen = done; done < seen + 20;) std::this_thread::yield();
    is_over = true;
  }
  for (const auto& variable : servers[0].host->store(0)->variables())
    expect_same_on_both(0, variable->name(), variable->version());
  EXPECT_EQ(servers[1].host->store(0)->variables().size(), servers[0].host->store(0)->variables().size());
  const auto id = client->id_at(0);
  EXPECT_EQ(servers[0].host->store(0)->client_state(id).last_done, servers[1].host->store(0)->client_state(id).last_done);
}

TEST_F(Replicated, WhenBothAreLostItIsSaidWhichVariablesAre) {
  make(0, "weights", at::ones({2}));
  ASSERT_TRUE(comes_true([&] {  // the keeper has heard their names
    return servers[0].host->store(0)->names_changed() > 0 && keeper->is_complete();
  }));
  from_keeper[0]->is_cut = from_keeper[1]->is_cut = true;
  stop(0);
  stop(1);
  start(0);
  start(1);
  from_keeper[0]->is_cut = from_keeper[1]->is_cut = false;
  const auto read = [&] { client->read({{0, "weights", at::empty({2})}}, soon()); };
  EXPECT_THAT(read, ThrowsCode(ErrorCode::kDataLoss, "group 0", "are lost"));
  EXPECT_EQ(code_of([&] { make(0, "weights", at::ones({2})); }), ErrorCode::kDataLoss);
}

TEST_F(Replicated, ARestartedCoordinatorFindsTheViews) {
  make(0, "v", at::zeros({2}));
  stop(0);
  ASSERT_TRUE(comes_true([&] { return keeper->views()[0].primary == 1; }));
  keeper.reset();
  start(0);
  keeper = make_keeper();
  EXPECT_EQ(keeper->views()[0].primary, 1U);
  client->update({{0, "v", Kind::kAdd, at::ones({2})}});
  expect_same_on_both(0, "v", 1);
}

// Without a coordinator nobody decides: a primary whose backup is gone acknowledges nothing.
TEST_F(Replicated, APrimaryDoesNotGoOnAloneByItself) {
  make(0, "v", at::zeros({2}));
  keeper.reset();
  stop(1);
  const auto update = [&] { client->update({{0, "v", Kind::kAdd, at::ones({2})}}, Deadline::after(milliseconds(500))); };
  const auto code = code_of(update);
  EXPECT_TRUE(code == ErrorCode::kUnavailable || code == ErrorCode::kDeadlineExceeded);
  start(1);
  keeper = make_keeper();
  client->update({{0, "v", Kind::kAdd, at::ones({2})}});
  expect_same_on_both(0, "v", 2);  // the first one was done, and is kept now
}

TEST(Replication, IsOneNumberForAllCoordinators) {
  ReplicaHost host(
      {.server = 0, .servers = {target_of(std::make_shared<RpcChannel>("/job:ps/task:0", Address{"127.0.0.1", 1}))}});
  const testing::MethodTable methods(host.methods());
  const auto install = [&](std::uint32_t replication) {
    return [&methods, replication] {
      methods.call(methods::kGroupInstall, Outgoing{to_bytes(InstallRequest{replication, {}})});
    };
  };
  install(1)();
  EXPECT_EQ(code_of(install(2)), ErrorCode::kFailedPrecondition);
  EXPECT_EQ(host.status().replication, 1U);
}

}  // namespace
}  // namespace lockstep::ps
