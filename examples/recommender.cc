// A recommender whose table of vectors is larger than one would like a worker to hold: 10 million rows of 32 numbers, divided over
// the parameter servers. Which visitor clicks at which offer is made up, by a rule that the program knows: so it can say how well
// the best possible recommender would do, and how near to it the training has come.
//
//   lockstep run --ps 2 --workers 2 --chief ./recommender --rows 10000000 --steps 4000
//   lockstep run --ps 2 --workers 2 --chief ./recommender --test
#include <lockstep/lockstep.h>

#include <iostream>

namespace ls = lockstep;

namespace {

// All tasks are started with the same arguments, so workers know what the coordinator knows.
struct Settings {
  int64_t rows = 1'000'000;  // of the table: nine of ten are visitors, one an offer
  int64_t steps = 3'000;
  int64_t batch = 4'096;
  int64_t visitors() const { return rows / 10 * 9; }
  int64_t offers() const { return rows - visitors(); }
} g_settings;

Settings read_settings(int argc, char** argv) {
  Settings settings;
  for (int k = 1; k < argc; ++k) {
    const std::string name = argv[k];
    if (name == "--test") settings = {.rows = 20'000, .steps = 400, .batch = 1'024};
    else if (name == "--rows" && k + 1 < argc) settings.rows = std::stoll(argv[++k]);
    else if (name == "--steps" && k + 1 < argc) settings.steps = std::stoll(argv[++k]);
    else throw std::invalid_argument(name + ": --test, --rows N and --steps N are known");
  }
  return settings;
}

// [clicks]
// Everybody has three tastes, each +1 or -1, which a hash of the number tells: nothing has to be kept for 10 million of them.
torch::Tensor tastes_of(const torch::Tensor& ids) {
  const auto bits = torch::tensor({15, 19, 23}, torch::kLong);
  const auto hashed = torch::bitwise_right_shift((ids * 2'654'435'761).unsqueeze(1), bits);
  return (torch::bitwise_and(hashed, 1) * 2 - 1).to(torch::kFloat);
}

struct Clicks {
  torch::Tensor ids;         // [n, 2]: a visitor's row and an offer's
  torch::Tensor is_clicked;  // [n]
  torch::Tensor chance;      // [n]: what only the inventor of the data knows
};

// A few visitors and offers are seen all the time, most hardly ever. The same seed gives the same clicks.
Clicks clicks(uint64_t seed, int64_t count) {
  auto random = torch::make_generator<torch::CPUGeneratorImpl>(seed);
  const auto some = [&](int64_t of) {
    return (torch::rand({count}, random, torch::kDouble).pow(12) * static_cast<double>(of)).to(torch::kLong);
  };
  const auto ids = torch::stack({some(g_settings.visitors()), some(g_settings.offers()) + g_settings.visitors()}, 1);
  const auto chance = ((tastes_of(ids.select(1, 0)) * tastes_of(ids.select(1, 1))).sum(1) - 0.5).sigmoid();
  return {ids, torch::rand({count}, random).lt(chance).to(torch::kFloat), chance};
}

// Each worker has visitors of its own; the last seeds are for the test.
ls::data::Dataset click_stream(const ls::InputContext& worker) {
  return ls::data::Dataset::range(worker.input_pipeline_id, 1 << 30, worker.num_input_pipelines).map([](torch::Tensor number) {
    auto made = clicks(static_cast<uint64_t>(number.item<int64_t>()), g_settings.batch);
    return std::pair(made.ids, made.is_clicked);
  });
}
const auto kClickStream = ls::remote_function("click_stream", click_stream);
// [clicks]

// [net]
// How well a visitor's vector fits an offer's.
struct Recommender : torch::nn::Module {
  explicit Recommender(int64_t rows)
      : table(register_module("table", ls::HostedEmbedding(ls::HostedEmbeddingOptions{
                                           .rows = rows, .columns = 32, .standard_deviation = 0.1, .seed = 1}))),
        bias(register_parameter("bias", torch::zeros({1}))) {}
  torch::Tensor forward(const torch::Tensor& ids) { return table(ids).prod(1).sum(1) + bias; }
  ls::HostedEmbedding table;
  torch::Tensor bias;
};
// [net]

// [step]
float train(ls::Hosted<Recommender>& net, ls::data::Iterator& stream) {
  const auto batch = ls::next_element(stream);
  const auto guess = net->forward(batch[0]);  // the rows of this batch come from the servers
  const auto loss = torch::binary_cross_entropy_with_logits(guess, batch[1], {}, {}, torch::Reduction::Sum);
  loss.backward();
  net.push();  // their gradients go there
  return loss.item<float>() / static_cast<float>(batch[1].size(0));
}
const auto kTrain = ls::remote_function("train", train);
// [step]

double log_loss(const torch::Tensor& chance, const torch::Tensor& is_clicked) {
  return torch::binary_cross_entropy(chance, is_clicked).item<double>();
}

double area_under_curve(const torch::Tensor& chance, const torch::Tensor& is_clicked) {
  ls::Metric area = "AUC";
  area.update_state(is_clicked, chance);
  return area.result().item<double>();
}

int run() {
  // [main]
  const auto& of = g_settings;
  ls::ParameterServerStrategy strategy(nullptr, ls::MinSizePartitioner({.max_shards = 2}));  // large variables on two servers
  ls::ClusterCoordinator coordinator(strategy);
  auto model = strategy.hosted<Recommender>(of.rows);
  model.set_optimizer(ls::Adagrad(0.1));  // keeps a second number beside each, on the servers
  const auto stream = coordinator.create_per_worker_dataset(kClickStream).make_iterator();

  const auto test = clicks(uint64_t{1} << 40, 20'000);
  const double best = log_loss(test.chance, test.is_clicked);
  const double nothing = log_loss(torch::full_like(test.chance, test.is_clicked.mean().item<float>()), test.is_clicked);
  std::cout << "log loss on the test: " << nothing << " when nothing is known, " << best << " at best\n";
  double reached = nothing;
  for (int part = 1; part <= 5; ++part) {
    std::vector<ls::RemoteValue<float>> losses;
    for (int64_t step = 0; step < of.steps / 5; ++step) losses.push_back(coordinator.schedule(kTrain, model, stream));
    coordinator.join();
    const torch::NoGradGuard no_grad;
    const auto chance = model.module()->forward(test.ids).sigmoid();  // only these rows come here
    reached = log_loss(chance, test.is_clicked);
    std::cout << "after " << of.steps / 5 * part << " steps: loss " << losses.back().get() << ", on the test " << reached << ", AUC "
              << area_under_curve(chance, test.is_clicked) << " (best " << area_under_curve(test.chance, test.is_clicked) << ")\n";
  }
  // [main]
  const double way = (nothing - reached) / (nothing - best);
  std::cout << "it has come " << std::round(way * 100) << " % of the way from knowing nothing to the best\n";
  return way > 0.4 ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) try {
  g_settings = read_settings(argc, argv);
  if (ls::run_role_if_server()) return 0;
  return run();
} catch (const std::exception& error) {
  std::cerr << "recommender: " << error.what() << "\n";
  return 1;
}
