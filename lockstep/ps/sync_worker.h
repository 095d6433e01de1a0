#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/ps/client.h"
#include "lockstep/ps/sync_messages.h"

namespace lockstep::ps {

struct SyncOptions {
  std::string model = "";                              // one name for all who take part
  std::optional<std::uint32_t> worker = std::nullopt;  // its number; none: it gives no gradients
  std::uint32_t gradients_per_step = 1;
  std::chrono::nanoseconds timeout = std::chrono::seconds(60);  // of each call here
  // A step that has been closed for so long is applied by who waits for it.
  std::chrono::nanoseconds help_after = std::chrono::milliseconds(200);
};

// One worker's part of Note [synchronous steps], or the coordinator's. Used by one thread at a time.
class SyncWorker {
 public:
  // The client must outlive it.
  SyncWorker(ParameterClient& client, const SyncOptions& options);

  // Before values are pulled: waits for the step that the gradients will be for. Throws kDeadlineExceeded saying which step
  // stands, whose gradients it has and who works on it.
  void begin();
  // Sends gradients, and values to assign. True: they count; when they were the last ones, the step is done. False: the step
  // had all its gradients before.
  bool push(const std::vector<ParameterClient::Update>& updates);
  // Returns when every step that has all its gradients is done. Throws as begin() does.
  void settle() { wait(std::nullopt); }

  std::optional<std::uint64_t> step() const noexcept { return step_; }  // what begin() waited for

 private:
  StepState wait(const std::optional<std::uint32_t>& worker);
  void finish(const StepState& closed, const Deadline& deadline);
  // A server has applied this worker's step: the arbiter must know it.
  void correct_arbiter(std::uint64_t next, const Deadline& deadline);
  [[noreturn]] void throw_late(const StepState& state) const;

  // Const after construction.
  ParameterClient& client_;
  const SyncOptions options_;
  const std::uint64_t number_;  // unguessable

  // Used by one thread at a time.
  std::uint64_t contributions_ = 0;
  std::optional<std::uint64_t> step_;
};

}  // namespace lockstep::ps
