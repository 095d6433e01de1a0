#pragma once

#include <ATen/ATen.h>

#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "lockstep/collective/indexed_slices.h"
#include "lockstep/data/element.h"
#include "lockstep/replica/distributed_values.h"
#include "tests/oracle_runner/case.h"

// The oracle's notation for values, both ways.

namespace lockstep::oracle {

bool is_tensor(const Json& value);
bool is_slices(const Json& value);

// {"dtype", "shape", "data"}; or what TensorFlow makes of a Python number or list: int32, or float32.
at::Tensor to_tensor(const Json& value);
// A Python number or list with a given dtype.
at::Tensor to_tensor(const Json& value, const std::string& dtype);
// {"indices", "values"}. `rows`: of the dense tensor, 0 when it does not matter.
IndexedSlices to_slices(const Json& value, std::int64_t rows = 0);

// A structure whose form is only known at run time: a tensor, an IndexedSlices, a list, or (with keys) a dict.
struct Nest {
  std::variant<at::Tensor, IndexedSlices, std::vector<Nest>> value = {};
  std::vector<std::string> keys = {};

  // For lockstep::nest.
  template <typename V>
  void lockstep_leaves(V&& visitor) {
    if (auto* tensor = std::get_if<at::Tensor>(&value)) return visitor(*tensor);
    if (auto* slices = std::get_if<IndexedSlices>(&value)) return visitor(*slices);
    auto& items = std::get<std::vector<Nest>>(value);
    if constexpr (requires { visitor.branch(std::string()); }) {
      visitor.branch("length " + std::to_string(items.size()));
      for (const auto& key : keys) visitor.branch("key " + key);
    }
    for (auto& item : items) item.lockstep_leaves(visitor);
  }
};

Nest to_nest(const Json& value);

Json to_json(const at::Tensor& tensor);
// Text, or {"base64"} where the bytes are not UTF-8.
Json text_to_json(const std::string& bytes);
Json to_json(const IndexedSlices& slices);
Json to_json(const Nest& nest);
// One component is itself, several are a list, named ones a dict ("b.c" is c inside b).
Json to_json(const data::Element& element);
inline Json to_json(const Json& value) { return value; }
template <typename T>
Json to_json(const PerReplica<T>& value);
template <typename T>
Json to_json(const Mirrored<T>& value);

template <typename T>
Json list_to_json(const std::vector<T>& values) {
  Json list = Json::array();
  for (const auto& value : values) list.push_back(to_json(value));
  return list;
}
template <typename T>
Json to_json(const PerReplica<T>& value) {
  return list_to_json(value.values());
}
template <typename T>
Json to_json(const Mirrored<T>& value) {
  return list_to_json(value.values());
}

// One tensor for each entry of a list, or for each row of a tensor.
std::vector<at::Tensor> to_tensors(const Json& values);

// Calls fn with the replicas' values as the narrowest C++ type that holds them.
template <typename F>
Json with_values(const Json& values, F&& fn, std::int64_t rows = 0) {
  if (is_slices(values.at(0))) {
    std::vector<IndexedSlices> slices;
    for (const auto& value : values) slices.push_back(to_slices(value, rows));
    return fn(PerReplica<IndexedSlices>(std::move(slices)));
  }
  if (is_tensor(values.at(0)) || values.at(0).is_number()) return fn(PerReplica<at::Tensor>(to_tensors(values)));
  std::vector<Nest> nests;
  for (const auto& value : values) nests.push_back(to_nest(value));
  return fn(PerReplica<Nest>(std::move(nests)));
}

}  // namespace lockstep::oracle
