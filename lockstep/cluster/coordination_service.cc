#include "lockstep/cluster/coordination_service.h"

#include <grpcpp/grpcpp.h>

#include <algorithm>

#include "lockstep/base/error.h"
#include "lockstep/base/log.h"
#include "lockstep/cluster/clock_offset.h"
#include "lockstep/cluster/rpc.h"

namespace lockstep::internal {
namespace {

Deadline deadline_of(const rpc::Wait& wait, std::chrono::milliseconds longest = kLongestWait) {
  return Deadline::after(std::clamp(std::chrono::milliseconds(wait.milliseconds()), std::chrono::milliseconds(0), longest));
}

}  // namespace

grpc::Status CoordinationService::Join(grpc::ServerContext*, const rpc::Introduction* request, rpc::Admission* reply) {
  return as_status([&] {
    const auto member = admit(from_message(*request));
    reply->set_member(member);
    reply->set_lifeline_port(lifeline_port_);
    reply->set_ticket(admit_(member));
  });
}

// Both sides hear why somebody is refused.
std::uint64_t CoordinationService::admit(const Introduction& introduction) {
  try {
    return members_.join(introduction);
  } catch (const Error& error) {
    if (error.code() != ErrorCode::kUnavailable) log_warning(error.message());
    throw;
  }
}

grpc::Status CoordinationService::Tell(grpc::ServerContext*, const rpc::Note* request, rpc::Heard* reply) {
  const auto& activity = request->activity();
  reply->set_clock_nanoseconds(ClockOffset::clock().count());
  return as_status([&] { members_.note(request->member(), {activity.step(), activity.doing(), activity.calls()}); });
}

grpc::Status CoordinationService::Fail(grpc::ServerContext*, const rpc::Report* request, rpc::Nothing*) {
  return as_status([&] { members_.fail(request->member(), code_from(request->code()), request->message()); });
}

grpc::Status CoordinationService::Put(grpc::ServerContext*, const rpc::Value* request, rpc::Nothing*) {
  return as_status([&] { members_.put(request->member(), request->key(), request->value()); });
}

grpc::Status CoordinationService::Get(grpc::ServerContext*, const rpc::Wait* request, rpc::Value* reply) {
  return as_status([&] { reply->set_value(members_.get(request->member(), request->name(), deadline_of(*request))); });
}

grpc::Status CoordinationService::Barrier(grpc::ServerContext*, const rpc::Wait* request, rpc::Nothing*) {
  return as_status([&] { members_.barrier(request->name(), request->member(), deadline_of(*request)); });
}

grpc::Status CoordinationService::AwaitFailure(grpc::ServerContext*, const rpc::Wait* request, rpc::Members* reply) {
  // Anybody may ask: a question does not keep a thread for long.
  constexpr std::chrono::minutes kLongest(1);
  return as_status([&] {
    if (const auto failure = members_.failure(deadline_of(*request, kLongest))) to_message(*failure, *reply->mutable_failure());
  });
}

grpc::Status CoordinationService::List(grpc::ServerContext*, const rpc::Nothing*, rpc::Members* reply) {
  return as_status([&] {
    for (const auto& member : members_.all()) {
      auto* to = reply->add_members();
      to_message(member.introduction, *to->mutable_introduction());
      to->mutable_introduction()->clear_secret();
      to->mutable_activity()->set_step(member.activity.step);
      to->mutable_activity()->set_doing(member.activity.doing);
      to->mutable_activity()->set_calls(member.activity.calls);
      const auto age = std::chrono::steady_clock::now() - member.last_heard;
      to->set_heard_milliseconds_ago(std::chrono::duration_cast<std::chrono::milliseconds>(age).count());
      to->set_has_left(member.has_left);
    }
    if (const auto failure = members_.failure()) to_message(*failure, *reply->mutable_failure());
  });
}

}  // namespace lockstep::internal
