#include "bench/input_training.h"

#include "bench/models.h"
#include "lockstep/lockstep.h"

namespace bench {

namespace ls = lockstep;

struct InputTraining::State {
  explicit State(const ls::data::Dataset& batches)
      : strategy({"CPU:0", "CPU:1"}),
        scope(strategy.scope()),
        model(ls::mirrored_from([] { return make_net("W2"); })),
        optimizer(ls::optimizer<torch::optim::SGD>(model, torch::optim::SGDOptions(find_workload("W2").learning_rate),
                                                   {.gradients = {.reduce = ls::ReduceOp::kMean}})),
        data(strategy.experimental_distribute_dataset(batches)),
        iterator(data.make_iterator()) {}

  // In this order: the model and the optimizer belong to the scope.
  ls::MirroredStrategy strategy;
  ls::Scope scope;
  ls::MirroredModule<Net> model;
  ls::Optimizer optimizer;
  ls::DistributedDataset data;
  ls::DistributedIterator iterator;
};

InputTraining::InputTraining(const ls::data::Dataset& batches) : state_(std::make_unique<State>(batches)) {}

InputTraining::~InputTraining() = default;

std::int64_t InputTraining::step() {
  auto& s = *state_;
  const auto batch = s.iterator.next();
  if (!batch) {
    s.iterator = s.data.make_iterator();
    return 0;
  }
  s.strategy.run(
      [&](const at::Tensor& x, const at::Tensor& y) {
        s.model->loss(s.model->forward(x), y, LossReduction::kMean).backward();
        s.optimizer.step();
      },
      *batch);
  std::int64_t examples = 0;
  for (const auto& part : batch->values()) examples += part[0].size(0);
  return examples;
}

}  // namespace bench
