#pragma once

#include <memory>
#include <string>

#include "lockstep/base/deadline.h"
#include "lockstep/ps/message.h"
#include "lockstep/ps/rpc.h"

namespace lockstep::ps {

// The way to one server, as a client uses it: an RpcChannel, or in tests something that loses messages. Thread-safe.
class CallTarget {
 public:
  virtual ~CallTarget() = default;

  // A call that is under way; cancelled when it is destroyed. See PendingCall.
  class Pending {
   public:
    virtual ~Pending() = default;
    virtual std::unique_ptr<Incoming> wait() = 0;
  };

  virtual const std::string& name() const noexcept = 0;
  virtual std::unique_ptr<Pending> start(const std::string& method, const Outgoing& request, const Deadline& deadline) = 0;
};

std::shared_ptr<CallTarget> target_of(std::shared_ptr<RpcChannel> channel);

}  // namespace lockstep::ps
