#pragma once

#include <compare>
#include <cstdint>
#include <string>
#include <vector>

#include "lockstep/ps/store_messages.h"

// Synchronous steps of a model whose variables are on several servers: what workers and servers send each other.
//
// Note [synchronous steps]
// A step uses the mean of the first n gradients that come, of m workers: m - n of them are backups.
// 1. A worker asks the arbiter, server 0, which step collects gradients, and pulls the values. When it gave one to this step
//    already it waits for the next step; unless nobody else works on it: then it may give another one, so that a worker
//    without work, or a lost one, does not stop the others.
// 2. Its gradients go to all servers, which hold them for (step, contribution).
// 3. It commits its contribution at the arbiter. While the step collects, it is counted; the n-th closes the step. Later ones
//    are late: not counted, and what is held of them is dropped with the step.
// 4. Who closed the step tells all servers to apply it, with the list of what counts. They add it up in the order of the
//    workers' numbers, whoever came first. Then the arbiter is told to open the next one.
// 5. Who finds a step closed for a while does 4 himself: whoever closed it is maybe lost. All of 4 can be done again: a server
//    applies a step once (as client "sync:<model>" of its store, request step + 1: see Note [exactly once]).
// A server that has lost what it held (it was started again) applies what it has, and says so. An arbiter that has lost its
// place is told it by who comes.

namespace lockstep::ps {

namespace methods {
inline constexpr const char* kStepLook = "step.look";
inline constexpr const char* kStepCommit = "step.commit";
inline constexpr const char* kStepOpen = "step.open";
inline constexpr const char* kStepStage = "step.stage";
inline constexpr const char* kStepHold = "step.hold";
inline constexpr const char* kStepApply = "step.apply";
}  // namespace methods

// One gradient of all variables of a model. Their order is that of sums.
struct Contribution {
  std::uint32_t worker = 0;
  std::uint64_t client = 0;  // a process of it
  std::uint64_t number = 0;  // 1, 2, 3, ... of its contributions
  template <typename Fields>
  void list(Fields& fields) {
    fields(worker, client, number);
  }
  friend auto operator<=>(const Contribution&, const Contribution&) = default;
};

// Answered when this worker may begin a gradient, or after a while.
struct StepLookRequest {
  std::string model = "";
  std::optional<std::uint32_t> worker = std::nullopt;  // none: who only wants to know when no step is closed
  template <typename Fields>
  void list(Fields& fields) {
    fields(model, worker);
  }
};
struct StepState {
  std::uint64_t step = 0;
  bool is_closed = false;  // it has all its gradients, and is being applied
  bool may_begin = false;
  std::vector<Contribution> counted = {};  // in order, when it is closed
  std::vector<std::uint32_t> working = {};
  template <typename Fields>
  void list(Fields& fields) {
    fields(step, is_closed, may_begin, counted, working);
  }
};

struct StepCommitRequest {
  std::string model = "";
  std::uint64_t step = 0;
  Contribution from = {};
  std::uint32_t needed = 1;  // so many close the step
  template <typename Fields>
  void list(Fields& fields) {
    fields(model, step, from, needed);
  }
};
struct StepCommitReply {
  bool is_counted = false;
  StepState state = {};
  template <typename Fields>
  void list(Fields& fields) {
    fields(is_counted, state);
  }
};

// The step is applied everywhere: the next one collects.
struct StepOpenRequest {
  std::string model = "";
  std::uint64_t step = 0;
  template <typename Fields>
  void list(Fields& fields) {
    fields(model, step);
  }
};

// Gradients, and values to assign: an update that is done later. Payload and staged parts as UpdateRequest has them.
struct StepHoldRequest {
  Sender sender = {};  // of the staged parts
  std::string model = "";
  std::uint64_t step = 0;
  Contribution from = {};
  std::vector<Operation> operations = {};
  template <typename Fields>
  void list(Fields& fields) {
    fields(sender, model, step, from, operations);
  }
};
struct StepHoldReply {
  std::uint64_t next = 0;  // the first step that was not applied here; what is of an earlier one is not held
  template <typename Fields>
  void list(Fields& fields) {
    fields(next);
  }
};

struct StepApplyRequest {
  std::string model = "";
  std::uint64_t step = 0;
  std::vector<Contribution> counted = {};
  template <typename Fields>
  void list(Fields& fields) {
    fields(model, step, counted);
  }
};

}  // namespace lockstep::ps
