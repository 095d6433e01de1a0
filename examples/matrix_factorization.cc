// Matrix factorization: ratings are products of a viewer's few numbers and a film's, and noise. The numbers are variables on the
// parameter servers, which closures read and change by rows, with no module and no optimizer in between.
//
//   lockstep run --ps 2 --workers 2 --chief ./matrix_factorization [--test]
#include <lockstep/lockstep.h>

#include <iostream>

namespace ls = lockstep;

namespace {

constexpr int64_t kFactors = 4;
constexpr double kNoise = 0.1;

struct Sizes {
  int64_t viewers, films, steps;
} g_sizes{20'000, 5'000, 4'000};

// [ratings]
// What nobody but the inventor of the data knows.
torch::Tensor true_factors(uint64_t seed, int64_t rows) {
  auto random = torch::make_generator<torch::CPUGeneratorImpl>(seed);
  return torch::randn({rows, kFactors}, random) * 0.7;
}

// Viewers, films, and how those liked these. The same seed gives the same ratings.
std::tuple<torch::Tensor, torch::Tensor, torch::Tensor> ratings(uint64_t seed, int64_t count) {
  static const auto viewer_factors = true_factors(1, g_sizes.viewers);
  static const auto film_factors = true_factors(2, g_sizes.films);
  auto random = torch::make_generator<torch::CPUGeneratorImpl>(seed);
  const auto viewers = torch::randint(g_sizes.viewers, {count}, random, torch::kLong);
  const auto films = torch::randint(g_sizes.films, {count}, random, torch::kLong);
  const auto exact = (viewer_factors.index_select(0, viewers) * film_factors.index_select(0, films)).sum(1);
  return {viewers, films, exact + torch::randn({count}, random) * kNoise};
}
// [ratings]

// [step]
// One step of gradient descent on the rows of a batch. Others change the same rows meanwhile: what is sent is added.
void improve(ls::Variable viewers, ls::Variable films, uint64_t seed) {
  constexpr double kRate = 0.1;
  const auto [who, what, liked] = ratings(seed, 2'000);
  const auto p = viewers.rows(who), q = films.rows(what);
  const auto error = (liked - (p * q).sum(1)).unsqueeze(1);
  viewers.scatter_add({error * q * kRate, who});
  films.scatter_add({error * p * kRate, what});
}
const auto kImprove = ls::remote_function("improve", improve);
// [step]

int run() {
  // [main]
  ls::ParameterServerStrategy strategy(nullptr, ls::FixedShardsPartitioner(2));
  ls::ClusterCoordinator coordinator(strategy);
  const auto scope = strategy.scope();
  torch::manual_seed(1);
  ls::Variable viewers(torch::randn({g_sizes.viewers, kFactors}) * 0.3, {.name = "viewers"});  // half on either server
  ls::Variable films(torch::randn({g_sizes.films, kFactors}) * 0.3, {.name = "films"});

  const auto [who, what, liked] = ratings(uint64_t{1} << 40, 20'000);
  double error = 0;
  for (int64_t step = 0; step < g_sizes.steps; ++step) {
    coordinator.schedule(kImprove, viewers, films, static_cast<uint64_t>(step) + 3);
    if ((step + 1) % (g_sizes.steps / 5) != 0) continue;
    coordinator.join();
    error = (liked - (viewers.rows(who) * films.rows(what)).sum(1)).square().mean().sqrt().item<double>();
    std::cout << "after " << step + 1 << " steps: error " << error << " (the noise alone is " << kNoise << ")\n";
  }
  // [main]
  return error < 2 * kNoise ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) try {
  if (argc > 1 && std::string(argv[1]) == "--test") g_sizes = {500, 300, 600};
  if (ls::run_role_if_server()) return 0;
  return run();
} catch (const std::exception& error) {
  std::cerr << "matrix_factorization: " << error.what() << "\n";
  return 1;
}
