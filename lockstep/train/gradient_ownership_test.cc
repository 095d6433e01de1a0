#include <array>

#include "lockstep/variable/gradient_hooks.h"
#include "tests/support/train_testing.h"

// Whose memory a gradient is in: the one that LibTorch made where nobody else uses it, a copy where somebody does.

namespace lockstep {
namespace {

using namespace testing;

constexpr std::int64_t kSide = 128;

// Weights that the first steps' loss reaches, and two matrices for the later ones.
struct Late : torch::nn::Module {
  Late()
      : early(register_parameter("early", torch::randn({kSide}, torch::kDouble))),
        p(register_parameter("p", torch::randn({kSide, kSide}, torch::kDouble))),
        q(register_parameter("q", torch::randn({kSide, kSide}, torch::kDouble))) {}
  torch::Tensor loss(const torch::Tensor& x, int step) {
    const auto first = (x * early).tanh().sum();
    return step < 2 ? first : first + ((p.view({-1}) + q.view({-1})).tanh() * x.t().mm(x).view({-1})).sum();
  }
  torch::Tensor early, p, q;
};

// p's and q's gradients are one tensor, and come when the buckets are planned already.
TEST(GradientOwnership, GradientsInOneMemoryThatComeLateAreSummedOnce) {
  const auto make = [] { return std::make_shared<Late>(); };
  const auto alone = train_alone(make, [](Late& net, int step) { return net.loss(batch(step, kSide), step); });
  for (const int replicas : {2, 3})
    for (const bool overlap : {true, false}) {
      const auto together = train_together(replicas, {.gradients = {.overlap = overlap}}, make,
                                           [](auto& model, Optimizer& optimizer, int step, ReplicaContext& context) {
                                             model->loss(part_of(batch(step, kSide), context), step).backward();
                                             optimizer.step();
                                           });
      expect_close(together, alone, str(replicas, " replicas, overlap ", overlap));
    }
}

struct Matrix : torch::nn::Module {
  explicit Matrix(std::int64_t side) : p(register_parameter("p", torch::zeros({side, side}))) {}
  torch::Tensor p;
};

// Both replicas start backward() from one tensor of the user, small or large, of which a view becomes the gradient.
TEST(GradientOwnership, ATensorGivenToBackwardIsNotChanged) {
  for (const std::int64_t side : {8, 256}) {
    MirroredStrategy strategy(cpus(2));
    const auto scope = strategy.scope();
    auto model = mirrored<Matrix>(side);
    auto optimizer = lockstep::optimizer<Sgd>(model, 1.0);
    const auto given = torch::randn({side * side});
    const auto before = given.clone();
    for (int step = 0; step < 3; ++step) {
      strategy.run([&] {
        model->p.view({-1}).backward(given);
        optimizer.step();
      });
      EXPECT_TRUE(torch::equal(given, before)) << side << ", step " << step;
    }
    EXPECT_TRUE(torch::allclose(model->p.view({-1}), -6 * before)) << side;
    expect_equal_copies(model, str(side));
  }
}

// What the user keeps of a replica's backward() is that replica's, before the sum and after it.
TEST(GradientOwnership, GradientsKeptByTheUserStayTheReplicasOwn) {
  MirroredStrategy strategy(cpus(2));
  const auto scope = strategy.scope();
  auto model = mirrored<Matrix>(kSide);
  auto optimizer = lockstep::optimizer<Sgd>(model, 1.0);
  for (int step = 0; step < 4; ++step)
    strategy.run([&](ReplicaContext& context) {
      const double own = context.replica_id_in_sync_group() + 1;
      const auto flat = model->p.view({-1});
      const auto again = flat.view({kSide, kSide});
      torch::Tensor of_flat, of_parameter;
      again.retain_grad();
      flat.register_hook([&](const torch::Tensor& gradient) { of_flat = gradient; });
      const auto handle = model->p.register_hook([&](const torch::Tensor& gradient) { of_parameter = gradient; });
      (again * torch::full({kSide, kSide}, own)).sum().backward();
      optimizer.step();
      model->p.remove_hook(handle);
      for (const auto& kept : {again.grad().view({-1}), of_flat, of_parameter.view({-1})})
        EXPECT_TRUE(torch::equal(kept, torch::full({kSide * kSide}, own))) << "step " << step << ", replica " << own - 1;
      EXPECT_TRUE(torch::equal(model->p.grad(), torch::full({kSide, kSide}, 3.0)));
    });
}

TEST(GradientOwnership, AGradientKeptFromOneStepIsNotChangedByTheNext) {
  MirroredStrategy strategy(cpus(2));
  const auto scope = strategy.scope();
  auto model = mirrored<SmallAndLarge>();
  auto optimizer = lockstep::optimizer<Sgd>(model, 0.1);
  strategy.run([&](ReplicaContext& context) {
    torch::Tensor kept, copy;
    for (int step = 0; step < 4; ++step) {
      loss_of(*model, part_of(batch(step, 8), context)).backward();
      optimizer.step();
      if (step > 0) {
        EXPECT_TRUE(torch::equal(kept, copy)) << "step " << step;
      }
      kept = model->large->weight.grad();
      copy = kept.clone();
    }
  });
}

// The memory of the gradient that came is the memory of the sum.
template <typename M>
void expect_no_copy(const MirroredModule<M>& model, const torch::Tensor& x, const GradientOptions& options) {
  auto& strategy = get_strategy();
  auto optimizer = lockstep::optimizer<Sgd>(model, 0.1, {.gradients = options});
  std::vector<const void*> came(model.size(), nullptr);
  std::vector<std::shared_ptr<void>> hooks;
  for (std::size_t r = 0; r < model.size(); ++r)
    hooks.push_back(internal::on_gradient_ready(model.at(r).weight,
                                                [&came, r](const at::Tensor& incoming) { came[r] = incoming.data_ptr(); }));
  for (int step = 0; step < 4; ++step)
    strategy.run([&](ReplicaContext& context) {
      model->forward(x).square().sum().backward();
      optimizer.step();
      if (step == 0) return;  // the buckets are planned at the end of the first step
      const auto r = static_cast<std::size_t>(context.replica_id_in_sync_group());
      EXPECT_EQ(model->weight.grad().data_ptr(), came[r]) << model->name() << ", step " << step << ", replica " << r;
    });
  expect_equal_copies(model, model->name());
}

TEST(GradientOwnership, TheGradientsOfPlainLayersAreNotCopied) {
  for (const int replicas : {2, 3}) {
    MirroredStrategy strategy(cpus(replicas));
    const auto scope = strategy.scope();
    expect_no_copy(mirrored<torch::nn::Linear>(torch::nn::LinearOptions(128, 256)), torch::rand({4, 128}), {});
    expect_no_copy(mirrored<torch::nn::Linear>(torch::nn::LinearOptions(128, 256).bias(false)), torch::rand({4, 128}), {});
    expect_no_copy(mirrored<torch::nn::Conv2d>(torch::nn::Conv2dOptions(32, 64, 3)), torch::rand({2, 32, 6, 6}), {});
    expect_no_copy(mirrored<torch::nn::Embedding>(torch::nn::EmbeddingOptions(400, 64)), torch::arange(5), {});
  }
}

TEST(GradientOwnership, TheGradientsOfPlainLayersAreNotCopiedWithoutOverlapEither) {
  MirroredStrategy strategy(cpus(2));
  const auto scope = strategy.scope();
  const GradientOptions options = {.overlap = false};
  expect_no_copy(mirrored<torch::nn::Linear>(torch::nn::LinearOptions(128, 256)), torch::rand({4, 128}), options);
  expect_no_copy(mirrored<torch::nn::Conv2d>(torch::nn::Conv2dOptions(32, 64, 3)), torch::rand({2, 32, 6, 6}), options);
}

}  // namespace
}  // namespace lockstep
