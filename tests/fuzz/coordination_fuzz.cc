#include <google/protobuf/stubs/logging.h>

#include <cstdlib>

#include "lockstep/cluster/coordination_service.h"
#include "lockstep/cluster/rpc.h"
#include "tests/fuzz/fuzz.h"

// The requests that reach a coordinator, as bytes, in any order: each ends as a status. A byte says which request, one how
// long it is, then it follows. Members' ids are put in, since no input guesses them; nobody waits.

namespace {

using namespace lockstep;

// Errors about texts that are no UTF-8 would fill the screen.
[[maybe_unused]] const auto kQuiet = google::protobuf::SetLogHandler(nullptr);

struct Coordinator {
  Members members{{{"worker", 0}, {"worker", 1}}, "", "", ""};
  internal::CoordinationService service{members, 1, [](std::uint64_t member) { return member + 1; }};
  std::uint64_t last_member = 0;

  template <typename Request, typename Reply>
  using Method = grpc::Status (internal::CoordinationService::*)(grpc::ServerContext*, const Request*, Reply*);

  template <typename Request, typename Reply>
  Reply call(Method<Request, Reply> method, const std::string& bytes) {
    Request request;
    Reply reply;
    if (!request.ParseFromString(bytes)) return reply;
    if constexpr (requires { request.set_member(1); })
      if (request.member() == 0) request.set_member(last_member);
    if constexpr (requires { request.set_milliseconds(1); })
      if (request.milliseconds() > 0) request.set_milliseconds(0);
    const auto status = (service.*method)(nullptr, &request, &reply);
    if (status.error_code() == grpc::StatusCode::UNKNOWN) std::abort();
    std::string written;
    if (!reply.SerializeToString(&written) || !Reply().ParseFromString(written)) std::abort();
    return reply;
  }

  void handle(int kind, const std::string& bytes) {
    using Service = internal::CoordinationService;
    switch (kind % 8) {
      case 0: {
        const auto admission = call<rpc::Introduction, rpc::Admission>(&Service::Join, bytes);
        if (admission.member() != 0) last_member = admission.member();
        return;
      }
      case 1: call<rpc::Note, rpc::Heard>(&Service::Tell, bytes); return;
      case 2: call<rpc::Report, rpc::Nothing>(&Service::Fail, bytes); return;
      case 3: call<rpc::Value, rpc::Nothing>(&Service::Put, bytes); return;
      case 4: call<rpc::Wait, rpc::Value>(&Service::Get, bytes); return;
      case 5: call<rpc::Wait, rpc::Nothing>(&Service::Barrier, bytes); return;
      case 6: call<rpc::Wait, rpc::Members>(&Service::AwaitFailure, bytes); return;
      default: call<rpc::Nothing, rpc::Members>(&Service::List, bytes); return;
    }
  }
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  Coordinator coordinator;
  return fuzz::expect_typed_errors(data, size, [&](const std::string& text) {
    for (std::size_t at = 0; at + 1 < text.size();) {
      const int kind = static_cast<unsigned char>(text[at]);
      const std::size_t length = static_cast<unsigned char>(text[at + 1]);
      coordinator.handle(kind, text.substr(at + 2, length));
      at += 2 + length;
    }
  });
}
