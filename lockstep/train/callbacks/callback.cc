#include "lockstep/train/callbacks/callback.h"

#include <algorithm>

namespace lockstep {

Callbacks::Callbacks(std::initializer_list<Item> items) {
  for (const auto& item : items) add(item);
}

void Callbacks::add(const Item& item) {
  require(item.callback_ != nullptr, "callbacks: one of them is a null pointer");
  list_.push_back(item.callback_);
}

void Callbacks::put_in_order() {
  std::ranges::stable_partition(list_, [](const auto& callback) { return !callback->keeps_training(); });
  std::ranges::stable_partition(list_, [](const auto& callback) { return callback->checks_training(); });
}

}  // namespace lockstep
