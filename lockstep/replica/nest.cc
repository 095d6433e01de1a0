#include "lockstep/replica/nest.h"

#include <ATen/ATen.h>

#include <deque>

#include "lockstep/base/error.h"
#include "lockstep/base/str.h"
#include "lockstep/split/split_tensor.h"

namespace lockstep::internal {

struct LeafList::Numbers {
  struct Entry {
    at::Tensor tensor;
    void* to;
    void (*write_real)(void*, double);
    void (*write_integer)(void*, std::int64_t);
  };
  std::deque<Entry> entries;  // a deque: `dense` points into it
};

LeafList::LeafList() = default;
LeafList::~LeafList() = default;

void LeafList::operator()(at::Tensor& leaf) {
  if (split::find_value(leaf) != nullptr) leaf = split::whole(leaf);
  dense.push_back(&leaf);
}

void LeafList::add_integer(std::int64_t value, void* to, void (*write)(void*, std::int64_t)) {
  if (!numbers_) numbers_ = std::make_unique<Numbers>();
  numbers_->entries.push_back({at::scalar_tensor(value, at::kLong), to, nullptr, write});
  dense.push_back(&numbers_->entries.back().tensor);
}

void LeafList::add_real(double value, void* to, void (*write)(void*, double)) {
  if (!numbers_) numbers_ = std::make_unique<Numbers>();
  numbers_->entries.push_back({at::scalar_tensor(value, at::kDouble), to, write, nullptr});
  dense.push_back(&numbers_->entries.back().tensor);
}

void LeafList::write_back() {
  if (!numbers_) return;
  for (auto& entry : numbers_->entries) {
    if (entry.write_real != nullptr) {
      entry.write_real(entry.to, entry.tensor.item<double>());
      continue;
    }
    if (!at::isIntegralType(entry.tensor.scalar_type(), false))
      throw Error(ErrorCode::kInvalidArgument,
                  "the mean of integers is not an integer; return a double or a tensor from the replicas, or use SUM");
    entry.write_integer(entry.to, entry.tensor.item<std::int64_t>());
  }
}

std::int64_t LeafList::structure() const { return static_cast<std::int64_t>(std::hash<std::string>()(join("\n", branches))); }

void LeafList::require_dense(const char* what) const {
  if (sparse.empty()) return;
  throw Error(ErrorCode::kUnimplemented,
              str(what, " does not support IndexedSlices; make them dense with to_dense(), or gather values and indices"));
}

}  // namespace lockstep::internal
