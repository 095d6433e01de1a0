#pragma once

#include <concepts>
#include <functional>
#include <initializer_list>
#include <string>
#include <utility>
#include <vector>

#include "lockstep/compat/v1/config_proto.h"
#include "lockstep/compat/v1/input_iterator.h"
#include "lockstep/data/call_element.h"
#include "lockstep/strategy/strategy.h"

// The names that tf.compat.v1.distribute has and tf.distribute no longer has, over the strategies of today.

namespace lockstep::compat::v1 {

// What is the same in both versions.
using lockstep::CrossDeviceOps;
using lockstep::InputContext;
using lockstep::InputReplicationMode;
using lockstep::ReduceOp;

namespace internal {

// The strategy's scope, for its method `what`. Throws kFailedPrecondition, naming it, in a replica and under another strategy.
Scope enter(Strategy& strategy, const char* what);

InputIterator make_dataset_iterator(Strategy& strategy, const data::Dataset& dataset);
InputIterator make_input_fn_iterator(Strategy& strategy, const Strategy::DatasetFn& input_fn, InputReplicationMode mode);
data::Dataset make_numpy_dataset(Strategy& strategy, const data::Element& components);
data::Dataset make_numpy_dataset(Strategy& strategy, const std::vector<at::Tensor>& list);
// The next step of an iterator that must be the strategy's own.
DistributedIterator::Batch next_of(Strategy& strategy, InputIterator& iterator);
DistributedIterator::Batch next_of(Strategy& strategy, DistributedIterator& iterator);

}  // namespace internal

// A strategy with the first version's methods beside its own; each is a name for what stands in its comment. It has no state
// of its own. Strategies cannot be copied (in Python by deepcopy alone): make a second one with the same arguments.
template <typename Base>
class FirstVersion : public Base {
 public:
  using Base::Base;
  using DatasetFn = Strategy::DatasetFn;

  // experimental_distribute_dataset(dataset), with an iterator that has to be initialized. `dataset` has global batches.
  InputIterator make_dataset_iterator(const data::Dataset& dataset) { return internal::make_dataset_iterator(*this, dataset); }

  // distribute_datasets_from_function(input_fn), likewise: input_fn is called here, once on every worker and in scope, and its
  // dataset has a replica's batches. A pass ends before a step that not every replica of this worker would get a batch of.
  // Throws kInvalidArgument for another mode than kPerWorker, and for an empty function.
  InputIterator make_input_fn_iterator(const DatasetFn& input_fn,
                                       InputReplicationMode replication_mode = InputReplicationMode::kPerWorker) {
    return internal::make_input_fn_iterator(*this, input_fn, replication_mode);
  }

  // run(fn), or run(fn, iterator.get_next()) with an iterator of this strategy. Another's is kFailedPrecondition, and loses no
  // step.
  template <typename F>
  auto experimental_run(F&& fn) {
    return this->run(std::forward<F>(fn));
  }
  template <typename F>
  auto experimental_run(F&& fn, InputIterator& input_iterator) {
    return this->run(std::forward<F>(fn), internal::next_of(*this, input_iterator));
  }
  template <typename F>
  auto experimental_run(F&& fn, DistributedIterator& input_iterator) {
    return this->run(std::forward<F>(fn), internal::next_of(*this, input_iterator));
  }

  // run(fn, args...).
  template <typename F, typename... Args>
  auto experimental_run_v2(F&& fn, const Args&... args) {
    return this->run(std::forward<F>(fn), args...);
  }

  // experimental_local_results(value).
  template <typename T>
  auto unwrap(const T& value) const {
    return this->experimental_local_results(value);
  }

  // data::Dataset::from_tensor_slices: the rows of one array; of a pair, a tuple or a map of arrays, or of an element (which
  // has byte strings too), row by row. A std::vector is Python's list, whose arrays are stacked: each of them is a row. They
  // must have one shape and dtype (kInvalidArgument). Braces do not say whether a tuple or a list is meant.
  using Base::experimental_make_numpy_dataset;
  data::Dataset experimental_make_numpy_dataset(const at::Tensor& array) {
    return internal::make_numpy_dataset(*this, data::Element(array));
  }
  data::Dataset experimental_make_numpy_dataset(const std::vector<at::Tensor>& list) {
    return internal::make_numpy_dataset(*this, list);
  }
  template <typename T>
  requires(!std::convertible_to<const T&, std::string>) && requires(const T& nest) { data::to_element(nest); }
  data::Dataset experimental_make_numpy_dataset(const T& nest) {
    return internal::make_numpy_dataset(*this, data::to_element(nest));
  }
  data::Dataset experimental_make_numpy_dataset(std::initializer_list<at::Tensor>) = delete;

  // A copy of `config` with what this strategy needs; the strategies of one device need nothing.
  virtual ConfigProto update_config_proto(const ConfigProto& config) const { return config; }
};

}  // namespace lockstep::compat::v1
