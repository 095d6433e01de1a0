#include "lockstep/ps/sync_worker.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>

#include <atomic>
#include <random>

#include "lockstep/ps/fields.h"
#include "lockstep/ps/held_gradients.h"
#include "lockstep/ps/step_arbiter.h"
#include "tests/support/ps_testing.h"
#include "tests/support/testing.h"

namespace lockstep::ps {
namespace {

using lockstep::testing::MethodTable;
using lockstep::testing::on_threads;
using lockstep::testing::plain_rule;
using lockstep::testing::ThrowsCode;
using std::chrono::milliseconds;
using std::chrono::seconds;
using Kind = Operation::Kind;

struct Server {
  explicit Server(const StepArbiterOptions& options) : arbiter(options) {}
  std::map<std::string, Method> methods() {
    auto all = store.methods();
    all.merge(held.methods());
    all.merge(arbiter.methods());
    return all;
  }
  VariableStore store{{.rules = plain_rule}};
  HeldGradients held{store};
  StepArbiter arbiter;
};

// A server that is called on the caller's thread; so often in 100 a request arrives twice, and so often its answer is lost.
class FaultyTarget final : public CallTarget {
 public:
  FaultyTarget(std::string name, std::map<std::string, Method> methods, int percent)
      : name_(std::move(name)), methods_(std::move(methods)), percent_(percent) {}

  const std::string& name() const noexcept override { return name_; }

  std::unique_ptr<Pending> start(const std::string& method, const Outgoing& request, const Deadline&) override {
    auto done = std::make_unique<Done>();
    try {
      if (happens()) methods_.call(method, request);
      done->reply = methods_.call(method, request);
      if (happens()) throw Error(ErrorCode::kUnavailable, "lost");
    } catch (const Error& error) {
      done->error = error;
    }
    return done;
  }

 private:
  struct Done final : Pending {
    std::unique_ptr<Incoming> wait() override {
      if (error) throw Error(*error);
      return std::move(reply);
    }
    std::unique_ptr<Incoming> reply;
    std::optional<Error> error;
  };
  bool happens() {
    const std::lock_guard lock(mu_);
    return static_cast<int>(random_() % 100) < percent_;
  }

  const std::string name_;
  const MethodTable methods_;
  const int percent_;
  std::mutex mu_;
  std::mt19937 random_{5};  // guarded by mu_
};

// Two servers with a variable each, of zeros; updates subtract the gradient.
struct Cluster {
  explicit Cluster(int percent = 0, const StepArbiterOptions& options = {}) {
    for (int i = 0; i < 2; ++i) {
      servers.push_back(std::make_unique<Server>(options));
      targets.push_back(std::make_shared<FaultyTarget>(str("/job:ps/task:", i), servers.back()->methods(), percent));
    }
    const auto client = new_client();
    for (std::size_t i = 0; i < 2; ++i)
      client->create(
          {{i,
            {.name = "w", .dtype = static_cast<std::int8_t>(at::kDouble), .shape = {40}, .whole_shape = {40}, .rule = "1"},
            at::zeros({40}, at::kDouble)}});
  }
  std::unique_ptr<ParameterClient> new_client() const {
    return std::make_unique<ParameterClient>(targets, ClientOptions{.piece_bytes = 64});  // gradients come in pieces
  }
  at::Tensor value(std::size_t server) const {
    at::Tensor copy;
    servers[server]->store.find("w")->look([&](const at::Tensor& v, const UpdateRule*, std::uint64_t) { copy = v.clone(); });
    return copy;
  }

