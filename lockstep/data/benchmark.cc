#include "lockstep/data/benchmark.h"

#include <algorithm>
#include <atomic>
#include <iomanip>
#include <memory>
#include <ostream>
#include <utility>

#include "lockstep/base/str.h"
#include "lockstep/data/ops/reorder.h"

namespace lockstep::data {
namespace {

using Clock = std::chrono::steady_clock;
using internal::Node;
using internal::NodePtr;

double seconds(std::chrono::nanoseconds duration) { return std::chrono::duration<double>(duration).count(); }

// What was measured at one node. Written by the thread that iterates it.
struct Meter {
  std::atomic<std::int64_t> items{0};
  std::atomic<std::int64_t> nanoseconds{0};  // with its inputs
  std::atomic<std::int64_t> asked{0};
  std::atomic<std::int64_t> ready{0};  // added up over `asked`
};

// A row number takes less time than looking at the clock: every 64th is timed, for all.
template <typename Item>
constexpr std::int64_t kEvery = std::is_same_v<Item, Element> ? 1 : 64;

template <typename Item>
class MeteredStream final : public internal::Stream<Item> {
 public:
  MeteredStream(internal::StreamPtr<Item> input, std::shared_ptr<Meter> meter)
      : input_(std::move(input)), meter_(std::move(meter)) {}

  bool next(Item& out) override {
    const bool is_timed = calls_++ % kEvery<Item> == 0;
    if (!is_timed) return count(input_->next(out));
    if (const auto ready = input_->ready()) {
      meter_->asked.fetch_add(1, std::memory_order_relaxed);
      meter_->ready.fetch_add(static_cast<std::int64_t>(*ready), std::memory_order_relaxed);
    }
    const auto begin = Clock::now();
    const bool has_one = count(input_->next(out));
    meter_->nanoseconds.fetch_add((Clock::now() - begin).count() * kEvery<Item>, std::memory_order_relaxed);
    return has_one;
  }
  void save(internal::PositionWriter& to) override { input_->save(to); }
  void restore(internal::PositionReader& from) override { input_->restore(from); }

 private:
  bool count(bool has_one) {
    if (has_one) meter_->items.fetch_add(1, std::memory_order_relaxed);
    return has_one;
  }

  const internal::StreamPtr<Item> input_;
  const std::shared_ptr<Meter> meter_;
  std::int64_t calls_ = 0;
};

class MeteredNode final : public internal::ReorderNode<MeteredNode> {
 public:
  MeteredNode(NodePtr input, std::shared_ptr<Meter> meter) : ReorderNode(std::move(input)), meter_(std::move(meter)) {}

  template <typename Item>
  internal::StreamPtr<Item> open_items() const {
    return std::make_unique<MeteredStream<Item>>(internal::open_as<Item>(input()), meter_);
  }
  NodePtr on(NodePtr input) const { return std::make_shared<MeteredNode>(std::move(input), meter_); }
  // In a printed pipeline it is the node that it measures: a cache file is known by that.
  std::vector<NodePtr> inputs() const override { return input().inputs(); }
  const std::vector<std::string>* files() const override { return input().files(); }
  NodePtr with_inputs(std::vector<NodePtr> inputs) const override { return on(input().with_inputs(std::move(inputs))); }
  std::int64_t cardinality() const override { return input().cardinality(); }
  std::string describe() const override { return input().describe(); }

 private:
  const std::shared_ptr<Meter> meter_;
};

struct Stage {
  std::shared_ptr<Meter> meter = std::make_shared<Meter>();
  StageTime time = {};
  std::vector<std::size_t> inputs = {};  // stages
  bool has_own_thread = false;
};

// The same pipeline with a meter behind every node. The stages come in the order of a printed tree.
NodePtr metered(const NodePtr& node, int depth, std::vector<Stage>& stages) {
  const auto place = stages.size();
  stages.emplace_back();
  stages[place].time = {.stage = node->describe(), .depth = depth};
  stages[place].has_own_thread = node->has_own_thread();
  std::vector<NodePtr> inputs;
  for (const auto& input : node->inputs()) {
    stages[place].inputs.push_back(stages.size());
    inputs.push_back(metered(input, depth + 1, stages));
  }
  auto same = inputs.empty() ? node : node->with_inputs(std::move(inputs));
  return std::make_shared<MeteredNode>(std::move(same), stages[place].meter);
}

void read_meters(std::vector<Stage>& stages) {
  for (auto& stage : stages) {
    auto own = stage.meter->nanoseconds.load();
    if (!stage.has_own_thread)
      for (const auto input : stage.inputs) own -= stages[input].meter->nanoseconds.load();
    stage.time.seconds = seconds(std::chrono::nanoseconds(std::max<std::int64_t>(0, own)));
    stage.time.elements = stage.meter->items.load();
    if (const auto asked = stage.meter->asked.load(); asked > 0)
      stage.time.ready = static_cast<double>(stage.meter->ready.load()) / static_cast<double>(asked);
  }
}

const char* advice(const std::string& stage, bool is_source) {
  if (stage.starts_with("Map(fn)")) return "; map(fn, kAutotune) uses several cores";
  if (stage.starts_with("Map(")) return "; its function is slow: make it cheaper, or apply it to batches";
  if (stage.starts_with("Interleave(")) return "; read more files at once (cycle, parallel)";
  if (is_source) return "; prefetch() reads ahead, interleave() reads several files at once, cache() reads once";
  return "";
}

// What a stage with a thread of its own waits for is its input's doing.
std::string find_slowest(const std::vector<Stage>& stages) {
  const Stage* slowest = nullptr;
  for (const auto& stage : stages)
    if (!stage.has_own_thread && (slowest == nullptr || stage.time.seconds > slowest->time.seconds)) slowest = &stage;
  if (slowest == nullptr) return "";
  return lockstep::str(slowest->time.stage, advice(slowest->time.stage, slowest->inputs.empty()));
}

}  // namespace

PipelineReport Dataset::benchmark() const { return benchmark(BenchmarkOptions()); }

PipelineReport Dataset::benchmark(const BenchmarkOptions& options) const {
  std::vector<Stage> stages;
  const auto pipeline = metered(node_, 0, stages);
  PipelineReport report;
  {
    const auto stream = pipeline->open();
    const auto begin = Clock::now();
    Element element;
    while (report.elements != options.elements && Clock::now() - begin < options.at_most && stream->next(element))
      ++report.elements;
    report.seconds = seconds(Clock::now() - begin);
  }
  read_meters(stages);
  for (const auto& stage : stages) report.stages.push_back(stage.time);
  report.slowest = find_slowest(stages);
  return report;
}

std::ostream& operator<<(std::ostream& out, const PipelineReport& report) {
  const auto flags = out.flags();
  const auto precision = out.precision();
  out << std::fixed << std::setprecision(0) << report.elements_per_second() << " elements/s (" << report.elements << " in "
      << std::setprecision(3) << report.seconds << " s)\n";
  for (const auto& stage : report.stages) {
    const auto name = std::string(static_cast<std::size_t>(2 * stage.depth), ' ') + stage.stage;
    out << std::left << std::setw(44) << name << std::right << std::setw(12) << stage.elements << " elements  " << std::setw(9)
        << stage.seconds << " s";
    if (stage.ready) out << std::setprecision(1) << "  " << *stage.ready << " ready" << std::setprecision(3);
    out << "\n";
  }
  if (!report.slowest.empty()) out << "slowest: " << report.slowest << "\n";
  out.flags(flags);
  out.precision(precision);
  return out;
}

}  // namespace lockstep::data
