#pragma once

#include <c10/core/Device.h>
#include <c10/core/Stream.h>
#include <c10/core/StreamGuard.h>

#include <optional>
#include <vector>

namespace lockstep {

// The streams on which the replicas of a strategy compute, one for each that is on a GPU.
//
// Note [streams of replicas]
// 1. A replica's function runs with its own stream as the current one, so that replicas of one GPU compute at the same time,
//    and a step can be recorded (Note [recorded steps]).
// 2. Everything outside the replicas' functions is on the caller's streams, as in a program without replicas. fork() puts what
//    the caller has queued before what replicas queue, join() the other way round: around run(), and around the function of a
//    merge, when no replica queues anything.
//    LibTorch adds gradients up on the stream that was current when a parameter was first hooked: hooks are made with use().
// 3. Memory that a replica's stream has allocated may be freed by the caller at any time: what replicas allocate next is used
//    after the next fork(), and so after what the caller has queued.
class ReplicaStreams {
 public:
  explicit ReplicaStreams(const std::vector<c10::Device>& devices);

  // The replica's stream; nothing on the CPU.
  const std::optional<c10::Stream>& of(std::size_t replica) const { return streams_[replica]; }

  // While it lives the calling thread's current stream, and device, is that one; nothing: it changes nothing.
  class [[nodiscard]] Use {
   public:
    explicit Use(const std::optional<c10::Stream>& stream) {
      if (stream) guard_.reset_stream(*stream);
    }

   private:
    c10::OptionalStreamGuard guard_;
  };
  Use use(std::size_t replica) const { return Use(streams_[replica]); }

  // What replicas queue from now on is done after what the calling thread has queued on their devices.
  void fork() const {
    if (is_any_) fork_all();
  }
  // What the calling thread queues from now on is done after what the replicas have queued.
  void join() const {
    if (is_any_) join_all();
  }

 private:
  void fork_all() const;
  void join_all() const;

  // Const after construction.
  std::vector<std::optional<c10::Stream>> streams_;
  bool is_any_ = false;
};

}  // namespace lockstep
