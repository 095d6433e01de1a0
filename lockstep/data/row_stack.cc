#include "lockstep/data/row_stack.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cstring>
#include <iterator>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/base/str.h"
#include "lockstep/data/batch_memory.h"
#include "lockstep/data/rows.h"

namespace lockstep::data::internal {
namespace {

// What a batch takes before it is known how many rows come; it grows.
constexpr std::int64_t kFirstBytes = std::int64_t{16} << 20;

bool can_be_copied(const at::Tensor& tensor) {
  return tensor.device().is_cpu() && tensor.layout() == at::kStrided && !tensor.requires_grad() && !tensor.is_conj() &&
         !tensor.is_neg();
}

// Of components of the same kind.
bool has_same_sizes(const Component& a, const Component& b) {
  return a.is_bytes() ? a.bytes().sizes == b.bytes().sizes : a.tensor().sizes() == b.tensor().sizes();
}

void require_same_shape(const Element& first, const Element& other, std::size_t position, std::int64_t index) {
  const auto& expected = first.components()[position];
  const auto& found = other.components()[position];
  if (has_same_sizes(expected, found)) return;
  throw Error(ErrorCode::kInvalidArgument,
              lockstep::str("batch: the elements differ in shape in ", name_component(first, position), ": the first is ",
                            name_sizes(expected.sizes()), ", element ", index, " of the batch is ", name_sizes(found.sizes()),
                            "; use padded_batch, or map them to one shape"));
}

}  // namespace

void ColumnStack::add(Component& row) {
  if (rows_ == 0) {
    name_ = row.name;
    is_bytes_ = row.is_bytes();
    if (is_bytes_) bytes_.sizes = row.bytes().sizes;
  }
  if (is_bytes_) require_whole(row.bytes(), "batch");
  if (is_bytes_) std::ranges::move(std::get<Bytes>(row.value).values, std::back_inserter(bytes_.values));
  else add_tensor(row.tensor());
  ++rows_;
}

// On one core: at::stack would wake the intra-op threads that the replicas compute with.
void ColumnStack::add_tensor(const at::Tensor& row) {
  if (!loose_.empty() || !can_be_copied(row)) {
    if (loose_.empty()) stop_copying();
    return loose_.push_back(row);
  }
  make_room(row);
  const auto plain = row.expect_contiguous();
  const auto bytes = plain->nbytes();
  if (bytes > 0)
    std::memcpy(static_cast<char*>(tensor_.data_ptr()) + static_cast<std::size_t>(rows_) * bytes, plain->data_ptr(), bytes);
}

void ColumnStack::make_room(const at::Tensor& row) {
  const auto room = tensor_.defined() ? tensor_.size(0) : 0;
  if (rows_ < room) return;
  const auto bytes = std::max<std::int64_t>(1, static_cast<std::int64_t>(row.nbytes()));
  const auto wanted = std::min(expected_, room == 0 ? std::max<std::int64_t>(1, kFirstBytes / bytes) : 2 * room);
  auto larger = new_batch(with_rows(wanted, row.sizes()), row.options());
  if (room > 0 && tensor_.nbytes() > 0) std::memcpy(larger.data_ptr(), tensor_.data_ptr(), tensor_.nbytes());
  tensor_ = std::move(larger);
}

void ColumnStack::stop_copying() {
  for (std::int64_t row = 0; row < rows_; ++row) loose_.push_back(tensor_.select(0, row));
}

Component ColumnStack::take() && {
  if (is_bytes_) {
    bytes_.sizes.insert(bytes_.sizes.begin(), rows_);
    return {std::move(name_), std::move(bytes_)};
  }
  if (!loose_.empty()) return {std::move(name_), at::stack(loose_)};
  if (tensor_.size(0) > rows_) tensor_ = tensor_.narrow(0, 0, rows_).clone();
  return {std::move(name_), std::move(tensor_)};
}

void RowStack::add(Element element) {
  if (rows_ == 0) {
    columns_.assign(element.size(), ColumnStack(expected_));
    first_ = element;
  } else {
    require_same_structure(first_, element, "batch");
    for (std::size_t c = 0; c < columns_.size(); ++c) require_same_shape(first_, element, c, rows_);
  }
  for (std::size_t c = 0; c < columns_.size(); ++c) columns_[c].add(element.components()[c]);
  ++rows_;
}

Element RowStack::take() && {
  std::vector<Component> components;
  components.reserve(columns_.size());
  for (auto& column : columns_) components.push_back(std::move(column).take());
  return Element(std::move(components));
}

}  // namespace lockstep::data::internal