  std::vector<std::unique_ptr<Server>> servers;
  std::vector<std::shared_ptr<CallTarget>> targets;
};

std::vector<ParameterClient::Update> gradients(double of) {
  return {{0, "w", Kind::kGradient, at::full({40}, of, at::kDouble)},
          {1, "w", Kind::kGradient, at::full({40}, of, at::kDouble)}};
}

SyncOptions options_of(std::uint32_t worker, std::uint32_t needed) {
  return {.model = "m", .worker = worker, .gradients_per_step = needed, .timeout = seconds(50)};
}

// Whatever happens to calls: each step is the mean of as many gradients as it needs, each server has the same steps, and what
// was said to count is what was used.
void expect_exact_steps(int workers, std::uint32_t needed, int percent) {
  Cluster cluster(percent, {.patience = milliseconds(30)});
  std::atomic<std::int64_t> counted{0}, sum{0};
  constexpr int kRounds = 60;
  on_threads(workers, [&](int index) {
    const auto client = cluster.new_client();
    SyncWorker worker(*client, options_of(static_cast<std::uint32_t>(index), needed));
    std::mt19937 random(static_cast<unsigned>(index));
    for (int i = 0; i < kRounds; ++i) {
      worker.begin();
      const auto gradient = static_cast<std::int64_t>(random() % 7) * needed;  // so that means are whole numbers
      if (!worker.push(gradients(static_cast<double>(gradient)))) continue;
      ++counted;
      sum += gradient / needed;
    }
  });
  const auto client = cluster.new_client();
  SyncWorker(*client, options_of(0, needed)).settle();
  const auto steps = cluster.servers[0]->store.find("w")->version();
  EXPECT_EQ(cluster.servers[1]->store.find("w")->version(), steps);
  EXPECT_EQ(static_cast<std::uint64_t>(counted) / needed, steps);
  EXPECT_TRUE(cluster.value(0).equal(cluster.value(1)));
  if (static_cast<std::uint64_t>(counted) % needed == 0) {  // otherwise the last step is not full
    EXPECT_TRUE(cluster.value(0).equal(at::full({40}, -static_cast<double>(sum), at::kDouble)));
  }
}

TEST(SyncWorker, TakesTheFirstGradientsOfSeveralWorkers) {
  expect_exact_steps(1, 1, 0);
  expect_exact_steps(3, 3, 0);
  expect_exact_steps(4, 2, 0);
}

TEST(SyncWorker, CountsEachGradientOnceWhateverHappensToCalls) {
  expect_exact_steps(3, 3, 10);
  expect_exact_steps(4, 3, 10);
}

// As a worker that is lost between these two.
StepCommitReply close_and_die(Cluster& cluster, std::uint32_t worker) {
  const auto client = cluster.new_client();
  const Contribution mine{worker, 77, 1};
  client->send(gradients(3), {methods::kStepHold, methods::kStepStage, [&](const Sender& sender, const auto& operations) {
                                return to_bytes(StepHoldRequest{sender, "m", 0, mine, operations});
                              }});
  return from_bytes<StepCommitReply>(client->call(0, methods::kStepCommit, to_bytes(StepCommitRequest{"m", 0, mine, 2})));
}

TEST(SyncWorker, FinishesAStepOfAWorkerThatIsLost) {
  Cluster cluster;
  const auto client = cluster.new_client();
  SyncWorker worker(*client, options_of(0, 2));
  worker.begin();
  EXPECT_TRUE(worker.push(gradients(1)));
  EXPECT_TRUE(close_and_die(cluster, 1).state.is_closed);
  EXPECT_EQ(cluster.servers[1]->store.find("w")->version(), 0U);
  worker.begin();
  EXPECT_EQ(worker.step(), 1U);
  for (std::size_t i : {0, 1}) EXPECT_TRUE(cluster.value(i).equal(at::full({40}, -2.0, at::kDouble)));
}

TEST(SyncWorker, ALateGradientIsDropped) {
  Cluster cluster;
  const auto client = cluster.new_client();
  SyncWorker late(*client, options_of(2, 1)), fast(*client, options_of(0, 1));
  late.begin();
  fast.begin();
  EXPECT_TRUE(fast.push(gradients(1)));
  EXPECT_FALSE(late.push(gradients(100)));
  EXPECT_TRUE(cluster.value(1).equal(at::full({40}, -1.0, at::kDouble)));
  EXPECT_EQ(cluster.servers[0]->held.held(), 0U);
  late.begin();
  EXPECT_TRUE(late.push(gradients(1)));
}

TEST(SyncWorker, GoesOnWithAnArbiterThatHasLostItsPlace) {
  Cluster cluster;
  const auto client = cluster.new_client();
  SyncWorker worker(*client, options_of(0, 1));
  for (int i = 0; i < 5; ++i) EXPECT_TRUE(worker.push(gradients(1)));
  StepArbiter fresh;
  auto methods = cluster.servers[0]->store.methods();
  methods.merge(cluster.servers[0]->held.methods());
  methods.merge(fresh.methods());
  cluster.targets[0] = std::make_shared<FaultyTarget>("/job:ps/task:0", std::move(methods), 0);
  const auto new_client = cluster.new_client();
  SyncWorker next(*new_client, options_of(0, 1));
  EXPECT_FALSE(next.push(gradients(1)));  // of step 0, which was long ago
  EXPECT_TRUE(next.push(gradients(1)));
  EXPECT_TRUE(cluster.value(1).equal(at::full({40}, -6.0, at::kDouble)));
}

TEST(SyncWorker, SaysWhoIsMissingAtTheDeadline) {
  Cluster cluster;
  const auto client = cluster.new_client();
  SyncWorker first(*client, {.model = "m", .worker = 0, .gradients_per_step = 2, .timeout = milliseconds(300)});
  SyncWorker second(*client, options_of(1, 2));
  second.begin();
  first.begin();
  EXPECT_TRUE(first.push(gradients(1)));
  EXPECT_THAT(
      [&] { first.begin(); },
      ThrowsCode(ErrorCode::kDeadlineExceeded, "step 0 of model 'm' has 1 of 2 gradients, of workers: 0", "working on it: 1"));
  EXPECT_TRUE(second.push(gradients(1)));
}

}  // namespace
}  // namespace lockstep::ps
