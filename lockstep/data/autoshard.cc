#include "lockstep/data/autoshard.h"

#include <utility>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/base/str.h"
#include "lockstep/data/ops/ops.h"

namespace lockstep::data {
namespace internal {
namespace {

struct Share {
  std::int64_t workers = 1;
  std::int64_t index = 0;
  bool fails_at_once = false;  // when there are too few files; else with the first element

  // `files`: how many, if known.
  void require_enough(std::int64_t files) const {
    if (fails_at_once && files >= 0 && files < workers)
      throw Error(ErrorCode::kInvalidArgument, too_few_for_shards(files, workers));
  }
};

// For a list of files that is too short: an error, where there is a file to read.
class RefusedStream final : public Stream<Element> {
 public:
  explicit RefusedStream(std::string why) : why_(std::move(why)) {}
  bool next(Element&) override { throw Error(ErrorCode::kInvalidArgument, why_); }
  void save(PositionWriter& to) override { to.begin("refused"); }
  void restore(PositionReader& from) override { from.expect("refused"); }

 private:
  const std::string why_;
};

class RefusedNode final : public UnaryNode {
 public:
  RefusedNode(NodePtr input, std::string why) : UnaryNode(std::move(input)), why_(std::move(why)) {}
  std::unique_ptr<Stream<Element>> open() const override { return std::make_unique<RefusedStream>(why_); }
  NodePtr with_inputs(std::vector<NodePtr> inputs) const override {
    return std::make_shared<RefusedNode>(std::move(inputs.at(0)), why_);
  }
  std::int64_t cardinality() const override { return kUnknown; }
  StaticShape static_shape() const override { return input().static_shape(); }
  std::string describe() const override { return "TooFewFiles()"; }

 private:
  const std::string why_;
};

NodePtr share_files_of(const Node& reader, const Share& share) {
  const auto& all = *reader.files();
  const auto count = static_cast<std::int64_t>(all.size());
  share.require_enough(count);
  std::vector<std::string> mine;
  for (auto i = share.index; i < count; i += share.workers) mine.push_back(all[static_cast<std::size_t>(i)]);
  const bool has_any = !mine.empty();
  auto shared = reader.with_files(std::move(mine));
  if (!has_any || count >= share.workers) return shared;
  return std::make_shared<RefusedNode>(std::move(shared), too_few_for_shards(count, share.workers));
}

bool reads_files(const Node& node) {
  if (node.files() != nullptr) return true;
  for (const auto& input : node.inputs())
    if (reads_files(*input)) return true;
  return false;
}

// The node without the shuffles on its way up to a source, which are appended to `shuffles`, the last operation first.
NodePtr without_shuffles(const NodePtr& node, std::vector<NodePtr>& shuffles) {
  const auto inputs = node->inputs();
  if (inputs.size() != 1) return node;
  if (node->is_shuffle()) shuffles.push_back(node);
  auto input = without_shuffles(inputs[0], shuffles);
  return node->is_shuffle() ? input : node->with_inputs({std::move(input)});
}

// To look into: opening a shuffle would count as a pass.
NodePtr without_any_shuffle(const NodePtr& node) {
  std::vector<NodePtr> inputs;
  for (const auto& input : node->inputs()) inputs.push_back(without_any_shuffle(input));
  if (node->is_shuffle()) return inputs.at(0);
  return inputs.empty() ? node : node->with_inputs(std::move(inputs));
}

// Whether the function makes readers, as its first dataset shows. That dataset is not opened; names that come from a file are
// read.
bool makes_readers(const Node& node) {
  Element first;
  const auto names = without_any_shuffle(node.inputs().at(0));
  return names->open()->next(first) && reads_files(*(*node.dataset_function())(first));
}

NodePtr share_of(const NodePtr& node, const Share& share) {
  if (node->files() != nullptr) return share_files_of(*node, share);
  if (node->dataset_function() != nullptr && makes_readers(*node)) {
    std::vector<NodePtr> shuffles;
    const auto names = without_shuffles(node->inputs().at(0), shuffles);
    share.require_enough(names->cardinality());
    auto mine = make_required_shard(names, share.workers, share.index);
    for (auto shuffle = shuffles.rbegin(); shuffle != shuffles.rend(); ++shuffle) mine = (*shuffle)->with_inputs({mine});
    return node->with_inputs({std::move(mine)});
  }
  std::vector<NodePtr> inputs;
  for (const auto& input : node->inputs()) {
    inputs.push_back(share_of(input, share));
    if (!inputs.back()) return nullptr;
  }
  return inputs.empty() ? nullptr : node->with_inputs(std::move(inputs));
}

// Behind everything but what only makes ahead.
NodePtr share_of_elements(const NodePtr& node, const Share& share) {
  if (node->is_only_ahead()) return node->with_inputs({share_of_elements(node->inputs().at(0), share)});
  return make_required_shard(node, share.workers, share.index);
}

}  // namespace

NodePtr shard_files(const NodePtr& node, std::int64_t workers, std::int64_t index) {
  auto shared = share_of(node, {workers, index, /*fails_at_once=*/true});
  return shared && workers == 1 ? node : shared;
}

bool names_of_files(const NodePtr& node, std::vector<std::string>& names) {
  if (reads_files(*node) || node->cardinality() < 0) return false;
  std::vector<std::string> found;
  const auto stream = without_any_shuffle(node)->open();
  for (Element element; stream->next(element);) {
    if (element.size() != 1 || !element.components()[0].is_bytes()) return false;
    const auto& values = element.components()[0].bytes().values;
    found.insert(found.end(), values.begin(), values.end());
  }
  names.insert(names.end(), found.begin(), found.end());
  return true;
}

void throw_no_files(const Dataset& dataset) {
  throw Error(ErrorCode::kNotFound,
              lockstep::str("the auto shard policy is FILE, and not all of this dataset comes from files:\n", dataset,
                            "use AUTO, DATA or OFF"));
}

NodePtr shard_hints(const NodePtr& node, std::int64_t workers, std::int64_t index) {
  const auto inputs = node->inputs();
  if (inputs.empty()) return node;
  std::vector<NodePtr> hinted;
  for (const auto& input : inputs) hinted.push_back(shard_hints(input, workers, index));
  auto same = hinted == inputs ? node : node->with_inputs(std::move(hinted));
  auto shard = same->hinted(workers, index);
  return shard ? shard : same;
}

}  // namespace internal

Dataset auto_shard(const Dataset& dataset, std::int64_t workers, std::int64_t index) {
  if (workers < 1 || index < 0 || index >= workers)
    throw Error(ErrorCode::kInvalidArgument, lockstep::str("auto_shard: worker ", index, " of ", workers,
                                                           "; there must be a worker, and the index be one of them, from 0"));
  const auto policy = dataset.options().auto_shard_policy;
  const auto& node = dataset.node();
  if (policy == AutoShardPolicy::kOff) return dataset;
  if (policy == AutoShardPolicy::kHint) return Dataset(internal::shard_hints(node, workers, index));
  if (policy == AutoShardPolicy::kFile && workers == 1) return dataset;
  if (policy != AutoShardPolicy::kData) {
    if (auto files = internal::share_of(node, {workers, index})) return Dataset(std::move(files));
    if (policy == AutoShardPolicy::kFile) internal::throw_no_files(dataset);
  }
  return workers == 1 ? dataset : Dataset(internal::share_of_elements(node, {workers, index}));
}

}  // namespace lockstep::data
