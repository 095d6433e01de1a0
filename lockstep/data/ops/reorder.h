#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "lockstep/data/node.h"

// What the operations share that only choose and reorder; see Note [row path] in node.h.

namespace lockstep::data::internal {

template <typename Item>
using StreamPtr = std::unique_ptr<Stream<Item>>;

template <typename Item>
StreamPtr<Item> open_as(const Node& node) {
  if constexpr (std::is_same_v<Item, Element>) return node.open();
  else if constexpr (std::is_same_v<Item, std::string>) return node.open_texts();
  else return node.open_rows();
}

// Items of a stream, in a position.
inline void put_item(PositionWriter& to, std::int64_t row) { to.put(row); }
inline void put_item(PositionWriter& to, const std::string& text) { to.put(std::string_view(text)); }
inline void put_item(PositionWriter& to, const Element& element) { to.put(element); }
template <typename Item>
Item take_item(PositionReader& from) {
  if constexpr (std::is_same_v<Item, Element>) return from.element();
  else if constexpr (std::is_same_v<Item, std::string>) return std::string(from.bytes());
  else return from.number();
}

// Derived::open_items<Item>() makes its stream for elements, row numbers and byte strings alike; Derived::on(input) is the same
// operation on another input.
template <typename Derived>
class ReorderNode : public UnaryNode {
 public:
  using UnaryNode::UnaryNode;

  StreamPtr<Element> open() const override { return derived().template open_items<Element>(); }
  StreamPtr<std::int64_t> open_rows() const override {
    if (!table()) return nullptr;
    return derived().template open_items<std::int64_t>();
  }
  std::shared_ptr<const Table> table() const override { return input().table(); }
  StreamPtr<std::string> open_texts() const override {
    if (!has_texts()) return nullptr;
    return derived().template open_items<std::string>();
  }
  bool has_texts() const override { return input().has_texts(); }
  StaticShape static_shape() const override { return input().static_shape(); }
  NodePtr with_inputs(std::vector<NodePtr> inputs) const override { return derived().on(std::move(inputs.at(0))); }

 private:
  const Derived& derived() const { return static_cast<const Derived&>(*this); }
};

}  // namespace lockstep::data::internal
