#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "lockstep/base/gate.h"
#include "lockstep/collective/engine_plugin.h"
#include "lockstep/collective/shared_block.h"
#include "lockstep/collective/transport.h"

namespace lockstep {

// One block of memory for each rank of a machine, all of them mapped here.
struct SharedBlocks {
  std::vector<SharedBlock> blocks;  // by rank

  std::byte* data(int rank) const { return blocks[static_cast<std::size_t>(rank)].data(); }
};

// The `shm` engine: processes of one machine.
//
// Note [shared memory rounds]
// 1. Every rank owns a block with a counter, two slots for small messages and two windows for large ones. A round: write
//    into the slot or window of the round's parity, move the own counter on, wait until all others' counters have come as
//    far, read theirs. One wait a round.
// 2. A rank writes the same slot again two rounds later. It gets there only after everybody has begun the round between,
//    and so has read what was there.
// 3. There is no lock and nothing to clean up: a rank that dies leaves a counter that stands still. Whoever watches the
//    job calls abort().
class ShmTransport final : public Transport {
 public:
  // Throws kUnavailable when the memory cannot be shared.
  explicit ShmTransport(const EngineSetup& setup);
  ~ShmTransport() override;

  std::string name() const override { return "shm"; }
  int rank() const override { return rank_; }
  int size() const override { return size_; }
  void all_to_all(std::span<const ConstBytes> send, std::span<const Bytes> receive) override;
  void all_gather(std::span<const Bytes> parts) override;
  void broadcast(Bytes data, int root) override;
  void barrier() override { meet(); }
  void all_reduce(SumType type, Bytes data) override;
  void abort(const Error& why) noexcept override;

  // Everybody's message, by rank, of at most kSmall bytes. Readable until this rank's next call.
  static constexpr std::size_t kSmall = 4032;
  std::span<const ConstBytes> exchange(ConstBytes mine);

  // New memory that all ranks see, `bytes` for each (they may differ). All ranks call it.
  SharedBlocks share(std::size_t bytes);

  // In the memory that share() gave: everybody's `count` elements at `offset` become their sum, in the canonical order of
  // ranks.
  void sum_shared(SumType type, const SharedBlocks& blocks, std::size_t offset, std::int64_t count);

 private:
  struct Control;

  Control& control(int rank) const;
  std::byte* window(int rank, std::uint32_t round) const;
  void meet();  // moves on, waits for the others
  void wait_for(int rank);
  void throw_if_aborted();

  // Const after construction.
  const int rank_;
  const int size_;
  SharedBlocks blocks_;

  // Used only by the thread that calls.
  std::uint32_t round_ = 0;
  std::vector<ConstBytes> messages_;

  // Own synchronisation.
  std::atomic<bool> is_aborted_{false};

  // Guarded by mu_.
  std::mutex mu_;
  std::optional<Error> why_;
};

}  // namespace lockstep
