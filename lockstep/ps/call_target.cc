#include "lockstep/ps/call_target.h"

namespace lockstep::ps {
namespace {

class ChannelTarget final : public CallTarget {
 public:
  explicit ChannelTarget(std::shared_ptr<RpcChannel> channel) : channel_(std::move(channel)) {}

  const std::string& name() const noexcept override { return channel_->name(); }
  std::unique_ptr<Pending> start(const std::string& method, const Outgoing& request, const Deadline& deadline) override {
    return std::make_unique<Call>(channel_->start(method, request, deadline));
  }

 private:
  struct Call final : Pending {
    explicit Call(PendingCall started) : call(std::move(started)) {}
    std::unique_ptr<Incoming> wait() override { return call.wait(); }
    PendingCall call;
  };

  const std::shared_ptr<RpcChannel> channel_;
};

}  // namespace

std::shared_ptr<CallTarget> target_of(std::shared_ptr<RpcChannel> channel) {
  return std::make_shared<ChannelTarget>(std::move(channel));
}

}  // namespace lockstep::ps
