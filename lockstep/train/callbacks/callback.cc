#include "lockstep/train/callbacks/callback.h"

#include <algorithm>

#include "lockstep/base/str.h"

namespace lockstep {

Callbacks::Callbacks(std::initializer_list<Item> items) {
  for (const auto& item : items) add(item);
}

void Callbacks::add(const Item& item) {
  if (item.callback_ == nullptr)
    throw Error(ErrorCode::kInvalidArgument,
                str("callbacks: number ", list_.size(), " of the list, from 0, is a null pointer"));
  list_.push_back(item.callback_);
}

void Callbacks::put_in_order() {
  std::ranges::stable_sort(list_, {}, [](const auto& one) { return one->turn(); });
}

}  // namespace lockstep
