#include "lockstep/data/dataset.h"

#include <ATen/ATen.h>

#include <ostream>

#include "lockstep/base/error.h"
#include "lockstep/base/str.h"
#include "lockstep/data/io/find_files.h"
#include "lockstep/data/ops/buckets.h"
#include "lockstep/data/ops/ops.h"
#include "lockstep/data/sources.h"

namespace lockstep::data {
namespace {

// Carries options; everything else is the input's.
class OptionsNode final : public internal::UnaryNode {
 public:
  OptionsNode(internal::NodePtr input, const Options& options) : UnaryNode(std::move(input)), options_(options) {}

  const Options& options() const noexcept { return options_; }
  std::unique_ptr<internal::Stream<Element>> open() const override { return input().open(); }
  internal::NodePtr with_inputs(std::vector<internal::NodePtr> inputs) const override {
    return std::make_shared<OptionsNode>(std::move(inputs.at(0)), options_);
  }
  bool is_only_ahead() const override { return true; }
  std::int64_t cardinality() const override { return input().cardinality(); }
  internal::StaticShape static_shape() const override { return input().static_shape(); }
  std::string describe() const override {
    return lockstep::str("Options(auto_shard_policy ", static_cast<int>(options_.auto_shard_policy), ")");
  }
  std::shared_ptr<const internal::Table> table() const override { return input().table(); }
  std::unique_ptr<internal::Stream<std::int64_t>> open_rows() const override { return input().open_rows(); }
  bool has_texts() const override { return input().has_texts(); }
  std::unique_ptr<internal::Stream<std::string>> open_texts() const override { return input().open_texts(); }

