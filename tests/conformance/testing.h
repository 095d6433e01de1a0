#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/lockstep.h"
#include "tests/support/testing.h"

// What the conformance tests share: short forms of values, and of what a call answered.

namespace lockstep::testing {

using ::testing::ElementsAre;

using Floats = std::vector<double>;
using Ints = std::vector<std::int64_t>;
using Sync = VariableSynchronization;
using Aggregation = VariableAggregation;

constexpr Aggregation kAllAggregations[] = {Aggregation::kNone, Aggregation::kSum, Aggregation::kMean,
                                            Aggregation::kOnlyFirstReplica};

inline at::Tensor scalar(double value) { return at::scalar_tensor(value, at::kFloat); }
inline at::Tensor vec(const Floats& values) { return at::tensor(values, at::kFloat); }
inline at::Tensor ints_vec(const Ints& values) { return at::tensor(values, at::kLong); }

// One float32 scalar for each replica.
inline PerReplica<at::Tensor> scalars(const Floats& values) {
  std::vector<at::Tensor> tensors;
  for (const double value : values) tensors.push_back(scalar(value));
  return PerReplica<at::Tensor>(std::move(tensors));
}

// All elements of a tensor; the elements of all components, one after the other.
inline Floats floats(const at::Tensor& value) {
  const auto flat = value.detach().to(at::kCPU, at::kDouble).contiguous().view({-1});
  return {flat.data_ptr<double>(), flat.data_ptr<double>() + flat.numel()};
}
inline Floats floats(const std::vector<at::Tensor>& values) {
  Floats all;
  for (const auto& value : values)
    for (const double item : floats(value)) all.push_back(item);
  return all;
}
inline Floats floats(const PerReplica<at::Tensor>& value) { return floats(value.values()); }
inline Floats floats(const Mirrored<at::Tensor>& value) { return floats(value.values()); }
inline Floats components(const Variable& variable) { return floats(variable.components()); }

inline Ints ints(const at::Tensor& value) {
  const auto flat = value.detach().to(at::kCPU, at::kLong).contiguous().view({-1});
  return {flat.data_ptr<std::int64_t>(), flat.data_ptr<std::int64_t>() + flat.numel()};
}

// Every component its own value, past all rules of writing.
inline void set_components(Variable& variable, const Floats& values) {
  const at::NoGradGuard no_grad;
  for (std::size_t i = 0; i < values.size(); ++i) variable.components().at(i).fill_(values[i]);
}

// A step of a distributed dataset: the first component of every replica's part.
using Step = std::vector<Ints>;

inline Step parts(const PerReplica<data::Element>& batch) {
  Step step;
  for (const auto& part : batch) step.push_back(ints(part[0]));
  return step;
}

inline std::vector<Step> steps(const DistributedDataset& distributed) {
  std::vector<Step> all;
  for (const auto& batch : distributed) all.push_back(parts(batch));
  return all;
}

inline std::vector<Ints> batches(const data::Dataset& dataset) {
  std::vector<Ints> all;
  for (const auto& element : dataset) all.push_back(ints(element[0]));
  return all;
}

}  // namespace lockstep::testing
