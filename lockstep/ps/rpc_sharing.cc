#include "lockstep/ps/rpc_sharing.h"

#include <grpcpp/grpcpp.h>

#include <utility>

#include "lockstep/base/log.h"
#include "lockstep/base/str.h"
#include "lockstep/ps/rpc_buffers.h"

namespace lockstep::ps::internal {

void introduce(grpc::ClientContext& context, const RpcOptions& options) {
  context.AddMetadata(kSecretKey, options.secret);
  context.AddMetadata(kBuildKey, options.build);
}

SharedLane::SharedLane(grpc::GenericStub& stub, const RpcOptions& options)
    : lane_(options.shared_bytes), offer_(to_buffer(to_bytes(lane_.offer()), {})) {
  introduce(context_, options);
  stub.PrepareBidiStreamingCall(&context_, kShare, grpc::StubOptions(), this);
  StartWrite(&offer_);
  StartRead(&answer_);
  StartCall();
}

SharedLane::~SharedLane() {
  context_.TryCancel();
  std::unique_lock lock(mu_);
  changed_.wait(lock, [&] { return has_ended_; });
}

SharedLane::Phase SharedLane::phase() const {
  const std::lock_guard lock(mu_);
  return phase_;
}

void SharedLane::OnReadDone(bool is_ok) {
  if (!is_ok) return;  // the end
  const bool is_open = is_accepted();
  lane_.close_ticket();
  {
    const std::lock_guard lock(mu_);
    phase_ = is_open ? Phase::kOpen : Phase::kRefused;
  }
  StartRead(&answer_);
}

bool SharedLane::is_accepted() const {
  try {
    const auto parts = take_apart(hold(answer_).bytes);
    if (parts.head.error != 0) log(LogLevel::kInfo, str("no shared memory with a server: ", parts.fields));
    return parts.head.error == 0;
  } catch (const Error& error) {
    log_warning(str("the answer to an offer of shared memory: ", error.message()));
    return false;
  }
}

void SharedLane::OnDone(const grpc::Status&) {
  const std::lock_guard lock(mu_);
  if (phase_ != Phase::kRefused) phase_ = Phase::kOver;
  has_ended_ = true;
  changed_.notify_all();
}

std::shared_ptr<SharedLane> Sharing::lane() {
  std::shared_ptr<SharedLane> old;  // ends after the lock
  const std::lock_guard lock(mu_);
  if (lane_ != nullptr) {
    const auto phase = lane_->phase();
    if (phase == SharedLane::Phase::kOpen) return lane_;
    if (phase == SharedLane::Phase::kOffered) return nullptr;
    if (phase == SharedLane::Phase::kRefused) is_wanted_ = false;
    old = std::move(lane_);
  }
  // While a server is away every call would make one in vain.
  if (is_wanted_ && channel_->GetState(/*try_to_connect=*/false) == GRPC_CHANNEL_READY) {
    lane_ = offer();
    is_wanted_ = lane_ != nullptr;
  }
  return nullptr;
}

std::shared_ptr<SharedLane> Sharing::offer() const {
  try {
    return std::make_shared<SharedLane>(stub_, options_);
  } catch (const Error& error) {
    log_warning(str("calls of this machine go without shared memory, and are slower: ", error.message()));
    return nullptr;
  }
}

bool Sharing::is_open() const {
  const std::lock_guard lock(mu_);
  return lane_ != nullptr && lane_->phase() == SharedLane::Phase::kOpen;
}

void Sharing::drop(const std::shared_ptr<SharedLane>& lane) {
  std::shared_ptr<SharedLane> old;
  const std::lock_guard lock(mu_);
  if (lane != nullptr && lane_ == lane) old = std::move(lane_);
}

void Sharing::close() {
  std::shared_ptr<SharedLane> old;
  const std::lock_guard lock(mu_);
  is_wanted_ = false;
  old = std::move(lane_);
}

}  // namespace lockstep::ps::internal
