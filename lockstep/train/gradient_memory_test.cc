#include "tests/support/train_testing.h"

// Large gradients are summed in the memory where LibTorch put them. Here that memory belongs to something else too: to
// the gradient of another parameter, to a tensor that the graph still reads, to a tensor of the user.

namespace lockstep {
namespace {

using namespace testing;

constexpr std::int64_t kSide = 128;  // a matrix of float64 has 128 KB

// Two matrices that a loss combines.
struct Pair : torch::nn::Module {
  explicit Pair(torch::Tensor (*matrix)()) : p(register_parameter("p", matrix())), q(register_parameter("q", matrix())) {}
  torch::Tensor p, q;
};

torch::Tensor contiguous() { return torch::randn({kSide, kSide}, torch::kDouble); }
torch::Tensor transposed() { return contiguous().t(); }
torch::Tensor padded() { return torch::randn({kSide, 2 * kSide}, torch::kDouble).slice(1, 0, kSide); }

// A factor for every element, which adds up over rows.
torch::Tensor factors(const torch::Tensor& x) { return x.t().mm(x); }

torch::Tensor total(const torch::Tensor& values, const torch::Tensor& x) { return (values.tanh() * factors(x)).sum(); }

struct Combination {
  const char* name;
  torch::Tensor (*loss)(const torch::Tensor& p, const torch::Tensor& q, const torch::Tensor& x);
};
using T = const torch::Tensor&;

const Combination kCombinations[] = {
    {"Sum", [](T p, T q, T x) { return total(p + q, x); }},
    {"Difference", [](T p, T q, T x) { return total(p - q, x); }},
    {"SumWithoutAFunction", [](T p, T q, T x) { return ((p + q) * factors(x)).sum() + (p + q).sum() * x.sum(); }},
    {"SumOfFlatViews",
     [](T p, T q, T x) {
       return total((p.reshape({-1}) + q.reshape({-1})).view({kSide, kSide}), x);
     }},
    {"LinearSumOfFlatViews",
     [](T p, T q, T x) {
       return ((p.reshape({-1}) + q.reshape({-1})) * factors(x).view({-1})).sum() + p.square().sum() * x.sum();
     }},
    {"SumOfOtherShapes",
     [](T p, T q, T x) {
       return total((p.reshape({64, 256}) + q.reshape({64, 256})).view({kSide, kSide}), x);
     }},
    {"SumOfTransposes", [](T p, T q, T x) { return total(p.t() + q.t(), x); }},
    {"TransposePlusPlain", [](T p, T q, T x) { return total(p.t() + q, x); }},
    {"TransposeOfASum", [](T p, T q, T x) { return total((p + q).t(), x); }},
    {"Expand",
     [](T p, T q, T x) {
       return total(p.expand({3, kSide, kSide}) + q, x);
     }},
    {"ExpandToOne",
     [](T p, T q, T x) {
       return total(p.expand({1, kSide, kSide}) + q.unsqueeze(0), x);
     }},
    {"Chunks",
     [](T p, T q, T x) {
       return total(torch::cat({p.chunk(2)[0] + q.chunk(2)[1], p.chunk(2)[1] * q.chunk(2)[0]}), x);
     }},
    {"OneChunkOnly",
     [](T p, T q, T x) {
       return total(torch::cat({p.chunk(2)[0], q.chunk(2)[1]}), x);
     }},
    {"SplitColumns", [](T p, T q, T x) { return total(torch::cat(p.split(32, 1), 1) + torch::cat(q.split(48, 0), 0), x); }},
    {"Cat",
     [](T p, T q, T x) {
       return (torch::cat({p, q}).tanh() * torch::cat({factors(x), 2 * factors(x)})).sum();
     }},
    {"Stack",
     [](T p, T q, T x) {
       return total(torch::stack({p, q}), x);
     }},
    {"InputPlusTranspose", [](T p, T q, T x) { return (x.unsqueeze(2) + p.t()).tanh().sum() + total(q, x); }},
    {"UsedTwice", [](T p, T q, T x) { return (x.mm(p) / 32).tanh().mm(p / 32).tanh().mm(q / 32).sum(); }},
    {"TwoViewsOfOne",
     [](T p, T q, T x) {
       return total(p.reshape({kSide, kSide}) + p.t() + q, x);
     }},
    {"OneIsAFactorOfTheOther", [](T p, T q, T x) { return total(p * q, x); }},
    {"LinearFunction", [](T p, T q, T x) { return torch::linear(torch::linear(x, p).tanh(), q).tanh().sum(); }},
};

void PrintTo(const Combination& combination, std::ostream* out) { *out << combination.name; }

// R replicas, with and without overlap, train as one process does on the same rows.
template <typename Make, typename Loss>
void expect_as_alone(const Make& make, const Loss& loss) {
  const auto alone = train_alone(make, [&](auto& net, int step) { return loss(net, batch(step, kSide)); });
  for (const int replicas : {2, 4})
    for (const bool overlap : {true, false}) {
      const auto together = train_together(replicas, {.gradients = {.overlap = overlap}}, make,
                                           [&](auto& model, Optimizer& optimizer, int step, ReplicaContext& context) {
                                             loss(*model, part_of(batch(step, kSide), context)).backward();
                                             optimizer.step();
                                           });
      expect_close(together, alone, str(replicas, " replicas, overlap ", overlap));
    }
}

class AliasedGradients : public ::testing::TestWithParam<Combination> {
 protected:
  void expect_as_alone_with(torch::Tensor (*matrix)()) const {
    expect_as_alone([=] { return std::make_shared<Pair>(matrix); },
                    [](Pair& net, const torch::Tensor& x) { return GetParam().loss(net.p, net.q, x); });
  }
};

TEST_P(AliasedGradients, TrainAsInOneProcess) { expect_as_alone_with(contiguous); }
TEST_P(AliasedGradients, OfTransposedParametersTrainAsInOneProcess) { expect_as_alone_with(transposed); }
TEST_P(AliasedGradients, OfParametersWithGapsTrainAsInOneProcess) { expect_as_alone_with(padded); }

INSTANTIATE_TEST_SUITE_P(Of, AliasedGradients, ::testing::ValuesIn(kCombinations),
                         [](const auto& info) { return std::string(info.param.name); });

// One layer under two names.
struct Tied : torch::nn::Module {
  Tied() : first(register_module("first", torch::nn::Linear(kSide, kSide))), second(register_module("second", first)) {
    to(torch::kDouble);
  }
  torch::nn::Linear first, second;
};

TEST(GradientMemory, OfALayerUnderTwoNamesTrainsAsInOneProcess) {
  expect_as_alone([] { return std::make_shared<Tied>(); },
                  [](Tied& net, const torch::Tensor& x) { return net.second(net.first(x).tanh()).tanh().sum(); });
}

struct ChannelsLast : torch::nn::Module {
  ChannelsLast() : conv(register_module("conv", torch::nn::Conv2d(torch::nn::Conv2dOptions(32, 64, 3)))) {
    to(torch::kDouble);
    conv->weight.set_data(conv->weight.detach().contiguous(torch::MemoryFormat::ChannelsLast));
  }
  torch::nn::Conv2d conv;
};

TEST(GradientMemory, OfAChannelsLastConvolutionTrainsAsInOneProcess) {
  expect_as_alone([] { return std::make_shared<ChannelsLast>(); },
                  [](ChannelsLast& net, const torch::Tensor& x) {
                    const auto image = x.reshape({x.size(0), 1, 8, 16}).expand({x.size(0), 32, 8, 16});
                    return net.conv(image.contiguous(torch::MemoryFormat::ChannelsLast)).tanh().sum() / 100;
                  });
}

}  // namespace
}  // namespace lockstep
