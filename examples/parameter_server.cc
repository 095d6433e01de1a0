#include <lockstep/lockstep.h>
namespace ls = lockstep;

struct Net : torch::nn::SequentialImpl {
  Net() : SequentialImpl(torch::nn::Flatten(), torch::nn::Linear(784, 128), torch::nn::ReLU(), torch::nn::Linear(128, 10)) {}
};

int main() {
  if (ls::run_role_if_server()) return 0;  // lockstep run --ps 2 --workers 2 --chief ./parameter_server
  ls::ParameterServerStrategy strategy;
  ls::ClusterCoordinator coordinator(strategy);
  auto model = strategy.hosted<Net>();   // its parameters live on the servers
  model.set_optimizer(ls::Adam(1e-3));  // and so do its optimizers
  auto batches = coordinator.create_per_worker_dataset([](const ls::InputContext& worker) {
    return ls::data::fashion_mnist("train").shuffle(10'000, worker.input_pipeline_id).repeat().batch(64);
  });
  auto iterator = batches.make_iterator();
  for (int step = 0; step < 500; ++step)
    coordinator.schedule([](ls::Hosted<Net>& net, ls::data::Iterator& input) {  // on whichever worker is free
      auto batch = ls::next_element(input);
      torch::cross_entropy_loss(net->forward(batch[0]), batch[1]).backward();  // the first use of net gets the newest values
      net.push();                                                              // the servers take a step with the gradients
    }, model, iterator);
  coordinator.join();

  auto test = *ls::data::fashion_mnist("test").batch(10'000).begin();
  std::cout << "accuracy " << model.module()->forward(test[0]).argmax(1).eq(test[1]).to(torch::kFloat).mean().item<float>() << "\n";
}
