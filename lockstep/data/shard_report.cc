#include "lockstep/data/shard_report.h"

#include <ATen/ATen.h>

#include <bit>
#include <cstring>
#include <ostream>
#include <sstream>
#include <string_view>
#include <utility>

#include "lockstep/base/str.h"

namespace lockstep {
namespace data::internal {
namespace {

constexpr std::uint64_t kFirst = 0x9E3779B97F4A7C15;
constexpr std::uint64_t kSecond = 0xC2B2AE3D27D4EB4F;

std::uint64_t mix(std::uint64_t hash, std::uint64_t word) { return std::rotl((hash ^ word) * kFirst, 29) * kSecond; }

std::uint64_t mix_bytes(std::uint64_t hash, std::string_view bytes) {
  hash = mix(hash, bytes.size());
  for (; bytes.size() >= sizeof(std::uint64_t); bytes.remove_prefix(sizeof(std::uint64_t))) {
    std::uint64_t word = 0;
    std::memcpy(&word, bytes.data(), sizeof word);
    hash = mix(hash, word);
  }
  std::uint64_t rest = 0;
  std::memcpy(&rest, bytes.data(), bytes.size());
  return mix(hash, rest);
}

bool has_scalar(const Element& element) {
  for (const auto& component : element.components())
    if (component.sizes().empty()) return true;
  return false;
}

// Mixes row r of a component into hash r.
void mix_rows(const Component& component, std::vector<std::uint64_t>& hashes) {
  if (component.is_bytes()) {
    const auto& values = component.bytes().values;
    const auto each = values.size() / hashes.size();
    for (std::size_t i = 0; i < each * hashes.size(); ++i) hashes[i / each] = mix_bytes(hashes[i / each], values[i]);
    return;
  }
  const auto tensor = component.tensor().detach().cpu().contiguous();
  const auto* bytes = static_cast<const char*>(tensor.data_ptr());
  const auto each = tensor.nbytes() / hashes.size();
  for (std::size_t row = 0; row < hashes.size(); ++row) hashes[row] = mix_bytes(hashes[row], {bytes + row * each, each});
}

class TapStream final : public Stream<Element> {
 public:
  TapStream(std::unique_ptr<Stream<Element>> input, std::shared_ptr<Tap> tap)
      : input_(std::move(input)), tap_(std::move(tap)) {}

  bool next(Element& out) override {
    if (!input_->next(out)) return false;
    tap_->sum.add(out);
    return true;
  }
  void save(PositionWriter& to) override {
    to.begin("tap");
    to.put(tap_->sum.count);
    to.put(tap_->sum.hash);
    input_->save(to);
  }
  void restore(PositionReader& from) override {
    from.expect("tap");
    tap_->sum.count = from.number();
    tap_->sum.hash = from.unsigned_number();
    input_->restore(from);
  }

 private:
  const std::unique_ptr<Stream<Element>> input_;
  const std::shared_ptr<Tap> tap_;
};

class TapNode final : public UnaryNode {
 public:
  TapNode(NodePtr input, std::shared_ptr<TapPlace> place) : UnaryNode(std::move(input)), place_(std::move(place)) {}
  std::unique_ptr<Stream<Element>> open() const override {
    place_->last = std::make_shared<Tap>();
    return std::make_unique<TapStream>(input().open(), place_->last);
  }
  NodePtr with_inputs(std::vector<NodePtr> inputs) const override {
    return std::make_shared<TapNode>(std::move(inputs.at(0)), place_);
  }
  bool is_only_ahead() const override { return true; }
  std::int64_t cardinality() const override { return input().cardinality(); }
  StaticShape static_shape() const override { return input().static_shape(); }
  std::string describe() const override { return "Tap()"; }

