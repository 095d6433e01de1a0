#pragma once

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/data/dataset.h"
#include "tests/support/testing.h"

// What the tests of lockstep/data share.

namespace lockstep::data::testing {

using lockstep::testing::code_of;
using Ints = std::vector<std::int64_t>;

inline Ints ints(const at::Tensor& tensor) {
  const auto flat = tensor.to(at::kLong).contiguous().view({-1});
  return {flat.data_ptr<std::int64_t>(), flat.data_ptr<std::int64_t>() + flat.numel()};
}

inline at::Tensor vector(const Ints& values) { return at::tensor(values, at::kLong); }

// The first component of every element, flat.
inline std::vector<Ints> batches(const Dataset& dataset) {
  std::vector<Ints> all;
  for (const auto& element : dataset) all.push_back(ints(element[0]));
  return all;
}

// The first components of all elements, one after the other.
inline Ints values(const Dataset& dataset) {
  Ints all;
  for (const auto& batch : batches(dataset)) all.insert(all.end(), batch.begin(), batch.end());
  return all;
}

inline Ints numbers(std::int64_t count) {
  Ints all;
  for (std::int64_t i = 0; i < count; ++i) all.push_back(i);
  return all;
}

// Its text; empty when it does not throw one.
template <typename Body>
std::string text_of(Body body) {
  try {
    body();
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

}  // namespace lockstep::data::testing
