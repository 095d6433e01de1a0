#include "lockstep/ps/rpc_lane.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "lockstep/base/random.h"
#include "lockstep/base/str.h"

namespace lockstep::ps::internal {
namespace {

constexpr std::size_t kFlagBytes = 4096;
constexpr std::size_t kMostSlots = kFlagBytes / sizeof(std::uint32_t);
static_assert(std::atomic<std::uint32_t>::is_always_lock_free);  // two processes use them

std::size_t block_bytes(std::size_t wanted) {
  const auto slots = std::clamp(wanted / kSlotBytes, std::size_t{2}, kMostSlots) / 2 * 2;
  return kFlagBytes + slots * kSlotBytes;
}

}  // namespace

Lane::Lane(std::size_t bytes) : Lane(SharedBlock(block_bytes(bytes))) { id_ = unguessable_number() | 1; }

Lane::Lane(SharedBlock block) : block_(std::move(block)) {
  const auto bytes = block_.bytes();
  if (bytes != block_bytes(bytes < kFlagBytes ? 0 : bytes - kFlagBytes))
    throw Error(ErrorCode::kInvalidArgument, str("shared memory of ", bytes, " bytes is no lane"));
  slots_ = static_cast<std::uint32_t>((bytes - kFlagBytes) / kSlotBytes / 2);
}

std::shared_ptr<Lane> Lane::open(const Offer& offer) {
  return std::shared_ptr<Lane>(new Lane(SharedBlock::open(offer.ticket)));
}

Offer Lane::offer() const { return {id_, machine_key(), block_.ticket()}; }

std::atomic<std::uint32_t>& Lane::is_taken(std::uint32_t slot) const {
  return reinterpret_cast<std::atomic<std::uint32_t>*>(block_.data())[slot];
}

std::byte* Lane::memory(std::uint32_t slot) const { return block_.data() + kFlagBytes + slot * kSlotBytes; }

std::optional<std::vector<std::uint32_t>> Lane::put(Half half, const std::vector<Piece>& payload, std::size_t bytes) {
  const auto count = (bytes + kSlotBytes - 1) / kSlotBytes;
  if (bytes < kSharedFrom || count > slots_) return std::nullopt;
  std::vector<std::uint32_t> slots;
  // The first free ones: they were used last, and are in the caches.
  for (auto slot = first(half); slot < first(half) + slots_ && slots.size() < count; ++slot) {
    std::uint32_t no = 0;
    if (is_taken(slot).compare_exchange_strong(no, 1, std::memory_order_acquire)) slots.push_back(slot);
  }
  if (slots.size() < count) {
    free(slots);
    return std::nullopt;
  }
  std::vector<Bytes> pieces;
  pieces.reserve(payload.size());
  for (const auto& piece : payload) pieces.push_back(piece.bytes);
  Cursor cursor(std::move(pieces));
  for (const auto slot : slots) cursor.read({memory(slot), std::min(kSlotBytes, cursor.left())});
  return slots;
}

std::vector<Bytes> Lane::find(Half half, const std::vector<std::uint32_t>& slots, std::uint64_t bytes) const {
  if (slots.size() > slots_ || bytes > slots.size() * kSlotBytes)
    throw Error(ErrorCode::kInvalidArgument, str("a message's payload of ", bytes, " bytes does not lie in ", slots.size(),
                                                 " slots of its lane, which has ", slots_));
  std::vector<Bytes> found;
  for (const auto slot : slots) {
    if (slot < first(half) || slot - first(half) >= slots_)
      throw Error(ErrorCode::kInvalidArgument, str("a message's payload does not lie in slot ", slot, " of its lane"));
    const auto here = std::min<std::uint64_t>(bytes, kSlotBytes);
    found.emplace_back(memory(slot), here);
    bytes -= here;
  }
  return found;
}

void Lane::free(const std::vector<std::uint32_t>& slots) noexcept {
  for (const auto slot : slots) is_taken(slot).store(0, std::memory_order_release);
}

}  // namespace lockstep::ps::internal
