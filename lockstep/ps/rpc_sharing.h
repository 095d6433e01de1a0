#pragma once

#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/grpcpp.h>

#include <condition_variable>
#include <memory>
#include <mutex>

#include "lockstep/ps/rpc.h"
#include "lockstep/ps/rpc_lane.h"

namespace lockstep::ps::internal {

// The secret and the build's name, which every call carries.
void introduce(grpc::ClientContext& context, const RpcOptions& options);

// The client's end of a lane, and the call that keeps it known to the server. The destructor waits for gRPC, so it must not run
// on a thread of gRPC's.
class SharedLane final : private grpc::ClientBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer> {
 public:
  SharedLane(grpc::GenericStub& stub, const RpcOptions& options);
  ~SharedLane() override;
  SharedLane(const SharedLane&) = delete;
  SharedLane& operator=(const SharedLane&) = delete;

  enum class Phase { kOffered, kOpen, kRefused, kOver };
  Phase phase() const;
  Lane& lane() { return lane_; }

 private:
  void OnReadDone(bool is_ok) override;
  void OnDone(const grpc::Status& status) override;
  bool is_accepted() const;

  Lane lane_;  // own synchronisation

  // gRPC's until has_ended_.
  grpc::ClientContext context_;
  grpc::ByteBuffer offer_;
  grpc::ByteBuffer answer_;

  // Guarded by mu_.
  mutable std::mutex mu_;
  std::condition_variable changed_;
  Phase phase_ = Phase::kOffered;
  bool has_ended_ = false;
};

// A channel's lane, when there can be one. Thread-safe.
class Sharing {
 public:
  Sharing(std::shared_ptr<grpc::Channel> channel, grpc::GenericStub& stub, const RpcOptions& options)
      : channel_(std::move(channel)), stub_(stub), options_(options), is_wanted_(options.shared_bytes > 0) {}

  // One that the server knows; null: there is none now. Never waits: whoever asks first offers one for those who ask later.
  std::shared_ptr<SharedLane> lane();
  bool is_open() const;
  // Not for new calls (Note [lanes], 3).
  void drop(const std::shared_ptr<SharedLane>& lane);
  // No lane any more. Not on a thread of gRPC's.
  void close();

 private:
  std::shared_ptr<SharedLane> offer() const;

  // Const after construction.
  const std::shared_ptr<grpc::Channel> channel_;
  grpc::GenericStub& stub_;
  const RpcOptions options_;

  // Guarded by mu_.
  mutable std::mutex mu_;
  bool is_wanted_;
  std::shared_ptr<SharedLane> lane_;
};

}  // namespace lockstep::ps::internal
