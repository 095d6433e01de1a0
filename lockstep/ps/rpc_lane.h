#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/collective/shared_block.h"
#include "lockstep/ps/fields.h"
#include "lockstep/ps/message.h"
#include "lockstep/ps/rpc_bytes.h"

namespace lockstep::ps::internal {

// Note [lanes]
// Large payloads between two processes of one machine go through memory that both have open, not through a socket. A channel
// makes a block, its lane, and offers it in a call that stays open as long as the lane is used: kShare, with an Offer. A server
// that can open the block answers, and knows the lane until that call ends, which it also does when the client has died. Who
// refuses (another machine, another user, no wish) is not asked again, and everything goes through gRPC, as it does when no
// slot is free. Nobody waits for a slot.
//
// The block is cut into slots, half of them for requests, half for replies, with a flag each that says whether it is taken.
//   1. The client takes slots for a request, and frees them when the server has answered: then nobody reads them.
//   2. The server takes slots for a reply; the client frees them when it has read them.
//   3. A call that ends without the server's answer (cancelled, lost, too late) leaves slots that the server may still read or
//      write. Nobody knows which. The channel lets go of the lane, and makes another one; calls that are under way use the old
//      one to their end. Each side's mapping goes with the last of its calls.

inline constexpr std::size_t kSlotBytes = 256 << 10;
// Smaller payloads are as fast in gRPC (measured at 16 and 32 KB; at 64 KB these are twice as fast).
inline constexpr std::size_t kSharedFrom = 64 << 10;

inline constexpr const char* kShare = "/lockstep.share";

struct Offer {
  std::uint64_t lane = 0;
  std::string machine = "";
  std::string ticket = "";
  template <typename Fields>
  void list(Fields& fields) {
    fields(lane, machine, ticket);
  }
};

class Lane {
 public:
  // The client's end. Throws kUnavailable when there is no memory to share.
  explicit Lane(std::size_t bytes);
  // The server's. Throws kUnavailable when it cannot be opened from here, kInvalidArgument for what is no lane.
  static std::shared_ptr<Lane> open(const Offer& offer);

  enum class Half { kRequests, kReplies };

  std::uint64_t id() const noexcept { return id_; }
  Offer offer() const;
  // After the server has opened it.
  void close_ticket() noexcept { block_.close_ticket(); }

  // The payload in slots of `half`; nothing: too few are free, or it is too small.
  std::optional<std::vector<std::uint32_t>> put(Half half, const std::vector<Piece>& payload, std::size_t bytes);
  // Where `bytes` lie that were put into these. Throws kInvalidArgument for slots that are not of `half`, or do not fit.
  std::vector<Bytes> find(Half half, const std::vector<std::uint32_t>& slots, std::uint64_t bytes) const;
  void free(const std::vector<std::uint32_t>& slots) noexcept;

 private:
  explicit Lane(SharedBlock block);

  std::atomic<std::uint32_t>& is_taken(std::uint32_t slot) const;
  std::byte* memory(std::uint32_t slot) const;
  std::uint32_t first(Half half) const { return half == Half::kRequests ? 0 : slots_; }

  SharedBlock block_;
  std::uint32_t slots_ = 0;  // of a half
  std::uint64_t id_ = 0;
};

}  // namespace lockstep::ps::internal
