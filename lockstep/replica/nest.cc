#include "lockstep/replica/nest.h"

#include <ATen/ATen.h>

#include <deque>

#include "lockstep/base/error.h"
#include "lockstep/base/str.h"

namespace lockstep::internal {

struct LeafList::Numbers {
  struct Entry {
    at::Tensor tensor;
    void* to;
    void (*write)(void*, double);
    bool is_integral;
  };
  std::deque<Entry> entries;  // a deque: `dense` points into it
};

LeafList::LeafList() = default;
LeafList::~LeafList() = default;

void LeafList::add_number(double value, bool is_integral, void* to, void (*write)(void*, double)) {
  if (!numbers_) numbers_ = std::make_unique<Numbers>();
  auto tensor = at::scalar_tensor(value, at::kDouble);
  numbers_->entries.push_back({is_integral ? tensor.to(at::kLong) : tensor, to, write, is_integral});
  dense.push_back(&numbers_->entries.back().tensor);
}

void LeafList::write_back() {
  if (!numbers_) return;
  for (auto& entry : numbers_->entries) {
    if (entry.is_integral && !at::isIntegralType(entry.tensor.scalar_type(), false))
      throw Error(ErrorCode::kInvalidArgument,
                  "the mean of integers is not an integer; return a double or a tensor from the replicas, or use SUM");
    entry.write(entry.to, entry.tensor.item<double>());
  }
}

void LeafList::require_dense(const char* what) const {
  if (sparse.empty()) return;
  throw Error(ErrorCode::kUnimplemented,
              str(what, " does not support IndexedSlices; make them dense with to_dense(), or gather values and indices"));
}

}  // namespace lockstep::internal
