#pragma once

#include <cstdint>
#include <exception>
#include <functional>
#include <iosfwd>
#include <iterator>
#include <memory>
#include <optional>
#include <ranges>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "lockstep/data/call_element.h"
#include "lockstep/data/csv_options.h"
#include "lockstep/data/element.h"
#include "lockstep/data/io/fixed_records.h"
#include "lockstep/data/node.h"
#include "lockstep/data/options.h"
#include "lockstep/data/read_options.h"

namespace lockstep::data {

struct BenchmarkOptions;
struct PipelineReport;

struct Padding {
  std::vector<std::vector<std::int64_t>> shapes = {};  // by component; empty: the longest of each batch
  double value = 0;
};

struct Buckets {
  Padding padding = {};
  bool drop_remainder = false;
};

// One pass over a dataset's elements. One thread at a time.
class Iterator {
 public:
  explicit Iterator(internal::NodePtr node) : node_(std::move(node)), stream_(node_->open()) {}

  // The next element; false at the end. Throws what a function of the pipeline threw; after that, always the same error.
  bool next(Element& out);
  std::optional<Element> next();

  // Where this pass is, shuffle buffers included. restore() takes it on a new iterator of the same pipeline, in this process or
  // another: what follows is what would have followed. Throws kInvalidArgument for a position of another pipeline, kDataLoss
  // for damaged bytes, kFailedPrecondition after an element was taken or an error thrown. Tensors in a position come back on
  // the CPU. save() throws what went wrong ahead of the elements taken so far: from there nothing can go on.
  std::string save();
  void restore(std::string_view position);

 private:
  internal::NodePtr node_;
  std::unique_ptr<internal::Stream<Element>> stream_;
  bool has_begun_ = false;
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

  // The records of files, one file after the other, as byte strings. While reading: kNotFound for a file that is not there,
  // kDataLoss for a damaged one, with file and position.
  static Dataset tf_record(const std::vector<std::string>& files, const ReadOptions& options = {});
  static Dataset text_lines(const std::vector<std::string>& files, const ReadOptions& options = {});
  static Dataset fixed_length_records(const std::vector<std::string>& files, const FixedLengths& lengths,
                                      const ReadOptions& options = {});
  // Rows of comma-separated values: one named scalar or byte string for each column that is asked for.
  static Dataset csv(const std::vector<std::string>& files, const std::vector<CsvColumn>& columns,
                     const CsvOptions& options = {});
  // The names of the files that match one of these patterns (as a shell's), sorted, or in an order drawn from the seed. Throws
  // kNotFound for a pattern that matches nothing.
  static Dataset list_files(const std::vector<std::string>& patterns, std::optional<std::uint64_t> shuffle_seed = std::nullopt);
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

  // The elements of a range or container of what to_element() takes; it is kept, and read anew in every pass.
  template <std::ranges::input_range R>
  static Dataset from_range(R range) {
    auto kept = std::make_shared<R>(std::move(range));
    return from_generator([kept] {
      return [kept, at = std::ranges::begin(*kept)]() mutable -> std::optional<Element> {
        if (at == std::ranges::end(*kept)) return std::nullopt;
        return to_element(*at++);
      };
    });
  }

  // Elements with the components of all inputs, as long as the shortest.
  static Dataset zip(const std::vector<Dataset>& datasets);

  // Element after element from the dataset whose number `choice` gives (int64 scalars). One that has ended is passed over, or,
  // with `stop_on_empty`, ends all.
  static Dataset choose_from_datasets(const std::vector<Dataset>& datasets, const Dataset& choice, bool stop_on_empty = false);
  // The same at random, with these weights (none: equal ones).
  static Dataset sample_from_datasets(const std::vector<Dataset>& datasets, const std::vector<double>& weights = {},
                                      std::optional<std::uint64_t> seed = std::nullopt, bool stop_on_empty = false);

  // `size` consecutive elements as one, with a new first dimension. Elements that differ in shape are
  // kInvalidArgument when they meet; padded_batch fills the shorter ones up.
  Dataset batch(std::int64_t size, bool drop_remainder = false) const;
  Dataset padded_batch(std::int64_t size, bool drop_remainder = false) const;
  // By component the shape to fill up to, where -1 is the longest of the batch, and what with.
  Dataset padded_batch(std::int64_t size, const Padding& padding, bool drop_remainder = false) const;
  // The rows of batches, one by one.
  Dataset unbatch() const;
  // The rows of batches in new batches of these sizes, in turn.
  Dataset rebatch(std::vector<std::int64_t> sizes, bool drop_remainder = false) const;

