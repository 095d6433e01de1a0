#include "lockstep/data/parse_example.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cstring>
#include <functional>
#include <numeric>
#include <span>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/base/str.h"
#include "lockstep/data/batch_memory.h"

namespace lockstep::data {
namespace {

std::int64_t count_of(const std::vector<std::int64_t>& shape) {
  return std::accumulate(shape.begin(), shape.end(), std::int64_t{1}, std::multiplies<>());
}

// Whether a tensor can have this shape: no size below 0, and few enough values to be counted and addressed.
bool makes_sense(const std::vector<std::int64_t>& shape) {
  constexpr std::int64_t kMost = std::int64_t{1} << 48;
  std::int64_t count = 1;
  return std::ranges::all_of(shape, [&](std::int64_t size) {
    return size >= 0 && !__builtin_mul_overflow(count, std::max<std::int64_t>(size, 1), &count) && count <= kMost;
  });
}

template <typename T>
std::vector<T> joined(std::vector<T> first, const std::vector<T>& rest) {
  first.insert(first.end(), rest.begin(), rest.end());
  return first;
}

template <typename T>
std::span<T> values_of(at::Tensor& tensor, std::int64_t first, std::int64_t count) {
  return {tensor.data_ptr<T>() + first, static_cast<std::size_t>(count)};
}

// False when it is damaged, or has another number of values.
bool read_numbers(const FeatureView& list, at::Tensor& to, std::int64_t first, std::int64_t count) {
  return list.kind == FeatureKind::kInt64 ? read_values(list, values_of<std::int64_t>(to, first, count))
                                          : read_values(list, values_of<float>(to, first, count));
}

}  // namespace

Feature Feature::int64(std::string name, std::vector<std::int64_t> shape) {
  Feature feature;
  feature.name_ = std::move(name);
  feature.kind_ = FeatureKind::kInt64;
  feature.dtype_ = at::kLong;
  feature.shape_ = std::move(shape);
  return feature;
}

Feature Feature::float32(std::string name, std::vector<std::int64_t> shape) {
  auto feature = int64(std::move(name), std::move(shape));
  feature.kind_ = FeatureKind::kFloat;
  feature.dtype_ = at::kFloat;
  return feature;
}

Feature Feature::bytes(std::string name, std::vector<std::int64_t> shape) {
  auto feature = int64(std::move(name), std::move(shape));
  feature.kind_ = FeatureKind::kBytes;
  feature.dtype_ = at::ScalarType::Undefined;
  return feature;
}

Feature Feature::raw(std::string name, at::ScalarType dtype, std::vector<std::int64_t> shape) {
  auto feature = bytes(std::move(name), std::move(shape));
  feature.dtype_ = dtype;
  feature.is_raw_ = true;
  return feature;
}

Feature Feature::or_else(double value) const {
  auto feature = *this;
  feature.number_ = value;
  return feature;
}

Feature Feature::or_else(std::string value) const {
  auto feature = *this;
  feature.text_ = std::move(value);
  return feature;
}

Feature Feature::sequence() const {
  auto feature = *this;
  feature.is_sequence_ = true;
  return feature;
}

ExampleParser::ExampleParser(std::vector<Feature> features) : features_(std::move(features)) {
  for (std::size_t f = 0; f < features_.size(); ++f) {
    const auto& feature = features_[f];
    const bool has_default = feature.dtype_ == at::ScalarType::Undefined ? !feature.number_ : !feature.text_;
    if (!positions_.emplace(feature.name_, f).second || !makes_sense(feature.shape_) || !has_default ||
        (feature.is_raw_ && feature.is_sequence_))
      throw Error(ErrorCode::kInvalidArgument,
                  lockstep::str("parse_example: the feature '", feature.name_, "' of shape ", name_sizes(feature.shape_),
                                " comes twice, has a size below 0 or sizes beyond any memory, a default of another type, or is "
                                "a sequence of raw tensors"));
  }
}

// The examples of one call: first what each has is found, then it is read to where it belongs.
class ExampleParser::Batch {
 public:
  Batch(const ExampleParser& parser, const Bytes& examples)
      : parser_(parser), examples_(examples), rows_(examples.values.size()), found_(rows_ * parser.features_.size()) {
    require_whole(examples, "parse_example");
    for (std::size_t row = 0; row < rows_; ++row) find_features(row);
  }

