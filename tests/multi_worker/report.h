#pragma once

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/collective/indexed_slices.h"
#include "lockstep/strategy/multi_worker_mirrored_strategy.h"

namespace lockstep::testing {

// A value in one line: dtype, shape, and its elements, so that equal texts mean equal bits; a digest in their place when
// there are many.
std::string text_of(const at::Tensor& value);
std::string text_of(const IndexedSlices& value);
std::string text_of(const std::vector<at::Tensor>& values);
std::string text_of(std::optional<ErrorCode> code);  // "no error" without one
inline std::string text_of(const std::string& text) { return text; }

// A number that other bytes, or the same in another order, are unlikely to have.
std::uint64_t digest(const std::vector<at::Tensor>& tensors);

// Equal dtypes and shapes, and elements that differ by no more than a few roundings of that dtype.
bool is_close(const at::Tensor& found, const at::Tensor& wanted);

// The code of the lockstep::Error that `body` throws; nothing when it throws none.
template <typename Body>
std::optional<ErrorCode> code_of_call(Body&& body) {
  try {
    body();
  } catch (const Error& error) {
    return error.code();
  }
  return std::nullopt;
}

// What a worker prints about the calls that it makes, a line each: "part/what = value". All workers print the same lines,
// but for those of single replicas, "part/what @3 = value", which the worker with that replica prints. On another number of
// workers, with the same number of replicas, the lines of all workers together are the same.
class Report {
 public:
  explicit Report(const MultiWorkerMirroredStrategy& strategy) : strategy_(strategy) {}

  // What the names of the next lines begin with.
  void begin(const std::string& part) { part_ = part; }

  template <typename T>
  void all(const std::string& what, const T& value) {
    print(what, text_of(value));
  }
  template <typename T>
  void each(const std::string& what, const PerReplica<T>& values) {
    for (std::size_t r = 0; r < values.size(); ++r) print(of_replica(what, r), text_of(values[r]));
  }

  // The same, and the value must be what is wanted. "WRONG" in the line, if it is not.
  void expect(const std::string& what, const at::Tensor& found, const at::Tensor& wanted);
  void expect(const std::string& what, const std::string& found, const std::string& wanted);
  void expect(const std::string& what, std::optional<ErrorCode> found, std::optional<ErrorCode> wanted) {
    expect(what, text_of(found), text_of(wanted));
  }
  // `wanted` of every replica, by its id in the job.
  void expect_each(const std::string& what, const PerReplica<at::Tensor>& found, const std::function<at::Tensor(int)>& wanted);

  // For what depends on the number of workers: "right", or WRONG and what was found.
  void check(const std::string& what, const std::string& found, const std::string& wanted);

  // Lines that are wrong.
  std::size_t wrong() const noexcept { return wrong_; }

 private:
  void print(const std::string& what, const std::string& value);
  std::string of_replica(const std::string& what, std::size_t local_replica) const;

  // Const after construction.
  const MultiWorkerMirroredStrategy& strategy_;

  // Used by one thread.
  std::string part_;
  std::size_t wrong_ = 0;
};

}  // namespace lockstep::testing
