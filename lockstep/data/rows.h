#pragma once

#include <cstdint>
#include <vector>

#include "lockstep/data/element.h"

// Elements as batches: their components' first dimension counts rows.

namespace lockstep::data::internal {

// The rows of a batch. Throws kInvalidArgument naming the component that has no dimension, or the two whose numbers
// differ.
std::int64_t count_rows(const Element& batch);

// Rows [start, start + length), sharing memory with the batch.
Element narrow_rows(const Element& batch, std::int64_t start, std::int64_t length);

// The batch cut into parts of these sizes, which share its memory.
std::vector<Element> split_rows(const Element& batch, const std::vector<std::int64_t>& sizes);

// One batch after the other. Throws kInvalidArgument when the other dimensions or dtypes differ.
Element join_rows(const std::vector<Element>& batches);

// A batch of one row as an element of its own.
Element only_row(Element batch);
// Row `row` as an element of its own, sharing memory with the batch.
Element row_of(const Element& batch, std::int64_t row);

// The elements as rows of a new batch, where shorter ones are filled up with `value` to `shapes`, by component; -1, and a
// missing shape, are the longest of the batch. Byte strings are taken out of them. Throws kUnimplemented for byte strings of
// different shapes, kInvalidArgument when the numbers of dimensions differ, kDataLoss for an element that is larger.
Element stack_padded_rows(std::vector<Element>& elements, const std::vector<std::vector<std::int64_t>>& shapes = {},
                          double value = 0);

// The sizes of a batch of rows of these sizes.
std::vector<std::int64_t> with_rows(std::int64_t rows, at::IntArrayRef row_sizes);

// How many batches so many elements make; kInfinite and kUnknown stay what they are.
std::int64_t count_batches(std::int64_t elements, std::int64_t size, bool drop_remainder);

// Throws kInvalidArgument unless both have the same number of components, names and dtypes. `what` begins the message.
void require_same_structure(const Element& first, const Element& other, const char* what);

// Remembers how a stream's elements look, to make an element of no rows that fits them.
class RowShape {
 public:
  void learn(const Element& element);
  bool is_known() const noexcept { return !like_.empty(); }

  // No rows; the other dimensions as learned, 0 where elements differed; a scalar becomes a vector of length 0.
  Element empty() const;

 private:
  Element like_;                                  // for names and dtypes
  std::vector<std::vector<std::int64_t>> sizes_;  // of every component
};

}  // namespace lockstep::data::internal
