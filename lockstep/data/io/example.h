#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

// The bytes of a tf.train.Example: features by name, each a list of byte strings, float32 or int64 values. Read where they
// lie; nothing is built that is not asked for.

namespace lockstep::data {

enum class FeatureKind { kNone, kBytes, kFloat, kInt64 };

// "bytes", "float32", "int64", "nothing".
const char* name_of(FeatureKind kind) noexcept;

// One feature. The views end with the bytes of the example.
struct FeatureView {
  std::string_view name = {};
  FeatureKind kind = FeatureKind::kNone;
  std::string_view list = {};  // the list's own message
};

// Calls `visit` with every feature, in the order of the bytes (a name may come again: the last one counts). False when the
// bytes are no Example; then some may have been visited.
bool visit_features(std::string_view example, const std::function<void(const FeatureView&)>& visit);

// How many values a list has; -1 when it is damaged.
std::int64_t count_values(const FeatureView& feature);

// The values of a list of the right kind. False when it is damaged or has another number of values than there is room for.
bool read_values(const FeatureView& feature, std::span<std::int64_t> to);
bool read_values(const FeatureView& feature, std::span<float> to);
bool read_values(const FeatureView& feature, std::vector<std::string_view>& to);  // any number

// To write one, for example with a RecordWriter: serialize_example({{"label", std::vector<std::int64_t>{3}}, ...}).
using FeatureValues = std::variant<std::vector<std::string>, std::vector<float>, std::vector<std::int64_t>>;
std::string serialize_example(const std::vector<std::pair<std::string, FeatureValues>>& features);

}  // namespace lockstep::data
