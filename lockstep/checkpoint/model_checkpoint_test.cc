#include <torch/torch.h>

#include "lockstep/checkpoint/checkpoint_manager.h"
#include "lockstep/checkpoint/weights.h"
#include "lockstep/strategy/mirrored_strategy.h"
#include "lockstep/train/optimizer.h"
#include "tests/support/scratch_folder.h"
#include "tests/support/testing.h"

// Models in checkpoints and files of weights.

namespace lockstep {
namespace {

using testing::cpus;
using ::testing::ElementsAre;
using testing::ScratchFolder;
using testing::ThrowsCode;
using ::testing::UnorderedElementsAre;

struct Net : torch::nn::Module {
  explicit Net(int width = 4)
      : linear(register_module("linear", torch::nn::Linear(3, width))),
        norm(register_module("norm", torch::nn::BatchNorm1d(width))),
        dropout(register_module("dropout", torch::nn::Dropout(0.5))) {}
  torch::Tensor forward(const torch::Tensor& x) { return dropout(norm(linear(x))); }
  torch::nn::Linear linear;
  torch::nn::BatchNorm1d norm;
  torch::nn::Dropout dropout;
};

// Two names of one parameter.
struct Tied : torch::nn::Module {
  Tied() : first(register_parameter("first", torch::rand({2}))), second(register_parameter("second", first)) {}
  torch::Tensor first, second;
};

std::vector<std::string> names_of(const NamedTensors& tensors) {
  std::vector<std::string> names;
  for (const auto& [name, tensor] : tensors) names.push_back(name);
  return names;
}

void expect_equal(const torch::nn::Module& a, const torch::nn::Module& b) {
  for (const auto& item : a.named_parameters())
    EXPECT_TRUE(torch::equal(item.value(), b.named_parameters()[item.key()])) << item.key();
  for (const auto& item : a.named_buffers())
    EXPECT_TRUE(torch::equal(item.value(), b.named_buffers()[item.key()])) << item.key();
}

TEST(ModelWeights, HaveLibTorchsNamesAndComeBackOnAllReplicas) {
  const ScratchFolder folder;
  Net plain;
  plain.norm->running_mean.fill_(3);
  save_weights(folder / "w", plain);
  EXPECT_THAT(names_of(load_weights(folder / "w").tensors),
              UnorderedElementsAre("linear.weight", "linear.bias", "norm.weight", "norm.bias", "norm.running_mean",
                                   "norm.running_var", "norm.num_batches_tracked"));
  MirroredStrategy strategy(cpus(3));
  const auto scope = strategy.scope();
  const auto model = mirrored<Net>();
  EXPECT_TRUE(load_weights_into(model, folder / "w").empty());
  for (std::size_t replica = 0; replica < 3; ++replica) expect_equal(model.at(replica), plain);
  strategy.run([] {});
  for (std::size_t replica = 0; replica < 3; ++replica) expect_equal(model.at(replica), plain);
  save_weights(folder / "again", model);
  EXPECT_EQ(testing::content_of(folder / "again"), testing::content_of(folder / "w"));
}

TEST(ModelWeights, ThatDoNotFitAreNamedAndChangeNothing) {
  const ScratchFolder folder;
  save_weights(folder / "w",
               {{"linear.weight", torch::zeros({5, 3})}, {"linear.bias", torch::zeros({4})}, {"extra", torch::zeros({1})}});
  Net net;
  const auto bias = net.linear->bias.detach().clone();
  EXPECT_THAT([&] { load_weights_into(net, folder / "w"); },
              ThrowsCode(ErrorCode::kInvalidArgument, "linear.weight: has shape [5, 3], and [4, 3] is needed",
                         "extra: unexpected", "norm.running_mean: missing"));
  EXPECT_TRUE(torch::equal(net.linear->bias, bias));
  EXPECT_EQ(load_weights_into(net, folder / "w", {.strict = false}).size(), 7U);
  EXPECT_TRUE(torch::equal(net.linear->bias, torch::zeros({4})));
}

TEST(ModelWeights, ASharedParameterIsKeptOnceAndFoundUnderEitherName) {
  const ScratchFolder folder;
  Tied tied;
  save_weights(folder / "w", tied);
  EXPECT_THAT(names_of(load_weights(folder / "w").tensors), ElementsAre("first"));
  load_weights_into(tied, folder / "w");
  save_weights(folder / "second", {{"second", torch::ones({2})}});
  load_weights_into(tied, folder / "second");
  EXPECT_TRUE(torch::equal(tied.first, torch::ones({2})));
  save_weights(folder / "both", {{"first", torch::zeros({2})}, {"second", torch::zeros({2})}});
  EXPECT_TRUE(load_weights_into(tied, folder / "both").empty());
}

TEST(ModelWeights, OfLibTorchsOwnArchivesLoad) {
  const ScratchFolder folder;
  const auto saved = std::make_shared<Net>();
  saved->norm->running_var.fill_(2);
  torch::save(saved, folder / "w.pt");
  MirroredStrategy strategy(cpus(2));
  const auto scope = strategy.scope();
  const auto model = mirrored<Net>();
  load_weights_into(model, folder / "w.pt");
  for (std::size_t replica = 0; replica < 2; ++replica) expect_equal(model.at(replica), *saved);
  const auto wide = mirrored<Net>(6);
  EXPECT_THAT([&] { load_weights_into(wide, folder / "w.pt"); },
              ThrowsCode(ErrorCode::kInvalidArgument, "linear.weight: has shape"));
  const auto other = mirrored<torch::nn::Linear>(3, 4);
  EXPECT_THAT([&] { load_weights_into(other, folder / "w.pt"); },
              ThrowsCode(ErrorCode::kInvalidArgument, "weight: missing", "linear: unexpected"));
  const auto bytes = testing::content_of(folder / "w.pt");
  folder.write("cut.pt", bytes.substr(0, bytes.size() / 2));
  EXPECT_THAT([&] { load_weights_into(model, folder / "cut.pt"); }, ThrowsCode(ErrorCode::kDataLoss, "cut.pt"));
}

TEST(ModelCheckpoint, BuffersAreBroughtTogetherAndComeBackEverywhere) {
  const ScratchFolder folder;
  {
    MirroredStrategy strategy(cpus(2));
    const auto scope = strategy.scope();
    const auto model = mirrored<Net>();
    strategy.run([&](ReplicaContext& context) { model->norm->running_mean.fill_(context.replica_id_in_sync_group() * 2); });
    const auto second = mirrored<torch::nn::Linear>(1, 1);
    Checkpoint().track("model", model).track("second", second).write(folder / "c");
  }
  EXPECT_THAT(real_files().list(folder / "c"),
              ElementsAre("manifest.json", "state.safetensors", "weights-second.safetensors", "weights.safetensors"));
  MirroredStrategy strategy(cpus(3));
  const auto scope = strategy.scope();
  const auto model = mirrored<Net>();
  strategy.run([&] { model->norm->running_mean.fill_(9); });  // nobody has looked at these when they are replaced
  Checkpoint().track("model", model).read(folder / "c");
  for (std::size_t replica = 0; replica < 3; ++replica)
    EXPECT_TRUE(torch::equal(model.at(replica).norm->running_mean, torch::ones({4})));
  EXPECT_TRUE(torch::equal(model->norm->running_mean, torch::ones({4})));
}

// A training that can be stopped after a number of steps and go on in another "process".
struct Training {
  explicit Training(const std::string& folder) : manager(make(), folder) {}

