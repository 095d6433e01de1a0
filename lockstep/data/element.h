#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <initializer_list>
#include <iosfwd>
#include <string>
#include <utility>
#include <variant>
#include <vector>

namespace lockstep::data {

// Byte strings with a shape, as a tensor has numbers with a shape: a text line has no dimension, a batch of them one.
struct Bytes {
  std::vector<std::string> values = {};
  std::vector<std::int64_t> sizes = {};

  friend bool operator==(const Bytes&, const Bytes&) = default;
};

// One part of an element: a tensor or byte strings, with a name or without.
struct Component {
  std::string name = "";  // empty: found by its position only
  std::variant<at::Tensor, Bytes> value = {};

  bool is_bytes() const noexcept { return std::holds_alternative<Bytes>(value); }
  // These throw kInvalidArgument when the component is of the other kind.
  const at::Tensor& tensor() const;
  at::Tensor& tensor();
  const Bytes& bytes() const;

  // The dimensions, of either kind.
  std::vector<std::int64_t> sizes() const;
};

using NamedTensor = std::pair<std::string, at::Tensor>;

// One element of a dataset: an ordered list of components. Copying copies references, as with tensors.
// Names may contain dots for nesting: TensorFlow's {"a": x, "b": {"c": y}} has the components "a" and "b.c".
class Element {
 public:
  Element() = default;
  explicit Element(at::Tensor tensor);
  explicit Element(std::vector<at::Tensor> tensors);
  explicit Element(std::vector<Component> components) : components_(std::move(components)) {}
  Element(std::initializer_list<at::Tensor> tensors);
  Element(std::initializer_list<NamedTensor> tensors);

  std::size_t size() const noexcept { return components_.size(); }
  bool empty() const noexcept { return components_.empty(); }

  // The tensor at that position or of that name. Throws kOutOfRange past the end, kInvalidArgument for an unknown name
  // (saying which there are) and for byte strings.
  const at::Tensor& operator[](std::size_t position) const;
  const at::Tensor& at(const std::string& name) const;

  // The one byte string at that position. Throws as operator[], and kInvalidArgument when there are several.
  const std::string& text(std::size_t position = 0) const;

  // The name of every component; empty strings where there is none.
  std::vector<std::string> names() const;

  const std::vector<Component>& components() const noexcept { return components_; }
  std::vector<Component>& components() noexcept { return components_; }

  // Every tensor, in order, for lockstep::nest. Byte strings take no part in reductions or device copies.
  template <typename V>
  void lockstep_leaves(V&& visitor) {
    visit_leaves(*this, visitor);
  }
  template <typename V>
  void lockstep_leaves(V&& visitor) const {
    visit_leaves(*this, visitor);
  }

 private:
  template <typename Self, typename V>
  static void visit_leaves(Self& self, V& visitor) {
    if constexpr (requires { visitor.branch(std::string()); }) {
      visitor.branch("length " + std::to_string(self.size()));
      for (const auto& component : self.components_) visitor.branch("key " + component.name);
    }
    for (auto& component : self.components_) {
      if (!component.is_bytes()) visitor(std::get<at::Tensor>(component.value));
      else if constexpr (requires { visitor.bytes(std::get<Bytes>(component.value)); })
        visitor.bytes(std::get<Bytes>(component.value));
    }
  }

  std::vector<Component> components_;
};

// Throws kInvalidArgument unless there are as many values as its sizes say. `what` begins the message.
void require_whole(const Bytes& bytes, const char* what);

// With tensors of its own: what is done to them does not reach the other's.
Element copy_of(Element element);

// Short: "Element(image: float32 [64, 1, 28, 28], label: int64 [64])".
std::ostream& operator<<(std::ostream& out, const Element& element);

// "component 1" or "component 1 ('label')", for messages.
std::string name_component(const Element& element, std::size_t position);

// "[64, 1, 28, 28]".
std::string name_sizes(const std::vector<std::int64_t>& sizes);

// The dtype as TensorFlow writes it ("float32"), or "string".
std::string name_dtype(const Component& component);

}  // namespace lockstep::data
