#pragma once

#include <cstdint>
#include <iosfwd>
#include <memory>
#include <string>
#include <vector>

#include "lockstep/data/dataset.h"

namespace lockstep {

// Who saw what in one pass over a distributed dataset, and whether that was every example once: every example that the workers'
// pipelines gave. Whether several workers' pipelines together give the whole data is known where they are cut out of the same
// (DATA); where each has its own files, that no two are the same. Compare `total` with what you expect.
struct ShardReport {
  enum class Verdict {
    kOnce,      // every example once
    kRepeated,  // every example `times` times, as the policy OFF says
    kSameData,  // workers whose data should differ have read the same
    kWrong,     // some examples more than once, or never
    kUnfinished,
  };

  Verdict verdict = Verdict::kUnfinished;
  std::vector<std::int64_t> examples = {};  // by replica of the whole job
  std::int64_t total = 0;                   // their sum
  std::int64_t in_dataset = 0;              // as the pipelines gave them, before they were divided
  std::int64_t times = 1;
  std::string why = "";  // a sentence

  bool is_once() const noexcept { return verdict == Verdict::kOnce; }
};

// A table: a line for each replica, then the verdict.
std::ostream& operator<<(std::ostream& out, const ShardReport& report);

namespace data::internal {

// How many examples, and the sum of a hash of each: equal for the same examples in any order.
struct RowSum {
  std::int64_t count = 0;
  std::uint64_t hash = 0;

  // Every row of the element; one that has a scalar is one example.
  void add(const Element& element);
  void add(const RowSum& other) {
    count += other.count;
    hash += other.hash;
  }
  bool operator==(const RowSum&) const = default;
};

// What passed in one pass so far. Written by the thread that iterates; read when the pass is over.
struct Tap {
  RowSum sum;
};
// Where a dataset's taps are found: that of the pass that was begun last.
struct TapPlace {
  std::shared_ptr<Tap> last;
};
// The input as it is; every pass counts what it gives.
NodePtr make_tap(NodePtr input, std::shared_ptr<TapPlace> place);

// How the workers' data relate.
enum class Sharing {
  kSame,  // all read the same, each keeps its part
  kOwn,   // each reads its own
  kAll,   // all read the same, and each uses all of it
};

// What one worker knows.
struct WorkerSums {
  RowSum read;
  std::vector<RowSum> replicas;
  bool is_over = false;

  std::string to_text() const;
  static WorkerSums from_text(const std::string& text);
};

ShardReport judge(const std::vector<WorkerSums>& workers, Sharing sharing);

}  // namespace data::internal
}  // namespace lockstep
