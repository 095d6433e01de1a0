#include <cstdlib>
#include <cstring>

#include "lockstep/ps/rpc_lane.h"
#include "tests/fuzz/fuzz.h"

// A message of a task, as a server takes it apart: the same whether it arrives whole or in pieces, and with a payload that lies
// in the message or in the slots of a lane, nowhere else. The first byte says how long the pieces are.

namespace {

using namespace lockstep::ps::internal;

std::vector<Bytes> in_pieces(const std::string& text, std::size_t length) {
  std::vector<Bytes> pieces;
  for (std::size_t at = 0; at < text.size(); at += length)
    pieces.push_back(std::as_bytes(std::span(text)).subspan(at, std::min(length, text.size() - at)));
  return pieces;
}

std::string all_of(lockstep::ps::Incoming& message) {
  std::string bytes(message.left(), '\0');
  message.read(std::as_writable_bytes(std::span(bytes)));
  return bytes;
}

// What a handler would get.
std::string read(const std::string& text, std::size_t length) {
  static Lane lane(8 * kSlotBytes);
  auto parts = take_apart(in_pieces(text, length));
  const auto answer = error_in(parts, "server");
  if (!parts.slots.empty()) parts.payload = Cursor(lane.find(Lane::Half::kRequests, parts.slots, parts.head.shared_bytes));
  const bool is_shared = !parts.slots.empty();
  Received message(std::move(parts.fields), std::move(parts.payload), nullptr);
  const auto bytes = message.fields() + all_of(message);
  if (!is_shared && !text.ends_with(bytes)) std::abort();
  return bytes + (answer ? answer->what() : "");
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  lockstep::fuzz::expect_typed_errors(data, size, [](const std::string& text) { lockstep::ps::from_bytes<Offer>(text); });
  if (size == 0) return 0;
  const std::size_t length = data[0] % 32 + 1;
  std::optional<std::string> whole;
  lockstep::fuzz::expect_typed_errors(data + 1, size - 1,
                                      [&](const std::string& text) { whole = read(text, text.size() + 1); });
  return lockstep::fuzz::expect_typed_errors(data + 1, size - 1, [&](const std::string& text) {
    const auto pieces = read(text, length);
    if (!whole || pieces != *whole) std::abort();
  });
}