 private:
  const Options options_;
};

// The options nearest to the end of the pipeline.
const Options* find_options(const internal::Node& node) {
  if (const auto* options = dynamic_cast<const OptionsNode*>(&node)) return &options->options();
  for (const auto& input : node.inputs())
    if (const auto* found = find_options(*input)) return found;
  return nullptr;
}

std::vector<internal::NodePtr> nodes_of(const std::vector<Dataset>& datasets) {
  std::vector<internal::NodePtr> nodes;
  for (const auto& dataset : datasets) nodes.push_back(dataset.node());
  return nodes;
}

}  // namespace

bool Iterator::next(Element& out) {
  if (failure_) std::rethrow_exception(failure_);
  has_begun_ = true;
  try {
    return stream_->next(out);
  } catch (...) {
    failure_ = std::current_exception();
    throw;
  }
}

std::optional<Element> Iterator::next() {
  std::optional<Element> element(std::in_place);
  if (!next(*element)) element.reset();
  return element;
}

std::string Iterator::save() {
  if (failure_)
    throw Error(ErrorCode::kFailedPrecondition, "the position of an iterator that has failed cannot be saved; save before");
  internal::PositionWriter writer;
  internal::put_pipeline(writer, *node_);
  stream_->save(writer);
  return std::move(writer).take();
}

void Iterator::restore(std::string_view position) {
  if (has_begun_ || failure_)
    throw Error(ErrorCode::kFailedPrecondition, "a position is restored into a new iterator, before its first element");
  internal::PositionReader reader(position);
  has_begun_ = true;
  try {
    internal::take_pipeline(reader, *node_);
    stream_->restore(reader);
    reader.require_end();
  } catch (...) {
    failure_ = std::current_exception();
    throw;
  }
}

Dataset Dataset::tf_record(const std::vector<std::string>& files, const ReadOptions& options) {
  return Dataset(internal::make_tf_records(files, options));
}

Dataset Dataset::text_lines(const std::vector<std::string>& files, const ReadOptions& options) {
  return Dataset(internal::make_text_lines(files, options));
}

Dataset Dataset::fixed_length_records(const std::vector<std::string>& files, const FixedLengths& lengths,
                                      const ReadOptions& options) {
  return Dataset(internal::make_fixed_records(files, lengths, options));
}

Dataset Dataset::csv(const std::vector<std::string>& files, const std::vector<CsvColumn>& columns, const CsvOptions& options) {
  return Dataset(internal::make_csv(files, columns, options));
}

Dataset Dataset::range(std::int64_t stop) { return range(0, stop); }

Dataset Dataset::range(std::int64_t start, std::int64_t stop, std::int64_t step) {
  return Dataset(internal::make_range(start, stop, step));
}

Dataset Dataset::from_tensors(Element element) { return Dataset(internal::make_tensors(std::move(element))); }

Dataset Dataset::from_tensor_slices(const Element& components) { return Dataset(internal::make_slices(components)); }

Dataset Dataset::from_generator(std::function<std::function<std::optional<Element>()>()> start) {
  return Dataset(internal::make_generator(std::move(start)));
}

Dataset Dataset::zip(const std::vector<Dataset>& datasets) { return Dataset(internal::make_zip(nodes_of(datasets))); }

Dataset Dataset::choose_from_datasets(const std::vector<Dataset>& datasets, const Dataset& choice, bool stop_on_empty) {
  return Dataset(internal::make_choose(nodes_of(datasets), choice.node_, stop_on_empty));
}

Dataset Dataset::sample_from_datasets(const std::vector<Dataset>& datasets, const std::vector<double>& weights,
                                      std::optional<std::uint64_t> seed, bool stop_on_empty) {
  return Dataset(internal::make_sample(nodes_of(datasets), weights, seed, stop_on_empty));
}

Dataset Dataset::list_files(const std::vector<std::string>& patterns, std::optional<std::uint64_t> shuffle_seed) {
  if (patterns.empty()) throw Error(ErrorCode::kInvalidArgument, "list_files: no pattern; give at least one");
  Bytes names{find_files(patterns), {}};
  names.sizes = {static_cast<std::int64_t>(names.values.size())};
  const auto count = static_cast<std::int64_t>(names.values.size());
  const auto sorted = from_tensor_slices(Element(std::vector<Component>{{"", std::move(names)}}));
  return shuffle_seed ? sorted.shuffle(count, shuffle_seed) : sorted;
}

Dataset Dataset::batch(std::int64_t size, bool drop_remainder) const {
  return Dataset(internal::make_batch(node_, {size, drop_remainder}));
}

Dataset Dataset::padded_batch(std::int64_t size, bool drop_remainder) const { return padded_batch(size, {}, drop_remainder); }

Dataset Dataset::padded_batch(std::int64_t size, const Padding& padding, bool drop_remainder) const {
  return Dataset(internal::make_padded_batch(node_, {size, drop_remainder, padding.shapes, padding.value}));
}

Dataset Dataset::rebatch(std::vector<std::int64_t> sizes, bool drop_remainder) const {
  return Dataset(internal::make_rebatch(node_, std::move(sizes), drop_remainder));
}

Dataset Dataset::unbatch() const { return Dataset(internal::make_unbatch(node_)); }

Dataset Dataset::map_elements(std::function<Element(const Element&)> fn, int parallel, bool is_ordered) const {
  return Dataset(internal::make_map(node_, std::move(fn), {parallel, is_ordered}));
}

Dataset Dataset::take_while_elements(std::function<bool(const Element&)> fn) const {
  return Dataset(internal::make_take_while(node_, std::move(fn)));
}

Dataset Dataset::interleave_elements(std::function<Dataset(const Element&)> fn, std::int64_t cycle, std::int64_t block,
                                     int parallel) const {
  return Dataset(internal::make_interleave(node_, [fn = std::move(fn)](const Element& element) { return fn(element).node_; },
                                           {cycle, block, parallel}));
}

Dataset Dataset::window(std::int64_t size, std::function<Dataset(const Dataset&)> fn, std::optional<std::int64_t> shift,
                        std::int64_t stride, bool drop_remainder) const {
  return Dataset(
      internal::make_window(node_, {size, shift.value_or(size), stride, drop_remainder},
                            [fn = std::move(fn)](internal::NodePtr window) { return fn(Dataset(std::move(window))).node_; }));
}

Dataset Dataset::group_by_window(std::function<std::int64_t(const Element&)> key, std::int64_t size,
                                 std::function<Dataset(std::int64_t, const Dataset&)> fn) const {
  return Dataset(internal::make_group_by_window(
      node_, std::move(key), [size](std::int64_t) { return size; },
      [fn = std::move(fn)](std::int64_t k, internal::NodePtr window) { return fn(k, Dataset(std::move(window))).node_; }));
}

Dataset Dataset::bucket_by_sequence_length(std::function<std::int64_t(const Element&)> length,
                                           const std::vector<std::int64_t>& boundaries, const std::vector<std::int64_t>& sizes,
                                           const Buckets& options) const {
  return Dataset(internal::make_buckets(node_, std::move(length), boundaries, sizes, options));
}

Dataset Dataset::enumerate(std::int64_t start) const { return Dataset(internal::make_enumerate(node_, start)); }

Dataset Dataset::scan(Element state, std::function<std::pair<Element, Element>(const Element&, const Element&)> fn) const {
  return Dataset(internal::make_scan(node_, std::move(state), std::move(fn)));
}

Element Dataset::reduce(Element state, const std::function<Element(const Element&, const Element&)>& fn) const {
  auto iterator = make_iterator();
  for (Element element; iterator.next(element);) state = fn(state, element);
  return state;
}

Dataset Dataset::unique() const { return Dataset(internal::make_unique(node_)); }

Dataset Dataset::shard(std::int64_t count, std::int64_t index) const {
  return Dataset(internal::make_shard(node_, count, index));
}

Dataset Dataset::cache(const std::string& file) const { return Dataset(internal::make_cache(node_, file)); }

Dataset Dataset::filter_elements(std::function<bool(const Element&)> fn) const {
  return Dataset(internal::make_filter(node_, std::move(fn)));
}

Dataset Dataset::flat_map_elements(std::function<Dataset(const Element&)> fn) const {
  return Dataset(internal::make_flat_map(node_, [fn = std::move(fn)](const Element& element) { return fn(element).node_; }));
}

bool Dataset::is_true(const at::Tensor& value) {
  if (value.numel() != 1)
    throw Error(ErrorCode::kInvalidArgument,
                lockstep::str("filter or take_while: the function must give one truth value, not a tensor of shape ",
                              value.sizes(), "; reduce it, for example with all()"));
  return value.item().toBool();
}

Dataset Dataset::concatenate(const Dataset& other) const { return Dataset(internal::make_concatenate(node_, other.node_)); }

Dataset Dataset::shuffle(std::int64_t buffer_size, std::optional<std::uint64_t> seed, bool reshuffle_each_iteration) const {
  return Dataset(internal::make_shuffle(
      node_, {.buffer_size = buffer_size, .seed = seed, .reshuffle_each_iteration = reshuffle_each_iteration}));
}

Dataset Dataset::repeat(std::int64_t count) const { return Dataset(internal::make_repeat(node_, count)); }
Dataset Dataset::take(std::int64_t count) const { return Dataset(internal::make_take(node_, count)); }
Dataset Dataset::skip(std::int64_t count) const { return Dataset(internal::make_skip(node_, count)); }
Dataset Dataset::prefetch(std::int64_t count) const { return Dataset(internal::make_prefetch(node_, count)); }

Dataset Dataset::with_options(const Options& options) const { return Dataset(std::make_shared<OptionsNode>(node_, options)); }

Options Dataset::options() const {
  const auto* found = find_options(*node_);
  return found != nullptr ? *found : Options{};
}

std::ostream& operator<<(std::ostream& out, const Dataset& dataset) {
  return out << internal::describe_pipeline(*dataset.node());
}

}  // namespace lockstep::data
