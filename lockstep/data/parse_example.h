#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/data/element.h"
#include "lockstep/data/io/example.h"

// Elements from tf.train.Example, the usual content of TFRecord files.
//
//   const data::ExampleParser parse({data::Feature::raw("image", at::kByte, {1, 28, 28}), data::Feature::int64("label")});
//   auto dataset = data::Dataset::tf_record(files).batch(128).map(parse);

namespace lockstep::data {

// What is to be read of one feature: the component of that name. The number of values must be that of `shape`.
class Feature {
 public:
  static Feature int64(std::string name, std::vector<std::int64_t> shape = {});
  static Feature float32(std::string name, std::vector<std::int64_t> shape = {});
  static Feature bytes(std::string name, std::vector<std::int64_t> shape = {});
  // One byte string that holds the values of a tensor, row-major, in this machine's order of bytes.
  static Feature raw(std::string name, at::ScalarType dtype, std::vector<std::int64_t> shape);

  // For examples that do not have the feature, which are an error without it.
  Feature or_else(double value) const;
  Feature or_else(std::string value) const;
  // Any number of values of this shape: one dimension more. In a batch shorter ones are filled up, with the default or 0.
  Feature sequence() const;

 private:
  friend class ExampleParser;

  std::string name_;
  FeatureKind kind_ = FeatureKind::kNone;
  at::ScalarType dtype_ = at::ScalarType::Undefined;  // of a tensor; Undefined: byte strings
  std::vector<std::int64_t> shape_;
  bool is_raw_ = false;
  bool is_sequence_ = false;
  std::optional<double> number_;
  std::optional<std::string> text_;
};

// For map(), before batch() or, much faster, after it. Throws kInvalidArgument for bytes that are no Example, a feature that is
// missing, of another type, or has another number of values, saying which and in which row.
class ExampleParser {
 public:
  // Throws kInvalidArgument for a name that comes twice, and shapes that make no sense.
  explicit ExampleParser(std::vector<Feature> features);

  Element operator()(const Bytes& examples) const;

 private:
  class Batch;

  std::vector<Feature> features_;
  std::map<std::string, std::size_t, std::less<>> positions_;
};

// The values of a tensor out of each byte string, row-major: [n strings] becomes [n, shape...].
at::Tensor decode_raw(const Bytes& strings, at::ScalarType dtype, const std::vector<std::int64_t>& shape);

}  // namespace lockstep::data
