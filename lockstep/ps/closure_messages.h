#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "lockstep/base/error.h"

// What a coordinator and the workers say to each other (ps/fields.h).
//
// Note [a batch of closures]
// 1. The coordinator says kHello. The worker answers with its incarnation: a number that another process, or the same one
//    started again, does not have. A new coordinator takes the worker over: what the last one made there is dropped.
// 2. kRun carries what is to be dropped, the per-worker values that are to be made, and closures. All is done in this order, by
//    one thread. A request of another coordinator, or for another incarnation, is refused with kAborted: say hello again.
// 3. When the closures have used more time than a few milliseconds the rest is given back, so that a slow closure does not hold
//    short ones that another worker could run.
// 4. kCancel names a batch: closures of it that have not begun are not run, and the one that runs can see that it is unwanted.

namespace lockstep::ps::closures {

constexpr const char* kHello = "closures.hello";
constexpr const char* kRun = "closures.run";
constexpr const char* kCancel = "closures.cancel";
constexpr const char* kStatus = "closures.status";

struct Hello {
  std::uint64_t coordinator = 0;
  std::uint64_t next_batch = 0;  // those with smaller numbers are of no use any more
  template <typename Fields>
  void list(Fields& fields) {
    fields(coordinator, next_batch);
  }
};

struct Welcome {
  std::uint64_t incarnation = 0;
  template <typename Fields>
  void list(Fields& fields) {
    fields(incarnation);
  }
};

// A function to call, or whose result is to be kept.
struct Work {
  std::uint64_t id = 0;  // of what is kept
  std::string function = "";
  std::string arguments = "";
  std::uint64_t payload_bytes = 0;
  template <typename Fields>
  void list(Fields& fields) {
    fields(id, function, arguments, payload_bytes);
  }
};

struct Batch {
  std::uint64_t coordinator = 0;
  std::uint64_t incarnation = 0;
  std::uint64_t number = 0;
  std::vector<std::uint64_t> drops = {};
  std::vector<Work> creations = {};
  std::vector<Work> calls = {};
  template <typename Fields>
  void list(Fields& fields) {
    fields(coordinator, incarnation, number, drops, creations, calls);
  }
};

enum class Ending : std::uint8_t { kDone, kFailed, kNotRun };

struct Outcome {
  Ending ending = Ending::kNotRun;
  ErrorCode code = ErrorCode::kInternal;
  std::string text = "";
  std::string task = "";  // that the error is about; empty: it is the function's own
  std::string result = "";
  std::uint64_t payload_bytes = 0;
  template <typename Fields>
  void list(Fields& fields) {
    fields(ending, code, text, task, result, payload_bytes);
  }
};

struct Outcomes {
  std::vector<Outcome> creations = {};
  std::vector<Outcome> calls = {};
  std::uint64_t nanoseconds = 0;  // that the calls took
  template <typename Fields>
  void list(Fields& fields) {
    fields(creations, calls, nanoseconds);
  }
};

struct Cancel {
  std::uint64_t coordinator = 0;
  std::uint64_t batch = 0;
  template <typename Fields>
  void list(Fields& fields) {
    fields(coordinator, batch);
  }
};

// What a worker does now.
struct Status {
  std::uint64_t incarnation = 0;
  std::string function = "";      // that runs; empty: none
  std::uint64_t nanoseconds = 0;  // for so long
  std::uint64_t finished = 0;     // closures since it started, and those of them that failed
  std::uint64_t failed = 0;
  std::uint64_t resources = 0;
  std::uint64_t waiting = 0;  // closures that have come with the one that runs
  template <typename Fields>
  void list(Fields& fields) {
    fields(incarnation, function, nanoseconds, finished, failed, resources, waiting);
  }
};

}  // namespace lockstep::ps::closures
