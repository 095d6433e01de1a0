#pragma once

#include <cstddef>
#include <span>
#include <string>

#include "lockstep/base/error.h"
#include "lockstep/collective/tree_sum.h"

namespace lockstep {

using Bytes = std::span<std::byte>;
using ConstBytes = std::span<const std::byte>;

// What an engine gives: bytes between the processes of a job, whose ranks count from 0. The whole contract of an engine.
//
// All participants make the same calls in the same order, one at a time, with sizes that fit together; a call returns when
// this participant's part of it is done. Nothing here knows a deadline: whoever calls has somebody watch the time, who
// ends all calls, and those that come later, with abort(). A lost peer ends a call with kUnavailable as soon as the
// engine notices.
class Transport {
 public:
  virtual ~Transport() = default;

  virtual std::string name() const = 0;
  virtual int rank() const = 0;
  virtual int size() const = 0;

  // receive[r] becomes what rank r has in its send[rank()]. This rank's own parts are not touched. Parts may be empty.
  virtual void all_to_all(std::span<const ConstBytes> send, std::span<const Bytes> receive) = 0;

  // parts[r] becomes rank r's parts[r]; parts[rank()] is what this rank gives. Sizes may differ between ranks.
  virtual void all_gather(std::span<const Bytes> parts) = 0;

  // `data` becomes root's.
  virtual void broadcast(Bytes data, int root) = 0;

  virtual void barrier() = 0;

  // The engine's own sum, in whatever order it likes, in place. Throws kUnimplemented when it has none.
  virtual void all_reduce(SumType type, Bytes data) = 0;

  // Of an engine whose memory is a GPU's: the stream (cudaStream_t) of its calls. They wait for what was queued there
  // before, and nothing else; null otherwise.
  virtual void* stream() const noexcept { return nullptr; }

  // Ends the call that is under way, and all later ones, with `why`. From any thread, more than once.
  virtual void abort(const Error& why) noexcept = 0;
};

}  // namespace lockstep
