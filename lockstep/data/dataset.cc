#include "lockstep/data/dataset.h"

#include <ATen/ATen.h>

#include <ostream>

#include "lockstep/base/error.h"
#include "lockstep/base/str.h"
#include "lockstep/data/batching.h"
#include "lockstep/data/prefetch.h"
#include "lockstep/data/reorder.h"
#include "lockstep/data/sources.h"
#include "lockstep/data/transform.h"

namespace lockstep::data {
namespace {

// Carries options; everything else is the input's.
class OptionsNode final : public internal::UnaryNode {
 public:
  OptionsNode(internal::NodePtr input, const Options& options) : UnaryNode(std::move(input)), options_(options) {}

  const Options& options() const noexcept { return options_; }
  std::unique_ptr<internal::Stream<Element>> open() const override { return input().open(); }
  internal::NodePtr with_input(internal::NodePtr input) const override {
    return std::make_shared<OptionsNode>(std::move(input), options_);
  }
  std::int64_t cardinality() const override { return input().cardinality(); }
  internal::StaticShape static_shape() const override { return input().static_shape(); }
  std::string describe() const override {
    return lockstep::str("Options(auto_shard_policy ", static_cast<int>(options_.auto_shard_policy), ")");
  }
  std::shared_ptr<const internal::Table> table() const override { return input().table(); }
  std::unique_ptr<internal::Stream<std::int64_t>> open_rows() const override { return input().open_rows(); }

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

void print_tree(std::ostream& out, const internal::Node& node, const std::string& indent) {
  out << indent << node.describe() << "\n";
  for (const auto& input : node.inputs()) print_tree(out, *input, indent + "  ");
}

}  // namespace

bool Iterator::next(Element& out) {
  if (failure_) std::rethrow_exception(failure_);
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

Dataset Dataset::tf_record(const std::vector<std::string>& files) { return Dataset(internal::make_records(files)); }

Dataset Dataset::range(std::int64_t stop) { return range(0, stop); }

Dataset Dataset::range(std::int64_t start, std::int64_t stop, std::int64_t step) {
  return Dataset(internal::make_range(start, stop, step));
}

Dataset Dataset::from_tensors(Element element) { return Dataset(internal::make_tensors(std::move(element))); }

Dataset Dataset::from_tensor_slices(const Element& components) { return Dataset(internal::make_slices(components)); }

Dataset Dataset::from_generator(std::function<std::function<std::optional<Element>()>()> start) {
  return Dataset(internal::make_generator(std::move(start)));
}

Dataset Dataset::zip(const std::vector<Dataset>& datasets) {
  std::vector<internal::NodePtr> inputs;
  for (const auto& dataset : datasets) inputs.push_back(dataset.node_);
  return Dataset(internal::make_zip(std::move(inputs)));
}

Dataset Dataset::batch(std::int64_t size, bool drop_remainder) const {
  return Dataset(internal::make_batch(node_, {.size = size, .drop_remainder = drop_remainder}));
}

Dataset Dataset::padded_batch(std::int64_t size, bool drop_remainder) const {
  return Dataset(internal::make_batch(node_, {.size = size, .drop_remainder = drop_remainder, .is_padded = true}));
}

Dataset Dataset::rebatch(std::vector<std::int64_t> sizes, bool drop_remainder) const {
  return Dataset(internal::make_rebatch(node_, std::move(sizes), drop_remainder));
}

Dataset Dataset::map_elements(std::function<Element(const Element&)> fn) const {
  return Dataset(internal::make_map(node_, std::move(fn)));
}

Dataset Dataset::filter_elements(std::function<bool(const Element&)> fn) const {
  return Dataset(internal::make_filter(node_, std::move(fn)));
}

Dataset Dataset::flat_map_elements(std::function<Dataset(const Element&)> fn) const {
  return Dataset(internal::make_flat_map(node_, [fn = std::move(fn)](const Element& element) { return fn(element).node_; }));
}

bool Dataset::is_true(const at::Tensor& value) {
  if (value.numel() != 1)
    throw Error(ErrorCode::kInvalidArgument,
                lockstep::str("filter: the function must give one truth value, not a tensor of shape ", value.sizes(),
                              "; reduce it, for example with all()"));
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
  print_tree(out, *dataset.node(), "");
  return out;
}

}  // namespace lockstep::data
