#include "lockstep/collective/communication_options.h"

#include "lockstep/base/error.h"
#include "lockstep/base/str.h"

namespace lockstep {

CommunicationImplementation parse_communication_implementation(const std::string& name) {
  const auto word = upper(name);
  if (word == "AUTO") return CommunicationImplementation::kAuto;
  if (word == "RING") return CommunicationImplementation::kRing;
  if (word == "NCCL") return CommunicationImplementation::kNccl;
  throw Error(ErrorCode::kInvalidArgument, str("'", name, "' is not a CommunicationImplementation; use AUTO, RING or NCCL"));
}

std::chrono::nanoseconds CommunicationOptions::timeout() const {
  return std::chrono::nanoseconds(static_cast<std::int64_t>(timeout_seconds.value_or(0) * 1e9));
}

void CommunicationOptions::validate() const {
  if (bytes_per_pack < 0)
    throw Error(ErrorCode::kInvalidArgument,
                str("CommunicationOptions: bytes_per_pack is ", bytes_per_pack, "; it must be 0 (one pack) or more"));
  constexpr double kLongest = 1e9;  // thirty years; nanoseconds have room for nine times as much
  if (timeout_seconds && !(*timeout_seconds >= 0 && *timeout_seconds <= kLongest))
    throw Error(ErrorCode::kInvalidArgument, str("CommunicationOptions: timeout_seconds is ", *timeout_seconds,
                                                 "; it must be 0 (the default of 30 minutes) or more, up to ", kLongest));
}

CommunicationOptions CommunicationOptions::merged_with(const CommunicationOptions& over) const {
  CommunicationOptions merged = *this;
  if (over.bytes_per_pack != 0) merged.bytes_per_pack = over.bytes_per_pack;
  if (over.timeout_seconds) merged.timeout_seconds = over.timeout_seconds;
  if (over.implementation != CommunicationImplementation::kAuto) merged.implementation = over.implementation;
  return merged;
}

std::vector<std::int64_t> group_by_size(const std::vector<std::int64_t>& bytes, std::int64_t bytes_per_pack) {
  if (bytes.empty()) return {};
  if (bytes_per_pack == 0) return {static_cast<std::int64_t>(bytes.size())};
  std::vector<std::int64_t> packs;
  std::int64_t pack_bytes = 0;
  for (const auto size : bytes) {
    if (packs.empty() || pack_bytes > bytes_per_pack) {
      packs.push_back(0);
      pack_bytes = 0;
    }
    ++packs.back();
    pack_bytes += size;
  }
  return packs;
}

}  // namespace lockstep
