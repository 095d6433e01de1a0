#include <torch/torch.h>

#include "lockstep/lockstep.h"
#include "tests/support/scratch_folder.h"
#include "tests/support/server_cluster.h"
#include "tests/support/testing.h"

// Weights of hosted models with tables that are only on the servers.

namespace lockstep {
namespace {

using testing::code_of;
using testing::ScratchFolder;
using testing::ServerCluster;

struct Words : torch::nn::Module {
  Words(std::int64_t rows, std::int64_t columns)
      : table(register_module("table", HostedEmbedding(rows, columns))),
        norm(register_module("norm", torch::nn::BatchNorm1d(columns))),
        top(register_module("top", torch::nn::Linear(columns, 1))) {}
  torch::Tensor forward(const torch::Tensor& ids) { return top(norm(table(ids).mean(1))); }
  HostedEmbedding table;
  torch::nn::BatchNorm1d norm;
  torch::nn::Linear top;
};

struct Job {
  Job(std::int64_t rows, std::int64_t columns)
      : cluster(2, 1), strategy(cluster.chief(), FixedShardsPartitioner(3)), model(strategy.hosted<Words>(rows, columns)) {}
  void compile() { model.compile({.optimizer = SGD(0.1), .loss = "mse"}); }
  ServerCluster cluster;
  ParameterServerStrategy strategy;
  Model model;
};

void expect_same(const CheckpointPart& a, const CheckpointPart& b) {
  ASSERT_EQ(a.tensors.size(), b.tensors.size());
  for (const auto& [name, tensor] : a.tensors) {
    ASSERT_NE(b.find(name), nullptr) << name;
    EXPECT_TRUE(torch::equal(tensor, *b.find(name))) << name;
  }
}

// Of more than one piece, which do not end where shards do.
TEST(HostedWeights, FilesHaveTheTablesAsOneProcessHasThem) {
  const std::int64_t rows = 1'000'003, columns = 5;
  const ScratchFolder folder;
  Job job(rows, columns);
  job.compile();
  const auto begin = job.model.weights();
  ASSERT_NE(begin.find("table.weight"), nullptr);
  EXPECT_EQ(begin.find("table.weight")->sizes(), torch::IntArrayRef({rows, columns}));
  job.model.save_weights(folder / "begin.safetensors");
  expect_same({load_weights(folder / "begin.safetensors").tensors, {}}, begin);

  Model alone(mirrored<Words>(rows, columns));
  alone.load_weights(folder / "begin.safetensors");
  expect_same(alone.weights(), begin);
  const auto other = mirrored<Words>(rows, columns);
  Model(other).save_weights(folder / "other.safetensors");
  job.model.load_weights(folder / "other.safetensors");
  expect_same(job.model.weights(), Model(other).weights());
  const auto ids = torch::tensor({{0, 1, 2}, {1'000'002, 333'334, 666'668}});
  EXPECT_TRUE(torch::equal(job.model.predict(ids), Model(other).predict(ids)));

  job.model.set_weights(begin);
  expect_same(job.model.weights(), begin);
}

TEST(HostedWeights, OfAnotherShapeOrWithoutATableChangeNothing) {
  const ScratchFolder folder;
  Job job(20, 4);
  Model smaller(mirrored<Words>(std::int64_t{19}, std::int64_t{4}));
  smaller.save_weights(folder / "smaller.safetensors");
  EXPECT_EQ(code_of([&] { job.model.weights(); }), ErrorCode::kFailedPrecondition);
  EXPECT_EQ(code_of([&] { job.model.save_weights(folder / "early.safetensors"); }), ErrorCode::kFailedPrecondition);
  EXPECT_EQ(code_of([&] { job.model.set_weights(smaller.weights()); }), ErrorCode::kFailedPrecondition);
  job.compile();
  const auto begin = job.model.weights();
  EXPECT_EQ(code_of([&] { job.model.load_weights(folder / "smaller.safetensors"); }), ErrorCode::kInvalidArgument);
  EXPECT_EQ(code_of([&] { job.model.set_weights(smaller.weights()); }), ErrorCode::kInvalidArgument);
  auto without = begin;
  std::erase_if(without.tensors, [](const auto& one) { return one.first == "table.weight"; });
  EXPECT_EQ(code_of([&] { job.model.set_weights(without); }), ErrorCode::kInvalidArgument);
  EXPECT_EQ(code_of([&] { job.model.load_weights(folder / "not there.safetensors"); }), ErrorCode::kNotFound);
  expect_same(job.model.weights(), begin);
}

}  // namespace
}  // namespace lockstep
