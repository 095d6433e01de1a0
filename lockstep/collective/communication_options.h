#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace lockstep {

// Which kind of engine carries a collective. AUTO: the best that serves the devices at hand.
enum class CommunicationImplementation { kAuto, kRing, kNccl };

// The older name of the same choice.
using CollectiveCommunication = CommunicationImplementation;

// "AUTO", "ring", ... in any case. Throws kInvalidArgument for another name.
CommunicationImplementation parse_communication_implementation(const std::string& name);

// Hints for collectives. Per-call options win over a strategy's, field by field, where they are not the default.
struct CommunicationOptions {
  // Several tensors are sent together until a pack is larger than this; 0: all in one pack.
  std::int64_t bytes_per_pack = 0;
  // A collective that waits longer than this fails with kDeadlineExceeded, naming who is missing. Absent or 0: 30 minutes.
  std::optional<double> timeout_seconds = std::nullopt;
  CommunicationImplementation implementation = CommunicationImplementation::kAuto;

  // timeout_seconds as a duration; 0 when it is absent.
  std::chrono::nanoseconds timeout() const;

  // Throws kInvalidArgument when a field is out of range.
  void validate() const;

  // These options with the fields of `over` that are not at their default.
  CommunicationOptions merged_with(const CommunicationOptions& over) const;
};

// The older name, without an implementation.
using CollectiveHints = CommunicationOptions;

// Cuts a list of tensors, given by their sizes, into packs, in order: a new pack is begun when the current one is
// larger than `bytes_per_pack`. Returns the number of tensors in each pack. 0 puts everything in one pack.
std::vector<std::int64_t> group_by_size(const std::vector<std::int64_t>& bytes, std::int64_t bytes_per_pack);

}  // namespace lockstep
