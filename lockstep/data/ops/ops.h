#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "lockstep/data/node.h"

// The operations on datasets, each in the file of its name. data::Dataset has them as methods; what is not said here is said
// there. All throw kInvalidArgument for arguments that make no sense.

namespace lockstep::data::internal {

using ElementFunction = std::function<Element(const Element&)>;
using Predicate = std::function<bool(const Element&)>;
using DatasetFunction = std::function<NodePtr(const Element&)>;

struct BatchOptions {
  std::int64_t size = 0;
  bool drop_remainder = false;
};
NodePtr make_batch(NodePtr input, const BatchOptions& options);

struct PaddedBatchOptions {
  std::int64_t size = 0;
  bool drop_remainder = false;
  // By component; a size of -1, and a missing list, mean the longest of the batch.
  std::vector<std::vector<std::int64_t>> shapes = {};
  double value = 0;
};
NodePtr make_padded_batch(NodePtr input, const PaddedBatchOptions& options);

// The input's rows in batches of these sizes, in turn, joined across the input's own batches. A size of 0 makes an empty
// batch. The last batch may be smaller, unless drop_remainder.
NodePtr make_rebatch(NodePtr input, std::vector<std::int64_t> sizes, bool drop_remainder);
NodePtr make_unbatch(NodePtr input);

// `parallel`: calls under way at once; 1: on the thread that iterates.
struct MapOptions {
  int parallel = 1;
  bool is_ordered = true;
};
NodePtr make_map(NodePtr input, ElementFunction fn, const MapOptions& options = {});
NodePtr make_filter(NodePtr input, Predicate fn);
NodePtr make_take_while(NodePtr input, Predicate fn);
NodePtr make_flat_map(NodePtr input, DatasetFunction fn);

struct InterleaveOptions {
  std::int64_t cycle = 2;
  std::int64_t block = 1;
  int parallel = 1;  // inputs read at once
};
NodePtr make_interleave(NodePtr input, DatasetFunction fn, const InterleaveOptions& options);

// fn gives the next state and the element.
using ScanFunction = std::function<std::pair<Element, Element>(const Element& state, const Element& element)>;
NodePtr make_scan(NodePtr input, Element state, ScanFunction fn);
NodePtr make_enumerate(NodePtr input, std::int64_t start);

struct WindowOptions {
  std::int64_t size = 0;
  std::int64_t shift = 0;
  std::int64_t stride = 1;
  bool drop_remainder = false;
};
// Every element is `use` of the dataset of one window, joined.
NodePtr make_window(NodePtr input, const WindowOptions& options, std::function<NodePtr(NodePtr)> use);

using KeyFunction = std::function<std::int64_t(const Element&)>;
NodePtr make_group_by_window(NodePtr input, KeyFunction key, std::function<std::int64_t(std::int64_t)> size_of,
                             std::function<NodePtr(std::int64_t key, NodePtr window)> use);
NodePtr make_unique(NodePtr input);

NodePtr make_take(NodePtr input, std::int64_t count);
NodePtr make_skip(NodePtr input, std::int64_t count);
NodePtr make_repeat(NodePtr input, std::int64_t count);
NodePtr make_shard(NodePtr input, std::int64_t count, std::int64_t index);
// As make_shard. When the input has fewer elements than there are shards, whoever has one gets kInvalidArgument in its place.
NodePtr make_required_shard(NodePtr input, std::int64_t count, std::int64_t index);
// What that error says.
std::string too_few_for_shards(std::int64_t elements, std::int64_t shards);

struct ShuffleOptions {
  std::int64_t buffer_size = 0;
  std::optional<std::uint64_t> seed = std::nullopt;
  bool reshuffle_each_iteration = true;
};
NodePtr make_shuffle(NodePtr input, const ShuffleOptions& options);

// In memory, or in a file when one is named.
NodePtr make_cache(NodePtr input, std::string file);
// -1: as many as turn out to be needed.
NodePtr make_prefetch(NodePtr input, std::int64_t count);

NodePtr make_zip(std::vector<NodePtr> inputs);
NodePtr make_concatenate(NodePtr first, NodePtr second);
// `choice` gives int64 scalars, numbers of inputs. An input that has ended is passed over, or ends all.
NodePtr make_choose(std::vector<NodePtr> inputs, NodePtr choice, bool stops_on_empty);
// No weights: equal ones.
NodePtr make_sample(std::vector<NodePtr> inputs, std::vector<double> weights, std::optional<std::uint64_t> seed,
                    bool stops_on_empty);

}  // namespace lockstep::data::internal
