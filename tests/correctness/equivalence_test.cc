#include <gtest/gtest.h>

#include "tests/correctness/models.h"

// R replicas train what one process trains, whatever the model, the optimizer and R, also when R is larger than the
// number of cores and the last batch is uneven.

namespace lockstep::testing {
namespace {

template <typename Net, typename X, typename Options>
void expect_equal_to_one_process(const Options& options) {
  const auto alone = train_alone<Net, X>(options);
  for (const int replicas : {1, 2, 3, 4, 8}) {
    MirroredStrategy strategy(cpus(replicas));
    const auto together = train_mirrored<Net, X>(strategy, options);
    ASSERT_EQ(together.size(), static_cast<std::size_t>(replicas));
    EXPECT_LT(relative_difference(together[0], alone), 1e-6) << replicas << " replicas";
    for (const auto& weights : together) EXPECT_TRUE(is_same_bits(weights, together[0])) << replicas << " replicas";
  }
}

template <typename Net>
class DenseEquivalence : public ::testing::Test {};
using DenseNets = ::testing::Types<Mlp, WideMlp, Cnn>;
TYPED_TEST_SUITE(DenseEquivalence, DenseNets);

TYPED_TEST(DenseEquivalence, Sgd) { expect_equal_to_one_process<TypeParam, torch::optim::SGD>(torch::optim::SGDOptions(0.05)); }
TYPED_TEST(DenseEquivalence, Momentum) {
  expect_equal_to_one_process<TypeParam, torch::optim::SGD>(torch::optim::SGDOptions(0.02).momentum(0.9).weight_decay(1e-3));
}
TYPED_TEST(DenseEquivalence, Adam) {
  expect_equal_to_one_process<TypeParam, torch::optim::Adam>(torch::optim::AdamOptions(1e-3));
}
TYPED_TEST(DenseEquivalence, AdamW) {
  expect_equal_to_one_process<TypeParam, torch::optim::AdamW>(torch::optim::AdamWOptions(1e-3).weight_decay(0.01));
}
TYPED_TEST(DenseEquivalence, Adagrad) {
  expect_equal_to_one_process<TypeParam, torch::optim::Adagrad>(torch::optim::AdagradOptions(0.01));
}
TYPED_TEST(DenseEquivalence, RmsProp) {
  expect_equal_to_one_process<TypeParam, torch::optim::RMSprop>(torch::optim::RMSpropOptions(1e-3));
}

TEST(SparseEquivalence, Sgd) { expect_equal_to_one_process<Embedder, torch::optim::SGD>(torch::optim::SGDOptions(0.05)); }
TEST(SparseEquivalence, Adagrad) {
  expect_equal_to_one_process<Embedder, torch::optim::Adagrad>(torch::optim::AdagradOptions(0.01));
}

template <typename Net, typename X, typename Options>
void expect_reproducible(const Options& options) {
  for (const int replicas : {2, 3, 8}) {
    MirroredStrategy first(cpus(replicas));
    MirroredStrategy second(cpus(replicas));
    MirroredStrategy one_device({"CPU:0"}, {.replicas_per_device = replicas});
    const auto reference = train_mirrored<Net, X>(first, options);
    EXPECT_TRUE(is_same_bits(train_mirrored<Net, X>(second, options)[0], reference[0])) << replicas << " replicas, second run";
    EXPECT_TRUE(is_same_bits(train_mirrored<Net, X>(one_device, options)[0], reference[0]))
        << replicas << " replicas, one device";
    EXPECT_TRUE(is_same_bits(train_mirrored<Net, X>(first, options, {.gradients = {.overlap = false}})[0], reference[0]))
        << replicas << " replicas, without overlap";
  }
}

TEST(Reproducibility, DenseModelsGiveTheSameBits) {
  expect_reproducible<Mlp, torch::optim::Adam>(torch::optim::AdamOptions(1e-3));
  expect_reproducible<WideMlp, torch::optim::Adam>(torch::optim::AdamOptions(1e-3));
  expect_reproducible<Cnn, torch::optim::SGD>(torch::optim::SGDOptions(0.02).momentum(0.9));
}
TEST(Reproducibility, SparseModelsGiveTheSameBits) {
  expect_reproducible<Embedder, torch::optim::SGD>(torch::optim::SGDOptions(0.05));
}

TEST(Reproducibility, BucketSizeDoesNotChangeTheBits) {
  MirroredStrategy strategy(cpus(3));
  const torch::optim::SGDOptions options(0.05);
  const auto reference = train_mirrored<Mlp, torch::optim::SGD>(strategy, options);
  for (const std::int64_t bytes : {1, 64, 1000}) {
    const auto other = train_mirrored<Mlp, torch::optim::SGD>(strategy, options, {.gradients = {.bucket_bytes = bytes}});
    EXPECT_TRUE(is_same_bits(other[0], reference[0])) << bytes << " bytes a bucket";
  }
}

}  // namespace
}  // namespace lockstep::testing
