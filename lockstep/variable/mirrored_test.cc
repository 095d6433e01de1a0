#include "lockstep/variable/mirrored.h"

#include "tests/support/train_testing.h"

// What can be mirrored, and what making it does to the rest of the program.

namespace lockstep {
namespace {

using namespace testing;

struct BlockImpl : torch::nn::Module {
  explicit BlockImpl(int width, double scale = 1.0) : weight(register_parameter("weight", torch::rand({width}) * scale)) {}
  torch::Tensor forward(const torch::Tensor& x) { return x * weight; }
  torch::Tensor weight;
};
TORCH_MODULE(Block);

class MirroredModules : public ::testing::Test {
 protected:
  MirroredStrategy strategy_{cpus(3)};
  Scope scope_ = strategy_.scope();
};

template <typename M>
void expect_own_copies(const MirroredModule<M>& model, std::size_t parameters) {
  ASSERT_EQ(model.size(), 3u);
  expect_equal_copies(model, "made");
  std::set<const void*> memory;
  for (std::size_t r = 0; r < 3; ++r) {
    EXPECT_EQ(model.at(r).parameters().size(), parameters);
    for (const auto& p : model.at(r).parameters()) memory.insert(p.data_ptr());
  }
  EXPECT_EQ(memory.size(), 3 * parameters);
}

TEST_F(MirroredModules, AHolderAndItsModuleMeanTheSame) {
  const auto by_holder = mirrored<Block>(4);
  const auto by_module = mirrored<BlockImpl>(4);
  static_assert(std::is_same_v<decltype(by_holder), decltype(by_module)>);
  expect_own_copies(by_holder, 1);
  expect_own_copies(mirrored_from([] { return Block(4); }), 1);
  expect_own_copies(mirrored_from([] { return std::make_shared<BlockImpl>(4); }), 1);
}

TEST_F(MirroredModules, ConstructorArgumentsReachEveryCopy) {
  const auto model = mirrored<BlockImpl>(5, 0.0);
  for (std::size_t r = 0; r < 3; ++r) EXPECT_TRUE(torch::equal(model.at(r).weight, torch::zeros({5})));
  expect_own_copies(mirrored<torch::nn::Linear>(torch::nn::LinearOptions(3, 2).bias(false)), 1);
  expect_own_copies(mirrored<torch::nn::Linear>(3, 2), 2);
}

TEST_F(MirroredModules, ASequentialIsCopiedWithItsLayers) {
  const auto model = mirrored<torch::nn::Sequential>(torch::nn::Linear(4, 8), torch::nn::Tanh(), torch::nn::Linear(8, 2));
  expect_own_copies(model, 4);
  const auto outputs = strategy_.run([&] { return model->forward(torch::ones({1, 4})).detach(); });
  EXPECT_TRUE(torch::equal(outputs[0], outputs[2]));
  expect_own_copies(mirrored_from([] { return torch::nn::Sequential(torch::nn::Linear(4, 8), Block(8)); }), 3);
}

// One layer twice in a Sequential: its clones would be two layers, which train apart from the first copy.
TEST_F(MirroredModules, ALayerGivenTwiceIsOneLayerInEveryCopyOrRefused) {
  const torch::nn::Linear shared(4, 4);
  EXPECT_THAT([&] { mirrored<torch::nn::Sequential>(shared, torch::nn::Tanh(), shared); },
              ThrowsCode(ErrorCode::kInvalidArgument, "mirrored_from"));
  const auto model = mirrored_from([] {
    const torch::nn::Linear layer(4, 4);
    return torch::nn::Sequential(layer, torch::nn::Tanh(), layer);
  });
  for (std::size_t r = 0; r < 3; ++r) EXPECT_EQ(model.replicas()->named_parameters(r).size(), 2u);
}

// As if one module had been made: what is drawn next does not depend on the number of replicas.
TEST(MirroredRandomness, TheDefaultGeneratorEndsWhereOneModuleLeavesIt) {
  torch::manual_seed(17);
  const Block alone(6);
  const auto next = torch::rand({3});
  for (const int replicas : {1, 2, 4}) {
    MirroredStrategy strategy(cpus(replicas));
    const auto scope = strategy.scope();
    torch::manual_seed(17);
    const auto model = mirrored<Block>(6);
    EXPECT_TRUE(torch::equal(torch::rand({3}), next)) << replicas << " replicas";
    for (std::size_t r = 0; r < model.size(); ++r) EXPECT_TRUE(torch::equal(model.at(r).weight, alone->weight));
  }
  torch::manual_seed(17);
  const auto outside = mirrored<Block>(6);
  EXPECT_EQ(outside.size(), 1u);
  EXPECT_TRUE(torch::equal(torch::rand({3}), next));
}

TEST_F(MirroredModules, WithoutParametersAreMirroredToo) {
  const auto model = mirrored<torch::nn::Dropout>(0.5);
  ASSERT_EQ(model.size(), 3u);
  model.eval();
  const auto outputs = strategy_.run([&] { return model->forward(torch::ones({100})); });
  for (const auto& output : outputs) EXPECT_TRUE(torch::equal(output, torch::ones({100})));
  for (std::size_t r = 0; r < 3; ++r) EXPECT_FALSE(model.at(r).is_training());
  model.train();
  for (std::size_t r = 0; r < 3; ++r) EXPECT_TRUE(model.at(r).is_training());
}

struct HalfFrozen : torch::nn::Module {
  HalfFrozen()
      : free(register_parameter("free", torch::rand({2}))),
        frozen(register_parameter("frozen", torch::rand({2}), /*requires_grad=*/false)) {}
  torch::Tensor free, frozen;
};

TEST_F(MirroredModules, FrozenParametersAreEqualAndFrozenInEveryCopy) {
  const auto model = mirrored<HalfFrozen>();
  expect_own_copies(model, 2);
  for (std::size_t r = 0; r < 3; ++r) {
    EXPECT_TRUE(model.at(r).free.requires_grad());
    EXPECT_FALSE(model.at(r).frozen.requires_grad());
  }
}

struct Growing : torch::nn::Module {
  explicit Growing(int* made) : weight(register_parameter("weight", torch::rand({++*made}))) {}
  torch::Tensor weight;
};

TEST_F(MirroredModules, ThatComeOutDifferentlyAreRefused) {
  int made = 0;
  EXPECT_THAT([&] { mirrored<Growing>(&made); }, ThrowsCode(ErrorCode::kInvalidArgument, "same module every time"));
}

TEST_F(MirroredModules, CannotBeMadeInsideAReplica) {
  EXPECT_THAT([&] { strategy_.run([] { mirrored<Block>(2); }); }, ThrowsCode(ErrorCode::kFailedPrecondition, "scope()"));
}

TEST_F(MirroredModules, TheHandleReachesTheCurrentReplicasCopy) {
  const auto model = mirrored<Block>(2);
  const auto copy = model;  // a handle: the same modules
  EXPECT_EQ(&*copy, &model.at(0));
  const auto reached = strategy_.run([&] { return &*copy; });
  for (std::size_t r = 0; r < 3; ++r) EXPECT_EQ(reached[r], &model.at(r));
  EXPECT_EQ(strategy_.run([&] { return model.local().get(); })[2], &model.at(2));
}

}  // namespace
}  // namespace lockstep
