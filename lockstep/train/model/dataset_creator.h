#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <type_traits>
#include <typeinfo>
#include <vector>

#include "lockstep/data/dataset.h"
#include "lockstep/data/options.h"

namespace lockstep {

namespace internal {

using DatasetFunction = std::function<data::Dataset(const InputContext&)>;

// A callable that makes a dataset, told the context or not.
template <typename F>
concept MakesDataset =
    std::is_invocable_r_v<data::Dataset, F&, const InputContext&> || std::is_invocable_r_v<data::Dataset, F&>;

// The name by which the tasks of a job find it; and by that name. Throws kNotFound when this program has none.
std::string register_dataset_function(const std::type_info& type, DatasetFunction function);
DatasetFunction dataset_function(const std::string& name);

// Registers itself before main() in every program that mentions its kName.
template <MakesDataset F>
struct NamedDatasetFunction {
  static data::Dataset make(const InputContext& context) {
    F function{};
    if constexpr (std::is_invocable_v<F&, const InputContext&>) return function(context);
    else return function();
  }
  static inline const std::string kName = register_dataset_function(typeid(F), &NamedDatasetFunction::make);
};

}  // namespace internal

// A function that makes the data of fit() and evaluate() where it is read: under a ParameterServerStrategy on every worker,
// elsewhere in every process. A lambda without captures, which all tasks of a job have in their program:
//
//   model.fit(ls::DatasetCreator([](const ls::InputContext&) { return
//   ls::data::fashion_mnist("train").shuffle(60'000).batch(64); }),
//             {.epochs = 5, .steps_per_epoch = 900});
//
// Every worker reads all that the function gives it, its own pass: nothing is divided by itself. The context says which worker
// of how many it is; shuffle, or dataset.shard(context.num_input_pipelines, context.input_pipeline_id).
class DatasetCreator {
 public:
  // `input_options`: where a strategy distributes it; workers of parameter servers have no use for them.
  template <internal::MakesDataset F>
  explicit DatasetCreator(const F&, const InputOptions& input_options = {}) : input_options_(input_options) {
    static_assert(std::is_empty_v<F> && std::is_default_constructible_v<F>,
                  "a function that captures cannot run in another process: make the dataset from what the program knows");
    name_ = internal::NamedDatasetFunction<F>::kName;
  }

  // The dataset, made here.
  data::Dataset operator()(const InputContext& context) const;
  const std::string& name() const noexcept { return name_; }
  const InputOptions& input_options() const noexcept { return input_options_; }

  // Rows of tensors, which are sent to whoever reads them, in batches; what fit(x, y) makes of its tensors where a dataset
  // cannot be sent.
  struct Rows {
    std::vector<at::Tensor> tensors = {};
    std::int64_t batch_size = 32;
    bool is_shuffled = false;
  };
  explicit DatasetCreator(Rows rows) : rows_(std::move(rows)) {}
  const std::optional<Rows>& rows() const noexcept { return rows_; }

 private:
  std::string name_;  // "": of rows
  InputOptions input_options_ = {};
  std::optional<Rows> rows_;
};

}  // namespace lockstep
