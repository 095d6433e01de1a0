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
  if (!item.ignores_batches_) watchers_.push_back(item.callback_);
}

std::vector<std::shared_ptr<Callback>> Callbacks::batch_level() const {
  std::vector<std::shared_ptr<Callback>> found;
  std::ranges::copy_if(watchers_, std::back_inserter(found), [](const auto& one) { return !one->can_be_late(); });
  return found;
}

void Callbacks::put_in_order() {
  std::ranges::stable_sort(list_, {}, [](const auto& one) { return one->turn(); });
}

}  // namespace lockstep
