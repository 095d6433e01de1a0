#pragma once

#include <ATen/ATen.h>
#include <gmock/gmock.h>

#include <atomic>
#include <memory>
#include <string>
#include <vector>

#include "lockstep/base/str.h"
#include "lockstep/base/thread.h"
#include "lockstep/ps/client.h"
#include "lockstep/ps/group_target.h"
#include "lockstep/ps/replica_host.h"
#include "lockstep/ps/view_keeper.h"
#include "tests/support/ps_testing.h"
#include "tests/support/testing.h"

// Replicated groups on servers in this process, over real connections. Note [replication]

namespace lockstep::ps {

// A way to a server that can be cut.
class CuttableTarget final : public CallTarget {
 public:
  explicit CuttableTarget(std::shared_ptr<CallTarget> target) : target_(std::move(target)) {}
  const std::string& name() const noexcept override { return target_->name(); }
  std::unique_ptr<Pending> start(const std::string& method, const Outgoing& request, const Deadline& deadline) override {
    if (is_cut) throw Error(ErrorCode::kUnavailable, "cut");
    if (method == methods::kGroupStage) {
      ++pieces;
      if (refused_pieces-- > 0) throw Error(ErrorCode::kUnavailable, "this piece is refused");
      if (swallowed_pieces-- > 0) return std::make_unique<Answered>();
    }
    return target_->start(method, request, deadline);
  }
  std::atomic<bool> is_cut{false};
  std::atomic<int> pieces{0};
  std::atomic<int> refused_pieces{0};    // so many of the next
  std::atomic<int> swallowed_pieces{0};  // they are answered, and never arrive

 private:
  struct Answered final : Pending {
    std::unique_ptr<Incoming> wait() override { return std::make_unique<testing::Arrived>(Outgoing()); }
  };
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
                                        ViewKeeperOptions{.period = std::chrono::milliseconds(20)});
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
    ReplicaHostOptions options{.server = static_cast<std::uint32_t>(i), .store = {.rules = lockstep::testing::plain_rule}};
    for (const auto& way : ways()) options.servers.push_back(one.ways.emplace_back(std::make_shared<CuttableTarget>(way)));
    one.host = std::make_unique<ReplicaHost>(options);
    one.server = std::make_unique<RpcServer>(Address{"127.0.0.1", ports[i]}, one.host->methods());
  }
  static Deadline soon() { return Deadline::after(std::chrono::seconds(30)); }
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

}  // namespace lockstep::ps
