#include "lockstep/compat/v1/first_version.h"

#include <ATen/ATen.h>

#include <memory>
#include <optional>

#include "lockstep/base/error.h"
#include "lockstep/base/str.h"

namespace lockstep::compat::v1::internal {
namespace {

// The elements of `dataset` up to the last `count` that are all there.
data::Dataset in_whole_steps(const data::Dataset& dataset, std::size_t count) {
  if (count == 1) return dataset;
  return data::Dataset::from_generator([dataset, count] {
    auto pass = std::make_shared<data::Iterator>(dataset.make_iterator());
    return [pass, count, step = std::vector<data::Element>(), next = std::size_t{0}]() mutable -> std::optional<data::Element> {
      if (next == step.size()) {
        step.clear();
        next = 0;
        data::Element element;
        while (step.size() < count && pass->next(element)) step.push_back(std::exchange(element, {}));
        if (step.size() < count) step.clear();
      }
      return step.empty() ? std::nullopt : std::optional(std::move(step[next++]));
    };
  });
}

void require_same_kind(const at::Tensor& first, const at::Tensor& other, std::size_t position) {
  if (other.sizes() == first.sizes() && other.scalar_type() == first.scalar_type()) return;
  throw Error(ErrorCode::kInvalidArgument,
              lockstep::str("experimental_make_numpy_dataset: array 0 of the list is ", first.scalar_type(), " ", first.sizes(),
                            " and array ", position, " is ", other.scalar_type(), " ", other.sizes(),
                            "; a list is stacked, so that all must have one dtype and shape. Give a tuple for components"));
}

}  // namespace

Scope enter(Strategy& strategy, const char* what) {
  try {
    return strategy.scope();
  } catch (const Error& error) {
    throw Error(error.code(), str(what, "() of ", strategy.name(), ": ", error.what()));
  }
}

InputIterator make_dataset_iterator(Strategy& strategy, const data::Dataset& dataset) {
  constexpr const char* kName = "make_dataset_iterator";
  const auto scope = enter(strategy, kName);
  return InputIterator(kName, strategy, strategy.experimental_distribute_dataset(dataset));
}

InputIterator make_input_fn_iterator(Strategy& strategy, const Strategy::DatasetFn& input_fn, InputReplicationMode mode) {
  constexpr const char* kName = "make_input_fn_iterator";
  if (mode != InputReplicationMode::kPerWorker)
    throw Error(ErrorCode::kInvalidArgument,
                str(kName, ": the replication mode is ",
                    mode == InputReplicationMode::kPerReplica ? "kPerReplica" : "none that there is",
                    ", and only kPerWorker is supported; distribute_datasets_from_function() takes kPerReplica"));
  if (!input_fn) throw Error(ErrorCode::kInvalidArgument, str(kName, ": the function is empty; give one that makes a dataset"));
  const auto scope = enter(strategy, kName);
  const auto replicas = static_cast<std::size_t>(strategy.replicas().size());
  return InputIterator(kName, strategy, strategy.distribute_datasets_from_function([&](const InputContext& context) {
    return in_whole_steps(input_fn(context), replicas);
  }));
}

data::Dataset make_numpy_dataset(Strategy& strategy, const data::Element& components) {
  const auto scope = enter(strategy, "experimental_make_numpy_dataset");
  return data::Dataset::from_tensor_slices(components);
}

data::Dataset make_numpy_dataset(Strategy& strategy, const std::vector<at::Tensor>& list) {
  require(!list.empty(), "experimental_make_numpy_dataset: the list is empty; give at least one array");
  for (std::size_t i = 0; i < list.size(); ++i) {
    if (!list[i].defined())
      throw Error(ErrorCode::kInvalidArgument,
                  lockstep::str("experimental_make_numpy_dataset: array ", i, " of the list is an undefined tensor"));
    require_same_kind(list[0], list[i], i);
  }
  return make_numpy_dataset(strategy, data::Element(at::stack(list)));
}

DistributedIterator::Batch next_of(Strategy& strategy, InputIterator& iterator) {
  const auto scope = enter(strategy, "experimental_run");
  if (!iterator.belongs_to(strategy))
    throw Error(ErrorCode::kFailedPrecondition,
                str("experimental_run() of ", strategy.name(),
                    ": the iterator was made by another strategy; make it with this strategy's make_dataset_iterator() or "
                    "make_input_fn_iterator()"));
  return iterator.get_next();
}

DistributedIterator::Batch next_of(Strategy& strategy, DistributedIterator& iterator) {
  const auto scope = enter(strategy, "experimental_run");
  return iterator.get_next();
}

}  // namespace lockstep::compat::v1::internal
