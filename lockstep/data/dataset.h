#pragma once

#include <cstdint>
#include <exception>
#include <functional>
#include <iosfwd>
#include <iterator>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "lockstep/data/call_element.h"
#include "lockstep/data/element.h"
#include "lockstep/data/node.h"
#include "lockstep/data/options.h"

namespace lockstep::data {

// One pass over a dataset's elements. One thread at a time.
class Iterator {
 public:
  explicit Iterator(std::unique_ptr<internal::Stream<Element>> stream) : stream_(std::move(stream)) {}

  // The next element; false at the end. Throws what a function of the pipeline threw; after that, always the same error.
  bool next(Element& out);
  std::optional<Element> next();

 private:
  std::unique_ptr<internal::Stream<Element>> stream_;
  std::exception_ptr failure_;
};

// A sequence of elements and how to make them: a source and operations on it. A value: copies share the description, and
// every operation gives a new dataset. Nothing is computed until it is iterated; each iteration is a new pass.
//
//   auto dataset = data::Dataset::from_tensor_slices({images, labels}).shuffle(10'000, 42).batch(64);
//   for (const data::Element& batch : dataset) train(batch[0], batch[1]);
//
// Wrong arguments are kInvalidArgument where the operation is called.
class Dataset {
 public:
  explicit Dataset(internal::NodePtr node) : node_(std::move(node)) {}

  // The records of TFRecord files (without compression), one after the other, as byte strings. Throws kNotFound for a file
  // that cannot be opened, and, while reading, kDataLoss for a damaged one, with file and position.
  static Dataset tf_record(const std::vector<std::string>& files);
  // int64 scalars 0, 1, ... below `stop`; or start, start + step, ...
  static Dataset range(std::int64_t stop);
  static Dataset range(std::int64_t start, std::int64_t stop, std::int64_t step = 1);

  // One element; or one element per row. Tensors are not copied when they are contiguous: do not change them later.
  // What comes out is a copy.
  static Dataset from_tensors(at::Tensor tensor) { return from_tensors(Element(std::move(tensor))); }
  static Dataset from_tensors(Element element);
  static Dataset from_tensor_slices(at::Tensor tensor) { return from_tensor_slices(Element(std::move(tensor))); }
  static Dataset from_tensor_slices(const Element& components);

  // `start` is called at the beginning of every pass and returns the function that gives the elements, then nothing.
  // It may run on a prefetch thread.
  static Dataset from_generator(std::function<std::function<std::optional<Element>()>()> start);

  // Elements with the components of all inputs, as long as the shortest.
  static Dataset zip(const std::vector<Dataset>& datasets);

  // `size` consecutive elements as one, with a new first dimension. Elements that differ in shape are
  // kInvalidArgument when they meet; padded_batch fills the shorter ones up with zeros.
  Dataset batch(std::int64_t size, bool drop_remainder = false) const;
  Dataset padded_batch(std::int64_t size, bool drop_remainder = false) const;
  // The rows of batches in new batches of these sizes, in turn.
  Dataset rebatch(std::vector<std::int64_t> sizes, bool drop_remainder = false) const;

  // fn takes the element, or one tensor per component, and returns an element, a tensor, or a pair, tuple, vector or
  // name map of tensors. It runs on the thread that iterates, or on a prefetch thread.
  template <typename F>
  Dataset map(F fn) const {
    return map_elements(
        [fn = std::move(fn)](const Element& element) mutable { return to_element(call_with_element(fn, element)); });
  }

  // Keeps the elements for which fn gives true (a bool, or a tensor with one value).
  template <typename F>
  Dataset filter(F fn) const {
    return filter_elements(
        [fn = std::move(fn)](const Element& element) mutable { return is_true(call_with_element(fn, element)); });
  }

  // The elements of the dataset that fn gives for each element, one dataset after the other.
  template <typename F>
  Dataset flat_map(F fn) const {
    return flat_map_elements(
        [fn = std::move(fn)](const Element& element) mutable -> Dataset { return call_with_element(fn, element); });
  }

  // This dataset's elements, then the other's, which must have the same components and dtypes.
  Dataset concatenate(const Dataset& other) const;

  // Draws each element at random from the next `buffer_size`. With a seed the order is the same in every run of the
  // program; each pass over this dataset has another order, or the same one if not `reshuffle_each_iteration`. Without a
  // seed it comes from LibTorch's default generator (torch::manual_seed).
  Dataset shuffle(std::int64_t buffer_size, std::optional<std::uint64_t> seed = std::nullopt,
                  bool reshuffle_each_iteration = true) const;

  // Negative: for ever.
  Dataset repeat(std::int64_t count = -1) const;
  // The first `count`; -1: all.
  Dataset take(std::int64_t count) const;
  // All but the first `count`; negative: none.
  Dataset skip(std::int64_t count) const;
  // Makes up to `count` elements ahead on a thread of its own. 0: does nothing.
  Dataset prefetch(std::int64_t count) const;

  // The options replace those set further up.
  Dataset with_options(const Options& options) const;
  Options options() const;

  // How many elements a pass has; kInfinite, or kUnknown.
  std::int64_t cardinality() const { return node_->cardinality(); }

  // What is known without making an element: see internal::StaticShape.
  internal::StaticShape static_shape() const { return node_->static_shape(); }
  const internal::NodePtr& node() const noexcept { return node_; }

  // A new pass.
  Iterator make_iterator() const { return Iterator(node_->open()); }

  class RangeIterator;
  RangeIterator begin() const;
  std::default_sentinel_t end() const noexcept { return {}; }

 private:
  Dataset map_elements(std::function<Element(const Element&)> fn) const;
  Dataset filter_elements(std::function<bool(const Element&)> fn) const;
  Dataset flat_map_elements(std::function<Dataset(const Element&)> fn) const;
  static bool is_true(bool value) { return value; }
  static bool is_true(const at::Tensor& value);

  internal::NodePtr node_;
};

// The pipeline as a tree, the last operation first.
std::ostream& operator<<(std::ostream& out, const Dataset& dataset);

// For `for (const auto& element : dataset)`. Single pass: copies share the position.
class Dataset::RangeIterator {
 public:
  using iterator_concept = std::input_iterator_tag;
  using value_type = Element;
  using difference_type = std::ptrdiff_t;

  explicit RangeIterator(Iterator iterator) : iterator_(std::make_shared<Iterator>(std::move(iterator))) { ++*this; }

  const Element& operator*() const noexcept { return element_; }
  RangeIterator& operator++() {
    if (!iterator_->next(element_)) iterator_ = nullptr;
    return *this;
  }
  void operator++(int) { ++*this; }
  friend bool operator==(const RangeIterator& it, std::default_sentinel_t) noexcept { return it.iterator_ == nullptr; }

 private:
  std::shared_ptr<Iterator> iterator_;  // null at the end
  Element element_;
};

inline Dataset::RangeIterator Dataset::begin() const { return RangeIterator(make_iterator()); }

}  // namespace lockstep::data
