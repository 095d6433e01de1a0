#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "lockstep/data/element.h"

// Elements that become the rows of a batch.

namespace lockstep::data::internal {

// One component of all rows, which have equal shapes and dtypes. A row is copied to its place at once, so that its own memory
// can be used for the next one.
class ColumnStack {
 public:
  // `expected`: how many rows there will be, at most.
  explicit ColumnStack(std::int64_t expected) : expected_(expected) {}

  // Byte strings are taken out of the row.
  void add(Component& row);
  Component take() &&;

 private:
  void add_tensor(const at::Tensor& row);
  void make_room(const at::Tensor& row);
  void stop_copying();

  std::int64_t expected_;
  std::int64_t rows_ = 0;
  std::string name_;
  bool is_bytes_ = false;
  Bytes bytes_;
  at::Tensor tensor_;              // its first rows_ rows are filled
  std::vector<at::Tensor> loose_;  // all rows, when they are on other devices or have gradients
};

class RowStack {
 public:
  explicit RowStack(std::int64_t expected) : expected_(expected) {}

  // Throws kInvalidArgument naming the component and both shapes when they differ, or what else differs.
  void add(Element element);
  std::int64_t rows() const noexcept { return rows_; }
  Element take() &&;

 private:
  std::int64_t expected_;
  std::int64_t rows_ = 0;
  Element first_;  // for names, dtypes and shapes
  std::vector<ColumnStack> columns_;
};

}  // namespace lockstep::data::internal
