#include "lockstep/data/explain.h"

#include <algorithm>
#include <numeric>
#include <sstream>
#include <string_view>
#include <utility>
#include <vector>

#include "lockstep/base/str.h"
#include "lockstep/data/autoshard.h"
#include "lockstep/data/rebatch_plan.h"

namespace lockstep::data::internal {
namespace {

constexpr std::size_t kMostNames = 8;

const char* name_policy(AutoShardPolicy policy) {
  switch (policy) {
    case AutoShardPolicy::kOff: return "OFF";
    case AutoShardPolicy::kAuto: return "AUTO";
    case AutoShardPolicy::kFile: return "FILE";
    case AutoShardPolicy::kData: return "DATA";
    case AutoShardPolicy::kHint: return "HINT";
  }
  return "unknown";
}

// The names of the files that the node will open: those of its readers, and those that flat_map and interleave make readers of.
void collect_files(const Node& node, std::vector<std::string>& names) {
  if (const auto* files = node.files()) names.insert(names.end(), files->begin(), files->end());
  const bool gives_names = node.dataset_function() != nullptr && names_of_files(node.inputs().at(0), names);
  if (gives_names) return;
  for (const auto& input : node.inputs()) collect_files(*input, names);
}

std::string shorten(const std::vector<std::string>& names) {
  std::vector<std::string> shown;
  for (std::size_t i = 0; i < names.size() && i < kMostNames; ++i) shown.push_back(names[i].substr(names[i].rfind('/') + 1));
  const auto rest = names.size() - shown.size();
  return lockstep::str(join(", ", shown), rest > 0 ? lockstep::str(" and ", rest, " more") : "");
}

std::string explain_reading(const Distribution& d) {
  const auto policy = d.dataset.options().auto_shard_policy;
  const auto name = lockstep::str("auto shard policy ", name_policy(policy));
  if (d.workers() == 1) return "one worker reads everything";
  if (d.is_by_file)
    return lockstep::str(name, policy == AutoShardPolicy::kAuto ? ", here FILE" : "", ": each worker reads its own files");
  switch (policy) {
    case AutoShardPolicy::kOff: return name + ": every worker reads everything and uses everything";
    case AutoShardPolicy::kHint: return name + ": each worker reads its part where the pipeline says shard(kShardHint)";
    default:
      return lockstep::str(name, policy == AutoShardPolicy::kAuto ? ", here DATA" : "",
                           ": every worker reads everything and uses its part of each batch");
  }
}

std::string explain_splitting(const Distribution& d) {
  const auto rows = d.dataset.static_shape().batch_size();
  const auto of_batch = rows ? lockstep::str("each batch of ", *rows, " rows") : std::string("each batch");
  switch (d.rule) {
    case SplitRule::kWhole: return "the one replica gets the elements as they are";
    case SplitRule::kBalanced:
      return of_batch +
             (rows ? lockstep::str(" is cut into ",
                                   join(", ", balanced_parts(*rows, std::accumulate(d.replicas.begin(), d.replicas.end(), 0))),
                                   " for the replicas")
                   : " is cut evenly for the replicas, larger parts first");
    case SplitRule::kCeiling:
      return of_batch +
             " is cut into equal parts, the last ones smaller or empty (an operation after batch() may have changed the batch "
             "size, so that rows are not joined across batches)";
    case SplitRule::kRebatch:
      return lockstep::str("rows are joined across batches of ", rows.value_or(0), " and dealt to the replicas");
  }
  return "";
}

void explain_worker(std::ostream& out, const Distribution& d, int worker) {
  const auto here = d.replicas.begin() + worker;
  const int first = std::accumulate(d.replicas.begin(), here, 0);
  out << "worker " << worker << ": ";
  if (*here == 1) out << "replica " << first;
  else out << "replicas " << first << " to " << first + *here - 1;
  if (d.rule == SplitRule::kRebatch) {
    auto sizes = balanced_parts(d.dataset.static_shape().batch_size().value(), std::accumulate(here, d.replicas.end(), first));
    std::rotate(sizes.begin(), sizes.begin() + first, sizes.end());
    out << "; batches of " << join(", ", sizes) << " rows, in turn";
  }
  std::vector<std::string> names;
  const auto node = d.is_by_file ? shard_files(d.dataset.node(), d.workers(), worker) : d.dataset.node();
  if (node) collect_files(*node, names);
  if (!names.empty()) out << "; " << names.size() << (names.size() == 1 ? " file: " : " files: ") << shorten(names);
  out << "\n";
}

}  // namespace

std::string explain(const Distribution& d) {
  std::ostringstream out;
  out << explain_reading(d) << "\n" << explain_splitting(d) << "\n";
  for (int worker = 0; worker < d.workers(); ++worker) explain_worker(out, d, worker);
  return out.str();
}

}  // namespace lockstep::data::internal
