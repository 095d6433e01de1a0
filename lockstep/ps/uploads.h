#pragma once

#include <ATen/core/Tensor.h>

#include <chrono>
#include <compare>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>

#include "lockstep/ps/memory.h"
#include "lockstep/ps/message.h"
#include "lockstep/ps/store_messages.h"

namespace lockstep::ps {

// What clients send in pieces, ahead of the request that needs it. Where memory is short, what had no new piece for the time
// `idle` is forgotten. Thread-safe.
class Uploads final : public Memory::Reserve {
 public:
  explicit Uploads(Memory& memory, std::chrono::nanoseconds idle = std::chrono::seconds(5));
  ~Uploads() override;
  Uploads(const Uploads&) = delete;
  Uploads& operator=(const Uploads&) = delete;

  // Reads a piece. One that comes again changes nothing. Throws kInvalidArgument for a piece that does not fit, kUnavailable
  // when there is no memory or the client has too much that waits.
  void stage(const StageRequest& request, Incoming& payload);
  // That a backup has this piece, too, of so many bytes, in a view of this epoch.
  void note_passed(const StageRequest& request, std::size_t bytes, std::uint64_t epoch);

  // The bytes, and the memory they count for. Throws kAborted when they are not all here: they must be sent again.
  struct Whole {
    at::Tensor bytes;
    Memory::Reservation reserved;
    std::uint64_t passed_in = 0;  // the epoch in which a backup has got all pieces; 0: in none
  };
  Whole take(const Sender& sender, std::uint32_t part, std::size_t bytes);

  std::size_t bytes() const;
  void give_back() override;

  static constexpr std::size_t kMostParts = 65'536;                        // of a client: one request may need so many
  static constexpr std::chrono::minutes kKept = std::chrono::minutes(10);  // after its last piece; then it is forgotten

 private:
  struct Upload;
  struct Key {
    std::uint64_t client;
    std::uint64_t sequence;
    std::uint32_t part;
    friend auto operator<=>(const Key&, const Key&) = default;
  };
  std::shared_ptr<Upload> find_or_make(const StageRequest& request);
  // Under mu_. Null: it is not there.
  std::shared_ptr<Upload> find(const Key& key, const StageRequest& request, const std::string& text);
  void forget(const Sender& sender);

  // Const after construction.
  const std::chrono::nanoseconds idle_;
  // Own synchronisation.
  Memory& memory_;

  mutable std::mutex mu_;
  // Guarded by mu_.
  std::map<Key, std::shared_ptr<Upload>> uploads_;
};

}  // namespace lockstep::ps
