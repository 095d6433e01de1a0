#pragma once

#include <grpcpp/support/byte_buffer.h>

#include <memory>
#include <string>
#include <vector>

#include "lockstep/ps/rpc_bytes.h"

// Between messages and gRPC's buffers. Not for users: it brings third-party types.

namespace lockstep::ps::internal {

// The keys of what every call carries beside its message.
inline constexpr const char* kSecretKey = "lockstep-secret-bin";
inline constexpr const char* kBuildKey = "lockstep-build-bin";

inline constexpr const char* kMethods = "/lockstep/";     // and the method's name
inline constexpr const char* kHello = "/lockstep.hello";  // answered with nothing

// gRPC counts in 31 bits.
inline constexpr std::size_t kMostBytes = (std::size_t{1} << 31) - (1 << 20);

// What is sent for a message. Pieces with an owner are not copied: gRPC holds the owner until it has sent them, or given them
// up. The others are, and so are small ones.
grpc::ByteBuffer to_buffer(std::string front, const std::vector<Piece>& payload);

// The memory of a buffer, and what keeps it.
struct Held {
  std::vector<Bytes> bytes;
  std::shared_ptr<const void> hold;
};
Held hold(const grpc::ByteBuffer& buffer);

// Throws kInvalidArgument when gRPC cannot carry so much.
void require_possible(std::size_t most_bytes);

// What gRPC may receive at most, so that nothing larger is kept: the fields and payload, and what comes before them.
int most_received(std::size_t most_bytes);

}  // namespace lockstep::ps::internal