  Element read() const {
    std::vector<Component> components;
    for (std::size_t f = 0; f < parser_.features_.size(); ++f) {
      const auto& feature = parser_.features_[f];
      if (feature.dtype_ == at::ScalarType::Undefined) components.push_back({feature.name_, read_strings(f)});
      else if (feature.is_raw_) components.push_back({feature.name_, read_raw(f)});
      else components.push_back({feature.name_, read_tensor(f)});
    }
    return Element(std::move(components));
  }

 private:
  void find_features(std::size_t row) {
    const auto take = [&](const FeatureView& view) {
      const auto wanted = parser_.positions_.find(view.name);
      if (wanted != parser_.positions_.end()) found_[row * parser_.features_.size() + wanted->second] = view;
    };
    if (!visit_features(examples_.values[row], take))
      throw Error(ErrorCode::kInvalidArgument, lockstep::str("parse_example: row ", row, " is no tf.train.Example"));
  }

  // Null: the example does not have it.
  const FeatureView* list_of(std::size_t row, std::size_t f) const {
    const auto& view = found_[row * parser_.features_.size() + f];
    if (view.kind == FeatureKind::kNone) return nullptr;
    if (view.kind != parser_.features_[f].kind_)
      throw Error(ErrorCode::kInvalidArgument, lockstep::str(where(row, f), " is ", name_of(view.kind), ", and ",
                                                             name_of(parser_.features_[f].kind_), " was asked for"));
    return &view;
  }

  std::string where(std::size_t row, std::size_t f) const {
    return lockstep::str("parse_example: the feature '", parser_.features_[f].name_, "' of row ", row);
  }

  [[noreturn]] void throw_missing(std::size_t row, std::size_t f) const {
    throw Error(ErrorCode::kInvalidArgument, lockstep::str(where(row, f), " is missing; or_else() gives a default"));
  }

  [[noreturn]] void throw_damaged(std::size_t row, std::size_t f) const {
    throw Error(ErrorCode::kInvalidArgument, lockstep::str(where(row, f), " is damaged"));
  }

  // How many values the row has, which must be right.
  std::int64_t count_in(std::size_t row, std::size_t f, const FeatureView& list) const {
    const auto& feature = parser_.features_[f];
    const auto each = count_of(feature.shape_);
    const auto count = count_values(list);
    const bool fits = feature.is_sequence_ ? each > 0 && count % each == 0 : count == each;
    if (count < 0 || !fits)
      throw Error(ErrorCode::kInvalidArgument,
                  lockstep::str(where(row, f), count < 0 ? " is damaged"
                                                         : lockstep::str(" has ", count, " values, and the shape ",
                                                                         name_sizes(feature.shape_), " asks for ", each)));
    return count;
  }

  // Values in the longest row.
  std::int64_t longest(std::size_t f) const {
    std::int64_t values = 0;
    for (std::size_t row = 0; row < rows_; ++row)
      if (const auto* list = list_of(row, f)) values = std::max(values, count_in(row, f, *list));
    return values;
  }

  // The shape of the component: rows, steps of a sequence, and the feature's own.
  std::vector<std::int64_t> shape_of(std::size_t f, std::int64_t values) const {
    const auto& feature = parser_.features_[f];
    auto shape = examples_.sizes;
    if (feature.is_sequence_) shape.push_back(values / std::max<std::int64_t>(1, count_of(feature.shape_)));
    return joined(std::move(shape), feature.shape_);
  }

