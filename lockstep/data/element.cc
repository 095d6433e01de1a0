#include "lockstep/data/element.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cstdint>
#include <limits>
#include <ostream>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/base/str.h"

namespace lockstep::data {
namespace {

[[noreturn]] void throw_no_component(std::size_t position, std::size_t size) {
  throw Error(ErrorCode::kOutOfRange,
              lockstep::str("component ", position, " of an element with ", size, " components; they are counted from 0"));
}

}  // namespace

const at::Tensor& Component::tensor() const {
  if (is_bytes())
    throw Error(ErrorCode::kInvalidArgument,
                lockstep::str("the component '", name, "' is byte strings, not a tensor; they are components()[i].bytes()"));
  return std::get<at::Tensor>(value);
}

at::Tensor& Component::tensor() { return const_cast<at::Tensor&>(std::as_const(*this).tensor()); }

const Bytes& Component::bytes() const {
  if (!is_bytes())
    throw Error(ErrorCode::kInvalidArgument,
                lockstep::str("the component '", name, "' is a tensor, not byte strings; read it with tensor()"));
  return std::get<Bytes>(value);
}

std::vector<std::int64_t> Component::sizes() const {
  return is_bytes() ? std::get<Bytes>(value).sizes : std::get<at::Tensor>(value).sizes().vec();
}

Element::Element(at::Tensor tensor) { components_.push_back({"", std::move(tensor)}); }

Element::Element(std::vector<at::Tensor> tensors) {
  for (auto& tensor : tensors) components_.push_back({"", std::move(tensor)});
}

Element::Element(std::initializer_list<at::Tensor> tensors) : Element(std::vector<at::Tensor>(tensors)) {}

Element::Element(std::initializer_list<NamedTensor> tensors) {
  for (const auto& [name, tensor] : tensors) components_.push_back({name, tensor});
}

const at::Tensor& Element::operator[](std::size_t position) const {
  if (position >= components_.size()) throw_no_component(position, components_.size());
  return components_[position].tensor();
}

const std::string& Element::text(std::size_t position) const {
  if (position >= components_.size()) throw_no_component(position, components_.size());
  const auto& strings = components_[position].bytes();
  if (strings.values.size() != 1)
    throw Error(ErrorCode::kInvalidArgument,
                lockstep::str(name_component(*this, position), " has ", strings.values.size(),
                              " strings, where one was asked for; its shape is ", name_sizes(strings.sizes)));
  return strings.values[0];
}

const at::Tensor& Element::at(const std::string& name) const {
  const auto found = std::ranges::find(components_, name, &Component::name);
  if (found == components_.end() || name.empty())
    throw Error(ErrorCode::kInvalidArgument,
                lockstep::str("the element has no component '", name, "'; its names are: ", join(", ", names())));
  return found->tensor();
}

std::vector<std::string> Element::names() const {
  std::vector<std::string> names;
  for (const auto& component : components_) names.push_back(component.name);
  return names;
}

std::string name_component(const Element& element, std::size_t position) {
  const auto& name = element.components().at(position).name;
  return name.empty() ? lockstep::str("component ", position) : lockstep::str("component ", position, " ('", name, "')");
}

std::string name_sizes(const std::vector<std::int64_t>& sizes) { return lockstep::str("[", join(", ", sizes), "]"); }

std::string name_dtype(const Component& component) {
  if (component.is_bytes()) return "string";
  if (!component.tensor().defined()) return "undefined";
  switch (component.tensor().scalar_type()) {
    case at::kFloat: return "float32";
    case at::kDouble: return "float64";
    case at::kHalf: return "float16";
    case at::kBFloat16: return "bfloat16";
    case at::kByte: return "uint8";
    case at::kChar: return "int8";
    case at::kShort: return "int16";
    case at::kInt: return "int32";
    case at::kLong: return "int64";
    case at::kBool: return "bool";
    default: return at::toString(component.tensor().scalar_type());
  }
}

void require_whole(const Bytes& bytes, const char* what) {
  std::uint64_t wanted = 1;
  for (const auto size : bytes.sizes) {
    // More than there are can only be wrong, whatever follows.
    if (size < 0 || (size > 0 && wanted > std::numeric_limits<std::uint64_t>::max() / static_cast<std::uint64_t>(size)))
      wanted = 0;
    wanted *= static_cast<std::uint64_t>(std::max<std::int64_t>(0, size));
  }
  if (wanted != bytes.values.size())
    throw Error(ErrorCode::kInvalidArgument, lockstep::str(what, ": ", bytes.values.size(), " byte strings of the shape ",
                                                           name_sizes(bytes.sizes), "; the sizes must say how many there are"));
}

Element copy_of(Element element) {
  for (auto& component : element.components())
    if (!component.is_bytes()) component.value = component.tensor().clone();
  return element;
}

std::ostream& operator<<(std::ostream& out, const Element& element) {
  out << "Element(";
  const char* comma = "";
  for (const auto& component : element.components()) {
    out << comma;
    if (!component.name.empty()) out << component.name << ": ";
    out << name_dtype(component);
    if (component.is_bytes() || component.tensor().defined()) out << " " << name_sizes(component.sizes());
    comma = ", ";
  }
  return out << ")";
}

}  // namespace lockstep::data
