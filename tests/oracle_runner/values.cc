#include "tests/oracle_runner/values.h"

#include <cmath>
#include <limits>

#include "tests/oracle_runner/digests.h"

namespace lockstep::oracle {
namespace {

const std::vector<std::pair<std::string, at::ScalarType>> kDtypes = {
    {"bool", at::kBool},     {"uint8", at::kByte},    {"int8", at::kChar},    {"int16", at::kShort},
    {"int32", at::kInt},     {"int64", at::kLong},    {"float16", at::kHalf}, {"bfloat16", at::kBFloat16},
    {"float32", at::kFloat}, {"float64", at::kDouble}};

at::ScalarType dtype_of(const std::string& name) {
  for (const auto& [text, dtype] : kDtypes)
    if (text == name) return dtype;
  throw NotApplicable("needs tensors of dtype " + name);
}

std::string name_of_dtype(at::ScalarType wanted) {
  for (const auto& [text, dtype] : kDtypes)
    if (dtype == wanted) return text;
  return at::toString(wanted);
}

double to_double(const Json& number) {
  if (number.is_number()) return number.get<double>();
  if (number.is_boolean()) return number.get<bool>() ? 1 : 0;
  const auto text = number.get<std::string>();
  if (text == "nan") return std::numeric_limits<double>::quiet_NaN();
  return (text == "-inf" ? -1 : 1) * std::numeric_limits<double>::infinity();
}

at::Tensor make_tensor(const std::vector<Json>& data, const std::vector<std::int64_t>& shape, at::ScalarType dtype) {
  const bool is_integral = at::isIntegralType(dtype, /*includeBool=*/true);
  auto flat = at::empty({static_cast<std::int64_t>(data.size())}, is_integral ? at::kLong : at::kDouble);
  for (std::size_t i = 0; i < data.size(); ++i) {
    if (!is_integral) flat.data_ptr<double>()[i] = to_double(data[i]);
    else flat.data_ptr<std::int64_t>()[i] = data[i].is_boolean() ? data[i].get<bool>() : data[i].get<std::int64_t>();
  }
  return flat.to(dtype).reshape(shape);
}

// The leaves of nested lists, and the lists' lengths.
void flatten(const Json& value, std::size_t depth, std::vector<Json>& data, std::vector<std::int64_t>& shape) {
  if (!value.is_array()) return data.push_back(value);
  if (shape.size() == depth) shape.push_back(static_cast<std::int64_t>(value.size()));
  for (const auto& item : value) flatten(item, depth + 1, data, shape);
}

Json number_to_json(double value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value > 0 ? "inf" : "-inf";
  return value;
}

Json bytes_to_json(const data::Bytes& bytes) {
  Json values = Json::array();
  for (const auto& text : bytes.values) values.push_back(text_to_json(text));
  return {{"dtype", "string"}, {"shape", bytes.sizes}, {"data", std::move(values)}};
}

Json component_to_json(const data::Component& component) {
  return component.is_bytes() ? bytes_to_json(component.bytes()) : to_json(component.tensor());
}

Json::json_pointer pointer_of(std::string name) {
  for (auto& letter : name)
    if (letter == '.') letter = '/';
  return Json::json_pointer("/" + name);
}

}  // namespace

bool is_tensor(const Json& value) { return value.is_object() && value.contains("dtype") && value.contains("data"); }
bool is_slices(const Json& value) { return value.is_object() && value.contains("indices") && value.contains("values"); }

Json text_to_json(const std::string& bytes) {
  try {
    const auto copy = Json::parse(Json(bytes).dump());  // throws where the bytes are not UTF-8
    return copy;
  } catch (const Json::exception&) {
    return {{"base64", base64_of(bytes)}};
  }
}

at::Tensor to_tensor(const Json& value, const std::string& dtype) {
  std::vector<Json> data;
  std::vector<std::int64_t> shape;
  flatten(value, 0, data, shape);
  return make_tensor(data, shape, dtype_of(dtype));
}

at::Tensor to_tensor(const Json& value) {
  if (is_tensor(value))
    return make_tensor(value.at("data").get<std::vector<Json>>(), value.at("shape").get<std::vector<std::int64_t>>(),
                       dtype_of(value.at("dtype").get<std::string>()));
  std::vector<Json> data;
  std::vector<std::int64_t> shape;
  flatten(value, 0, data, shape);
  bool is_integral = !data.empty();
  for (const auto& number : data) is_integral = is_integral && number.is_number_integer();
  return make_tensor(data, shape, is_integral ? at::kInt : at::kFloat);
}

IndexedSlices to_slices(const Json& value, std::int64_t rows) {
  IndexedSlices slices{to_tensor(value.at("values")), to_tensor(value.at("indices"))};
  if (rows > 0) {
    slices.dense_shape = slices.values.sizes().vec();
    slices.dense_shape.at(0) = rows;
  }
  return slices;
}

Nest to_nest(const Json& value) {
  if (is_slices(value)) return {to_slices(value)};
  if (is_tensor(value) || value.is_number()) return {to_tensor(value)};
  Nest nest;
  std::vector<Nest> items;
  for (const auto& item : value) items.push_back(to_nest(item));
  if (value.is_object())
    for (const auto& [key, item] : value.items()) nest.keys.push_back(key);
  nest.value = std::move(items);
  return nest;
}

std::vector<at::Tensor> to_tensors(const Json& values) {
  if (is_tensor(values)) return to_tensor(values).unbind(0);
  std::vector<at::Tensor> tensors;
  for (const auto& value : values) tensors.push_back(to_tensor(value));
  return tensors;
}

Json to_json(const at::Tensor& tensor) {
  Json data = Json::array();
  if (at::isIntegralType(tensor.scalar_type(), /*includeBool=*/true)) {
    const auto flat = tensor.detach().to(at::kCPU, at::kLong).contiguous();
    for (std::int64_t i = 0; i < flat.numel(); ++i) {
      const auto number = flat.data_ptr<std::int64_t>()[i];
      data.push_back(tensor.scalar_type() == at::kBool ? Json(number != 0) : Json(number));
    }
  } else {
    const auto flat = tensor.detach().to(at::kCPU, at::kDouble).contiguous();
    for (std::int64_t i = 0; i < flat.numel(); ++i) data.push_back(number_to_json(flat.data_ptr<double>()[i]));
  }
  return {{"dtype", name_of_dtype(tensor.scalar_type())}, {"shape", tensor.sizes().vec()}, {"data", std::move(data)}};
}

Json to_json(const IndexedSlices& slices) { return {{"indices", to_json(slices.indices)}, {"values", to_json(slices.values)}}; }

Json to_json(const Nest& nest) {
  if (const auto* tensor = std::get_if<at::Tensor>(&nest.value)) return to_json(*tensor);
  if (const auto* slices = std::get_if<IndexedSlices>(&nest.value)) return to_json(*slices);
  const auto list = list_to_json(std::get<std::vector<Nest>>(nest.value));
  if (nest.keys.empty()) return list;
  Json dict = Json::object();
  for (std::size_t i = 0; i < nest.keys.size(); ++i) dict[nest.keys[i]] = list[i];
  return dict;
}

Json to_json(const data::Element& element) {
  const auto& components = element.components();
  if (components.size() == 1 && components[0].name.empty()) return component_to_json(components[0]);
  const bool is_named = !components.empty() && !components[0].name.empty();
  Json value = is_named ? Json::object() : Json::array();
  for (const auto& component : components) {
    if (is_named) value[pointer_of(component.name)] = component_to_json(component);
    else value.push_back(component_to_json(component));
  }
  return value;
}

}  // namespace lockstep::oracle