 private:
  const std::shared_ptr<TapPlace> place_;
};

struct Sums {
  RowSum seen;  // by all replicas
  RowSum read;  // by all workers
  bool are_equal = true;
  int first_equal = -1, second_equal = -1;  // two workers that have read the same
};

Sums add_up(const std::vector<WorkerSums>& workers) {
  Sums sums;
  for (std::size_t w = 0; w < workers.size(); ++w) {
    for (const auto& replica : workers[w].replicas) sums.seen.add(replica);
    sums.read.add(workers[w].read);
    if (workers[w].read != workers[0].read) sums.are_equal = false;
    for (std::size_t other = 0; other < w; ++other)
      if (workers[w].read.count > 0 && workers[w].read == workers[other].read && sums.first_equal < 0) {
        sums.first_equal = static_cast<int>(other);
        sums.second_equal = static_cast<int>(w);
      }
  }
  return sums;
}

void judge_same(ShardReport& report, const std::vector<WorkerSums>& workers, const Sums& sums, std::int64_t times) {
  auto expected = workers[0].read;
  report.in_dataset = expected.count;
  report.times = times;
  expected.count *= times;
  expected.hash *= static_cast<std::uint64_t>(times);
  if (!sums.are_equal) {
    report.why = "the workers should have read the same data and have not: the pipeline gives other examples in each process";
  } else if (sums.seen == expected) {
    report.verdict = times == 1 ? ShardReport::Verdict::kOnce : ShardReport::Verdict::kRepeated;
    report.why = times == 1 ? "every example was seen once" : str("every example was seen ", times, " times");
  } else {
    report.why = str("the replicas saw ", sums.seen.count, " examples where the dataset has ", expected.count,
                     ": some were seen more than once or never");
  }
}

void judge_own(ShardReport& report, const Sums& sums) {
  report.in_dataset = sums.read.count;
  if (sums.first_equal >= 0) {
    report.verdict = ShardReport::Verdict::kSameData;
    report.why = str("workers ", sums.first_equal, " and ", sums.second_equal,
                     " have read the same data: give each its own, by shard() or an auto shard policy");
  } else if (sums.seen == sums.read) {
    report.verdict = ShardReport::Verdict::kOnce;
    report.why = "every example that a worker read was seen once, and no two workers read the same";
  } else {
    report.why = str("the replicas saw ", sums.seen.count, " examples, and the workers read ", sums.read.count,
                     ": some were seen more than once or never");
  }
}

}  // namespace

void RowSum::add(const Element& element) {
  if (element.empty()) return;
  const auto rows = has_scalar(element) ? 1 : element.components()[0].sizes()[0];
  if (rows == 0) return;
  std::vector<std::uint64_t> hashes(static_cast<std::size_t>(rows), kFirst);
  for (const auto& component : element.components()) mix_rows(component, hashes);
  for (const auto one : hashes) hash += one;
  count += rows;
}

NodePtr make_tap(NodePtr input, std::shared_ptr<TapPlace> place) {
  return std::make_shared<TapNode>(std::move(input), std::move(place));
}

std::string WorkerSums::to_text() const {
  std::ostringstream text;
  text << is_over << " " << read.count << " " << read.hash;
  for (const auto& replica : replicas) text << " " << replica.count << " " << replica.hash;
  return text.str();
}

WorkerSums WorkerSums::from_text(const std::string& text) {
  std::istringstream in(text);
  WorkerSums sums;
  in >> sums.is_over >> sums.read.count >> sums.read.hash;
  for (RowSum replica; in >> replica.count >> replica.hash;) sums.replicas.push_back(replica);
  return sums;
}

ShardReport judge(const std::vector<WorkerSums>& workers, Sharing sharing) {
  ShardReport report;
  bool is_over = true;
  for (const auto& worker : workers) {
    is_over = is_over && worker.is_over;
    for (const auto& replica : worker.replicas) report.examples.push_back(replica.count);
  }
  const auto sums = add_up(workers);
  report.total = sums.seen.count;
  if (!is_over) {
    report.why = "the pass has not ended: iterate to the end of the data first";
    return report;
  }
  report.verdict = ShardReport::Verdict::kWrong;
  if (sharing == Sharing::kOwn) judge_own(report, sums);
  else judge_same(report, workers, sums, sharing == Sharing::kAll ? static_cast<std::int64_t>(workers.size()) : 1);
  return report;
}

}  // namespace data::internal

std::ostream& operator<<(std::ostream& out, const ShardReport& report) {
  for (std::size_t replica = 0; replica < report.examples.size(); ++replica)
    out << "replica " << replica << "  " << report.examples[replica] << " examples\n";
  out << "in all  " << report.total << " examples";
  if (report.in_dataset > 0) out << " of " << report.in_dataset;
  return out << ": " << report.why << "\n";
}

}  // namespace lockstep
