#include "lockstep/ps/rpc_buffers.h"

#include <grpcpp/support/slice.h>

#include <utility>

#include "lockstep/base/str.h"

namespace lockstep::ps::internal {
namespace {

constexpr std::size_t kSmall = 2048;  // is cheaper copied than sent as a piece of its own

grpc::Slice slice_of(Bytes bytes, std::shared_ptr<const void> owner) {
  auto* held = new std::shared_ptr<const void>(std::move(owner));
  return {const_cast<std::byte*>(bytes.data()), bytes.size(),  // NOLINT: gRPC does not write to it
          [](void* given) { delete static_cast<std::shared_ptr<const void>*>(given); }, held};
}

grpc::Slice slice_of(std::string bytes) {
  if (bytes.size() < kSmall) return grpc::Slice(bytes);
  const auto owner = std::make_shared<const std::string>(std::move(bytes));
  return slice_of(std::as_bytes(std::span(*owner)), owner);
}

}  // namespace

grpc::ByteBuffer to_buffer(std::string front, const std::vector<Piece>& payload) {
  std::vector<grpc::Slice> slices;
  auto copied = std::move(front);
  for (const auto& piece : payload) {
    if (piece.owner == nullptr || piece.bytes.size() < kSmall) {
      copied.append(reinterpret_cast<const char*>(piece.bytes.data()), piece.bytes.size());
      continue;
    }
    if (!copied.empty()) slices.push_back(slice_of(std::exchange(copied, {})));
    slices.push_back(slice_of(piece.bytes, piece.owner));
  }
  if (!copied.empty()) slices.push_back(slice_of(std::move(copied)));
  return {slices.data(), slices.size()};
}

Held hold(const grpc::ByteBuffer& buffer) {
  const auto slices = std::make_shared<std::vector<grpc::Slice>>();
  if (!buffer.Dump(slices.get()).ok()) throw Error(ErrorCode::kInternal, "a message that arrived cannot be read");
  Held held{{}, slices};
  for (const auto& slice : *slices) held.bytes.push_back(std::as_bytes(std::span(slice.begin(), slice.size())));
  return held;
}

void require_possible(std::size_t most_bytes) {
  if (most_bytes > kMostBytes)
    throw Error(ErrorCode::kInvalidArgument, str("RpcOptions::most_bytes is ", most_bytes, "; a message has at most ",
                                                 kMostBytes, " bytes: send more in several"));
}

int most_received(std::size_t most_bytes) { return static_cast<int>(most_bytes) + (64 << 10); }

}  // namespace lockstep::ps::internal