  // fn takes the element, or one tensor per component, and returns an element, a tensor, or a pair, tuple, vector or
  // name map of tensors. It runs on the thread that iterates, or on a prefetch thread; with `parallel` above 1, or kAutotune,
  // on several threads at once, and must be safe for that. The elements keep their order unless `is_ordered` is false.
  template <typename F>
  Dataset map(F fn, int parallel = 1, bool is_ordered = true) const {
    return map_elements(
        [fn = std::move(fn)](const Element& element) mutable { return to_element(call_with_element(fn, element)); }, parallel,
        is_ordered);
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

  // As flat_map, with `cycle` datasets at a time, `block` elements of each in turn. With `parallel` above 1, or kAutotune, so
  // many are read at once; the order is the same.
  template <typename F>
  Dataset interleave(F fn, std::int64_t cycle = 2, std::int64_t block = 1, int parallel = 1) const {
    return interleave_elements(
        [fn = std::move(fn)](const Element& element) mutable -> Dataset { return call_with_element(fn, element); }, cycle,
        block, parallel);
  }

  // The first elements, up to the one for which fn gives false.
  template <typename F>
  Dataset take_while(F fn) const {
    return take_while_elements(
        [fn = std::move(fn)](const Element& element) mutable { return is_true(call_with_element(fn, element)); });
  }

  // Windows of `size` elements, each beginning `shift` (none: size) after the last, of every stride-th element; fn takes a
  // window as a dataset and gives a dataset, whose elements come next.
  Dataset window(std::int64_t size, std::function<Dataset(const Dataset&)> fn, std::optional<std::int64_t> shift = std::nullopt,
                 std::int64_t stride = 1, bool drop_remainder = false) const;
  // Elements of one key in windows of `size`; fn takes the key and a window and gives a dataset. At the end come the windows
  // that are not full.
  Dataset group_by_window(std::function<std::int64_t(const Element&)> key, std::int64_t size,
                          std::function<Dataset(std::int64_t, const Dataset&)> fn) const;
  // Elements of like length in batches, filled up to the longest: those shorter than boundaries[0] in batches of sizes[0],
  // those from boundaries[0] on in batches of sizes[1], and so on; one size more than boundaries.
  Dataset bucket_by_sequence_length(std::function<std::int64_t(const Element&)> length,
                                    const std::vector<std::int64_t>& boundaries, const std::vector<std::int64_t>& sizes,
                                    const Buckets& options = {}) const;
  // The elements with their numbers before them.
  Dataset enumerate(std::int64_t start = 0) const;
  // fn(state, element) gives the next state and an element.
  Dataset scan(Element state, std::function<std::pair<Element, Element>(const Element&, const Element&)> fn) const;
  // The state after fn(state, element) for all elements.
  Element reduce(Element state, const std::function<Element(const Element&, const Element&)>& fn) const;
  // Every element once.
  Dataset unique() const;
  // Every count-th element, from element `index` on; kShardHint: as the auto shard policy HINT decides.
  Dataset shard(std::int64_t count, std::int64_t index = 0) const;
  // What the first whole pass gave, kept in memory or, with a name, in a file.
  Dataset cache(const std::string& file = "") const;
  // fn(*this), for operations of one's own.
  template <typename F>
  Dataset apply(F fn) const {
    return fn(*this);
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
  // Makes up to `count` elements ahead on a thread of its own, from the first one that is asked for on; kAutotune: as many as
  // are needed. 0: does nothing.
  Dataset prefetch(std::int64_t count = kAutotune) const;

  // The options replace those set further up.
  Dataset with_options(const Options& options) const;
  Options options() const;

  // How many elements a pass has; kInfinite, or kUnknown.
  std::int64_t cardinality() const { return node_->cardinality(); }

  // What is known without making an element: see internal::StaticShape.
  internal::StaticShape static_shape() const { return node_->static_shape(); }
  const internal::NodePtr& node() const noexcept { return node_; }

  // One pass, as fast as it gives its elements, and how long each operation took: see benchmark.h.
  PipelineReport benchmark() const;
  PipelineReport benchmark(const BenchmarkOptions& options) const;

  // A new pass.
  Iterator make_iterator() const { return Iterator(node_); }

  class RangeIterator;
  RangeIterator begin() const;
  std::default_sentinel_t end() const noexcept { return {}; }

 private:
  Dataset map_elements(std::function<Element(const Element&)> fn, int parallel, bool is_ordered) const;
  Dataset interleave_elements(std::function<Dataset(const Element&)> fn, std::int64_t cycle, std::int64_t block,
                              int parallel) const;
  Dataset take_while_elements(std::function<bool(const Element&)> fn) const;
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