  Checkpoint make() {
    Checkpoint checkpoint(strategy);
    return checkpoint.track("model", model).track("data", iterator).track("step", &step).track_generators();
  }
  void go_to(std::int64_t last) {
    for (; step < last; ++step) {
      auto batch = iterator.next();
      if (!batch) {
        iterator = distributed.make_iterator();
        batch = iterator.next();
      }
      strategy.run(
          [&](const torch::Tensor& x) {
            model->forward(x).square().mean().backward();
            optimizer.step();
          },
          *batch);
    }
  }

  MirroredStrategy strategy{cpus(2), {.seed = 3}};
  Scope scope = strategy.scope();
  MirroredModule<Net> model = mirrored<Net>();
  Optimizer optimizer = lockstep::optimizer<torch::optim::SGD>(model, 0.1);
  DistributedDataset distributed = strategy.experimental_distribute_dataset(
      data::Dataset::from_tensor_slices({(torch::arange(30 * 3) * 0.7).sin().reshape({30, 3})}).shuffle(30, 1).batch(8));
  DistributedIterator iterator = distributed.make_iterator();
  std::int64_t step = 0;
  CheckpointManager manager;
};

TEST(ModelCheckpoint, ARestartedTrainingEndsWithTheSameBits) {
  const ScratchFolder folder;
  {
    Training undisturbed(folder / "a");
    undisturbed.go_to(7);  // in the middle of the second pass
    undisturbed.manager.save(7);
    undisturbed.go_to(15);
    save_weights(folder / "undisturbed", undisturbed.model);
  }
  Training restarted(folder / "a");
  EXPECT_EQ(restarted.manager.restore_latest()->info.step, 7);
  EXPECT_EQ(restarted.step, 7);
  restarted.go_to(15);
  save_weights(folder / "restarted", restarted.model);
  EXPECT_EQ(testing::content_of(folder / "restarted"), testing::content_of(folder / "undisturbed"));
}

}  // namespace
}  // namespace lockstep