  at::Tensor read_tensor(std::size_t f) const {
    const auto& feature = parser_.features_[f];
    const auto values = feature.is_sequence_ ? longest(f) : count_of(feature.shape_);
    auto tensor = feature.is_sequence_ || feature.number_
                      ? at::full(shape_of(f, values), feature.number_.value_or(0), feature.dtype_)
                      : internal::new_batch(shape_of(f, values), feature.dtype_);
    for (std::size_t row = 0; row < rows_; ++row) {
      const auto* list = list_of(row, f);
      if (list == nullptr && !feature.number_ && !feature.is_sequence_) throw_missing(row, f);
      if (list == nullptr) continue;
      const auto first = static_cast<std::int64_t>(row) * values;
      // Another number of values is right only in a sequence; else counting says what is wrong.
      if (feature.is_sequence_ || !read_numbers(*list, tensor, first, values))
        if (!read_numbers(*list, tensor, first, count_in(row, f, *list))) throw_damaged(row, f);
    }
    return tensor;
  }

  at::Tensor read_raw(std::size_t f) const {
    const auto& feature = parser_.features_[f];
    auto tensor = internal::new_batch(shape_of(f, 0), feature.dtype_);
    const auto each = static_cast<std::size_t>(count_of(feature.shape_)) * c10::elementSize(feature.dtype_);
    auto* to = static_cast<char*>(tensor.data_ptr());
    std::vector<std::string_view> strings;
    for (std::size_t row = 0; row < rows_; ++row, to += each) {
      const auto* list = list_of(row, f);
      if (list == nullptr) throw_missing(row, f);
      if (!read_values(*list, strings)) throw_damaged(row, f);
      if (strings.size() != 1)
        throw Error(ErrorCode::kInvalidArgument,
                    lockstep::str(where(row, f), " must be one byte string, and is ", strings.size()));
      if (strings[0].size() != each)
        throw Error(ErrorCode::kInvalidArgument,
                    lockstep::str(where(row, f), " has ", strings[0].size(), " bytes, and a tensor of shape ",
                                  name_sizes(feature.shape_), " has ", each));
      if (each > 0) std::memcpy(to, strings[0].data(), each);
    }
    return tensor;
  }

  Bytes read_strings(std::size_t f) const {
    const auto& feature = parser_.features_[f];
    const auto values = feature.is_sequence_ ? longest(f) : count_of(feature.shape_);
    Bytes strings{{}, shape_of(f, values)};
    strings.values.resize(rows_ * static_cast<std::size_t>(values), feature.text_.value_or(""));
    std::vector<std::string_view> list_values;
    for (std::size_t row = 0; row < rows_; ++row) {
      const auto* list = list_of(row, f);
      if (list != nullptr) {
        count_in(row, f, *list);
        list_values.clear();
        read_values(*list, list_values);
        std::ranges::copy(list_values, strings.values.begin() + static_cast<std::ptrdiff_t>(row) * values);
      } else if (!feature.text_ && !feature.is_sequence_) {
        throw_missing(row, f);
      }
    }
    return strings;
  }

  const ExampleParser& parser_;
  const Bytes& examples_;
  const std::size_t rows_;
  std::vector<FeatureView> found_;  // by row, then by feature
};

Element ExampleParser::operator()(const Bytes& examples) const { return Batch(*this, examples).read(); }

at::Tensor decode_raw(const Bytes& strings, at::ScalarType dtype, const std::vector<std::int64_t>& shape) {
  require_whole(strings, "decode_raw");
  if (!makes_sense(shape))
    throw Error(ErrorCode::kInvalidArgument,
                lockstep::str("decode_raw: the shape ", name_sizes(shape), " has a size below 0 or sizes beyond any memory"));
  auto tensor = internal::new_batch(joined(strings.sizes, shape), dtype);
  const auto each = static_cast<std::size_t>(count_of(shape)) * c10::elementSize(dtype);
  auto* to = static_cast<char*>(tensor.data_ptr());
  for (std::size_t i = 0; i < strings.values.size(); ++i, to += each) {
    if (strings.values[i].size() != each)
      throw Error(ErrorCode::kInvalidArgument,
                  lockstep::str("decode_raw: string ", i, " has ", strings.values[i].size(), " bytes, and a tensor of shape ",
                                name_sizes(shape), " has ", each));
    if (each > 0) std::memcpy(to, strings.values[i].data(), each);
  }
  return tensor;
}

}  // namespace lockstep::data
