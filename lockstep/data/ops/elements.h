#pragma once

#include <vector>

#include "lockstep/data/node.h"

// Elements that are there already, as a dataset: what windows are made of.

namespace lockstep::data::internal {

NodePtr make_elements(std::vector<Element> elements);

template <typename Elements>
void put_elements(PositionWriter& to, const Elements& elements) {
  to.put(static_cast<std::int64_t>(elements.size()));
  for (const Element& element : elements) to.put(element);
}
std::vector<Element> take_elements(PositionReader& from);

}  // namespace lockstep::data::internal
