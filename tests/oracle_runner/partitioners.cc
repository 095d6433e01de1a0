#include "lockstep/ps/partitioner.h"

#include "tests/oracle_runner/suites.h"
#include "tests/oracle_runner/values.h"

// Into how many shards partitioners divide variables.

namespace lockstep::oracle {
namespace {

using Ints = std::vector<std::int64_t>;

at::ScalarType to_dtype(const std::string& name) {
  if (name == "string") return at::ScalarType::Undefined;
  if (name == "complex64") return at::kComplexFloat;
  if (name == "complex128") return at::kComplexDouble;
  return to_tensor(Json::array(), name).scalar_type();
}

// A size that is not known is -1.
Ints to_shape(const Json& sizes) {
  Ints shape;
  for (const auto& size : sizes) shape.push_back(size.is_null() ? -1 : size.get<std::int64_t>());
  return shape;
}

std::optional<std::int64_t> find_number(const Json& arguments, const char* key) {
  const auto found = arguments.find(key);
  return found == arguments.end() || found->is_null() ? std::nullopt : std::optional(found->get<std::int64_t>());
}

Ints divide(const std::string& name, const Json& arguments, const Ints& shape, at::ScalarType dtype, int axis) {
  if (name == "FixedShardsPartitioner")
    return FixedShardsPartitioner(arguments.at("num_shards").get<std::int64_t>())(shape, dtype, axis);
  if (name == "MinSizePartitioner") {
    MinSizePartitionerOptions options;
    options.min_shard_bytes = find_number(arguments, "min_shard_bytes").value_or(options.min_shard_bytes);
    options.max_shards = find_number(arguments, "max_shards").value_or(options.max_shards);
    options.bytes_per_string = find_number(arguments, "bytes_per_string").value_or(options.bytes_per_string);
    return MinSizePartitioner(options)(shape, dtype, axis);
  }
  if (name != "MaxSizePartitioner") throw NotApplicable("needs " + name);
  MaxSizePartitionerOptions options{.max_shard_bytes = arguments.at("max_shard_bytes").get<std::int64_t>(),
                                    .max_shards = find_number(arguments, "max_shards")};
  options.bytes_per_string = find_number(arguments, "bytes_per_string").value_or(options.bytes_per_string);
  return MaxSizePartitioner(options)(shape, dtype, axis);
}

}  // namespace

Json answer_partitioners(const Case& one) {
  const auto& input = one.input;
  const auto name = input.at("partitioner").get<std::string>();
  const auto dtype = to_dtype(get_or<std::string>(input, "dtype", "float32"));
  const auto arguments = get_or<Json>(input, "args", Json::object());
  return {{"partitions", divide(name, arguments, to_shape(input.at("shape")), dtype, get_or(input, "axis", 0))}};
}

std::optional<Difference> difference_in_partitioners(const Case& one) {
  const auto is_below_one = [](const Json& value) { return value.is_number() && value.get<std::int64_t>() < 1; };
  const auto arguments = get_or<Json>(one.input, "args", Json::object());
  const std::vector<Json> refused = {{{"error", {{"code", "kInvalidArgument"}}}}};
  const bool is_max_size = one.input.at("partitioner") == "MaxSizePartitioner";
  // TensorFlow refuses the other options, and these below 0, itself.
  if (is_below_one(arguments.value("num_shards", Json())))
    return Difference{"less than one shard can only be a mistake (A8)", refused};
  if (is_max_size && arguments.value("max_shards", Json()) == 0)
    return Difference{"no shards at most can only be a mistake (A8)", refused};
  if (!is_max_size && std::ranges::any_of(one.input.at("shape"), [](const Json& size) { return size == 0; }))
    return Difference{"a variable with a dimension of size 0 cannot be divided (A8)", refused};
  return std::nullopt;
}

}  // namespace lockstep::oracle
