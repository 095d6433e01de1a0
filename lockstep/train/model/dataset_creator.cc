#include "lockstep/train/model/dataset_creator.h"

#include "lockstep/train/functions_by_type.h"
#include "lockstep/train/model/model_state.h"

namespace lockstep {
namespace internal {
namespace {

FunctionsByType<DatasetFunction>& functions() {
  static FunctionsByType<DatasetFunction> all("dataset function");
  return all;
}

}  // namespace

std::string register_dataset_function(const std::type_info& type, DatasetFunction function) {
  return functions().add(type, std::move(function));
}

DatasetFunction dataset_function(const std::string& name) { return functions().find(name); }

}  // namespace internal

data::Dataset DatasetCreator::operator()(const InputContext& context) const {
  return rows_ ? internal::batches_of(rows_->tensors, rows_->batch_size, rows_->is_shuffled)
               : internal::dataset_function(name_)(context);
}

}  // namespace lockstep
