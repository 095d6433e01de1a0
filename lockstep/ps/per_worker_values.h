#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <utility>
#include <vector>

#include "lockstep/data/dataset.h"
#include "lockstep/ps/closure_messages.h"
#include "lockstep/ps/invoke.h"

namespace lockstep {

namespace ps {

// Arguments on their way: what is sent, and what must live until it has arrived.
struct Call {
  closures::Work work = {};
  std::vector<Piece> payload = {};
  std::vector<std::shared_ptr<const void>> kept = {};
};

// How something is made on every worker; and again on one that was started again. While somebody holds it, it is there.
struct ResourceRecord {
  std::uint64_t id = 0;
  Call call = {};
};

// The per-worker values of one coordinator. Thread-safe.
class ResourceTable : public std::enable_shared_from_this<ResourceTable> {
 public:
  std::shared_ptr<const ResourceRecord> add(Call call);

  // What a worker lacks that has `there`, in the order in which they were made, and what it has that nobody holds any more.
  struct Changes {
    std::vector<std::shared_ptr<const ResourceRecord>> creations = {};
    std::vector<std::uint64_t> drops = {};
  };
  Changes changes(const std::set<std::uint64_t>& there) const;
  // Another number when something was added or dropped since.
  std::uint64_t version() const noexcept { return version_.load(); }

 private:
  std::atomic<std::uint64_t> version_ = 0;

  // Guarded by mu_.
  mutable std::mutex mu_;
  std::map<std::uint64_t, std::weak_ptr<const ResourceRecord>> records_;
};

}  // namespace ps

// One T on each worker, made there by a function. Given to schedule() it becomes the T of the worker that runs the closure,
// which takes it as `T&`. Inside a structure it stays what it is, and the closure asks for local(). Cheap to copy: when the
// last copy is gone, and no closure needs it any more, the workers drop theirs.
template <typename T>
class PerWorkerValues {
 public:
  using value_type = T;

  explicit PerWorkerValues(std::shared_ptr<const ps::ResourceRecord> record) : record_(std::move(record)) {}
  explicit PerWorkerValues(std::shared_ptr<T> local) : local_(std::move(local)) {}

  // In a closure: the worker's. Throws kUnimplemented on the coordinator, where there is none.
  T& local() const {
    if (!local_)
      throw Error(ErrorCode::kUnimplemented,
                  "a per-worker value is on the workers and cannot be used on the coordinator: give it to schedule()");
    return *local_;
  }

  const std::shared_ptr<const ps::ResourceRecord>& record() const noexcept { return record_; }

 private:
  std::shared_ptr<const ps::ResourceRecord> record_;  // on the coordinator
  std::shared_ptr<T> local_;                          // on a worker
};

namespace ps {

template <typename T>
struct IsPerWorker : std::false_type {};
template <typename T>
struct IsPerWorker<PerWorkerValues<T>> : std::true_type {};

template <typename T>
struct ValueCodec<PerWorkerValues<T>> {
  static void encode(const PerWorkerValues<T>& values, Encoder& encoder) {
    if (!values.record()) throw Error(ErrorCode::kInvalidArgument, "a worker's own value cannot be sent away");
    encoder.put(values.record()->id);
    encoder.keep(values.record());
  }
  static PerWorkerValues<T> decode(Decoder& decoder) {
    const auto id = decoder.get<std::uint64_t>();
    return PerWorkerValues<T>(decoder.worker().template resource<T>(id));
  }
};

}  // namespace ps

using PerWorkerIterator = PerWorkerValues<data::Iterator>;

// A dataset on each worker, all of it: nothing is sharded by itself.
class PerWorkerDataset {
 public:
  PerWorkerDataset(std::shared_ptr<ps::ResourceTable> table, PerWorkerValues<data::Dataset> datasets)
      : table_(std::move(table)), datasets_(std::move(datasets)) {}

  // A new pass on every worker. Closures take the iterator as `data::Iterator&`. On a worker that was started again it begins
  // anew.
  PerWorkerIterator make_iterator() const;

  // The dataset itself, for closures that take a `const data::Dataset&`.
  const PerWorkerValues<data::Dataset>& values() const noexcept { return datasets_; }

 private:
  std::shared_ptr<ps::ResourceTable> table_;
  PerWorkerValues<data::Dataset> datasets_;
};

// The next element of a pass. Throws kOutOfRange at its end, which reaches who joins.
data::Element next_element(data::Iterator& iterator);

}  // namespace lockstep
