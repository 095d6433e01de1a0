#include <torch/torch.h>

#include "lockstep/lockstep.h"
#include "tests/support/testing.h"

// Buffers of a mirrored module are synchronised on read.

namespace lockstep {
namespace {

using testing::cpus;
using ::testing::IsEmpty;
using testing::LogCapture;
using ::testing::SizeIs;

struct Counter : torch::nn::Module {
  Counter()
      : seen(register_buffer("seen", torch::zeros({}))), steps(register_buffer("steps", torch::zeros({}, torch::kLong))) {}
  void add(double value) {
    seen += value;
    steps += 1;
  }
  torch::Tensor seen, steps;
};

int id(ReplicaContext& context) { return context.replica_id_in_sync_group(); }

TEST(Buffers, ALookFromOutsideReplacesAllCopiesByTheirMean) {
  MirroredStrategy strategy(cpus(3));
  const auto scope = strategy.scope();
  auto model = mirrored<Counter>();
  strategy.run([&](ReplicaContext& context) {
    model->add(id(context) * 3.0);
    if (id(context) == 0) model->add(0);
  });
  EXPECT_EQ(model->seen.item<double>(), 3.0);
  EXPECT_EQ(model->steps.item<std::int64_t>(), 2);
  for (std::size_t r = 0; r < 3; ++r) EXPECT_EQ(model.at(r).seen.item<double>(), 3.0);
  for (std::size_t r = 0; r < 3; ++r) EXPECT_EQ(model.at(r).steps.item<std::int64_t>(), 2);
}

TEST(Buffers, InsideAReplicaTheyAreItsOwn) {
  MirroredStrategy strategy(cpus(2));
  const auto scope = strategy.scope();
  auto model = mirrored<Counter>();
  const auto seen = strategy.run([&](ReplicaContext& context) {
    model->add(id(context) + 1.0);
    return model->seen.item<double>();
  });
  EXPECT_EQ(seen.values(), (std::vector<double>{1, 2}));
}

TEST(Buffers, ALookInAMergeDoesNotHideWhatTheSameRunChangesAfterIt) {
  MirroredStrategy strategy(cpus(2));
  const auto scope = strategy.scope();
  auto model = mirrored<Counter>();
  strategy.run([&](ReplicaContext& context) {
    context.merge_call([&](Strategy&) { return model->seen.item<double>(); });
    model->add(id(context) * 2.0);
  });
  EXPECT_EQ(model->seen.item<double>(), 1.0);
}

TEST(Buffers, BatchNormStatisticsAreTheMeanOverTheReplicas) {
  MirroredStrategy strategy(cpus(2));
  const auto scope = strategy.scope();
  auto model = mirrored<torch::nn::BatchNorm1d>(2);
  strategy.run([&](ReplicaContext& context) { model->forward(torch::full({4, 2}, 10.0 * (id(context) + 1))); });
  EXPECT_TRUE(torch::allclose(model->running_mean, torch::full({2}, 1.5)));  // momentum 0.1 of 10 and 20
  EXPECT_TRUE(torch::equal(model.at(0).running_mean, model.at(1).running_mean));
  EXPECT_EQ(model->num_batches_tracked.item<std::int64_t>(), 1);
}

// A module that shares only buffers with the other copies still must not share them.
TEST(Buffers, AGivenSubmoduleWithoutParametersIsCopiedToo) {
  MirroredStrategy strategy(cpus(2));
  const auto scope = strategy.scope();
  torch::nn::BatchNorm1d norm(torch::nn::BatchNormOptions(2).affine(false));
  auto model = mirrored<torch::nn::Sequential>(norm);
  ASSERT_EQ(model.at(0).buffers().size(), 3u);
  EXPECT_NE(model.at(0).buffers()[0].data_ptr(), model.at(1).buffers()[0].data_ptr());
}

struct Accumulated : torch::nn::Module {
  Accumulated() : weight(register_parameter("weight", torch::ones({2}))) {}
  torch::Tensor weight;
};
struct Apart : Accumulated {};

TEST(GradientWatch, WarnsWhenGradientsAreNeverBroughtTogether) {
  const LogCapture log;
  MirroredStrategy strategy(cpus(2));
  const auto scope = strategy.scope();
  auto model = mirrored<Apart>();
  for (int step = 0; step < 5; ++step) strategy.run([&] { model->weight.sum().backward(); });
  ASSERT_THAT(log.warnings(), SizeIs(1));
  EXPECT_THAT(log.warnings()[0], ::testing::AllOf(::testing::HasSubstr("Apart"), ::testing::HasSubstr("never brought")));
}

TEST(GradientWatch, SaysNothingAboutGradientsAccumulatedUnderNoSync) {
  const LogCapture log;
  MirroredStrategy strategy(cpus(2));
  const auto scope = strategy.scope();
  auto model = mirrored<Accumulated>();
  auto optimizer = lockstep::optimizer<torch::optim::SGD>(model, 0.5);
  for (int part = 0; part < 5; ++part)
    strategy.run([&] {
      const auto no_sync = optimizer.no_sync();
      model->weight.sum().backward();
    });
  strategy.run([&] {
    model->weight.sum().backward();
    optimizer.step();
  });
  EXPECT_THAT(log.warnings(), IsEmpty());
  EXPECT_TRUE(torch::equal(model->weight, torch::full({2}, 1 - 0.5 * 12)));
}

}  // namespace
}  // namespace lockstep
