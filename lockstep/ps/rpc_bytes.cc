#include "lockstep/ps/rpc_bytes.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "lockstep/base/str.h"

namespace lockstep::ps::internal {
namespace {

constexpr std::size_t kLongestText = 64 << 10;

void append(std::string& bytes, const void* data, std::size_t count) { bytes.append(static_cast<const char*>(data), count); }

// Text is cut where a character begins.
std::size_t begin_of_character(const std::string& text, std::size_t at) {
  while (at > 0 && (static_cast<unsigned char>(text[at]) & 0xC0U) == 0x80U) --at;
  return at;
}

std::string without_middle(const std::string& text) {
  if (text.size() <= kLongestText) return text;
  const auto first = begin_of_character(text, kLongestText / 2);
  const auto second = begin_of_character(text, text.size() - kLongestText / 2);
  return str(text.substr(0, first), " [... ", second - first, " bytes of this text are left out ...] ", text.substr(second));
}

void require_left(const Cursor& cursor, std::uint64_t bytes) {
  if (bytes > cursor.left())
    throw Error(ErrorCode::kInvalidArgument, str("a message of a task is cut: ", bytes, " bytes should follow, there are ",
                                                 cursor.left(), "; was it sent by another program?"));
}

}  // namespace

std::string front_of(Head head, const std::vector<std::uint32_t>& slots, const std::string& fields) {
  head.fields_bytes = static_cast<std::uint32_t>(fields.size());
  head.slots = static_cast<std::uint32_t>(slots.size());
  std::string bytes;
  bytes.reserve(sizeof head + slots.size() * sizeof slots[0] + fields.size());
  append(bytes, &head, sizeof head);
  append(bytes, slots.data(), slots.size() * sizeof slots[0]);
  return bytes += fields;
}

std::string front_of(const Error& error) {
  return front_of({.error = static_cast<std::uint32_t>(error.code()) + 1}, {}, without_middle(error.message()));
}

Cursor::Cursor(std::vector<Bytes> pieces) : pieces_(std::move(pieces)) {
  for (const auto& piece : pieces_) left_ += piece.size();
}

void Cursor::read(std::span<std::byte> into) {
  left_ -= into.size();
  while (!into.empty()) {
    const auto here = pieces_[piece_].subspan(at_);
    const auto count = std::min(here.size(), into.size());
    if (count > 0) std::memcpy(into.data(), here.data(), count);
    into = into.subspan(count);
    at_ += count;
    if (count == here.size()) {
      ++piece_;
      at_ = 0;
    }
  }
}

std::vector<Bytes> Cursor::rest() const {
  std::vector<Bytes> out;
  for (auto piece = piece_; piece < pieces_.size(); ++piece) {
    const auto here = pieces_[piece].subspan(piece == piece_ ? at_ : 0);
    if (!here.empty()) out.push_back(here);
  }
  return out;
}

Parts take_apart(std::vector<Bytes> message) {
  Parts parts;
  parts.payload = Cursor(std::move(message));
  auto& left = parts.payload;
  require_left(left, sizeof parts.head);
  left.read(std::as_writable_bytes(std::span(&parts.head, 1)));
  require_left(left, parts.head.slots * std::uint64_t{sizeof(std::uint32_t)} + parts.head.fields_bytes);
  parts.slots.resize(parts.head.slots);
  left.read(std::as_writable_bytes(std::span(parts.slots)));
  parts.fields.resize(parts.head.fields_bytes);
  left.read(std::as_writable_bytes(std::span(parts.fields)));
  if (parts.head.slots > 0 && left.left() > 0)
    throw Error(ErrorCode::kInvalidArgument, "a message of a task has a payload in shared memory, and another one behind it");
  return parts;
}

std::optional<Error> error_in(const Parts& reply, const std::string& server) {
  if (reply.head.error == 0) return std::nullopt;
  const auto code = reply.head.error - 1;
  const bool is_known = code <= static_cast<std::uint32_t>(ErrorCode::kInternal);
  return Error(is_known ? static_cast<ErrorCode>(code) : ErrorCode::kInternal, str(server, ": ", reply.fields));
}

Received::Received(std::string fields, Cursor payload, std::shared_ptr<const void> hold)
    : payload_(std::move(payload)), hold_(std::move(hold)) {
  fields_ = std::move(fields);
  left_ = payload_.left();
  if (left_ == 0) hold_.reset();
}

void Received::read(std::span<std::byte> into) {
  if (into.size() > left_)
    throw Error(ErrorCode::kInvalidArgument,
                str("a message's payload has ", left_, " bytes left, and ", into.size(), " are to be read"));
  payload_.read(into);
  left_ = payload_.left();
  if (left_ == 0 && !is_shown_) hold_.reset();
}

std::vector<Bytes> Received::rest() {
  is_shown_ = true;
  return payload_.rest();
}

std::size_t payload_bytes(const Outgoing& message) {
  std::size_t bytes = 0;
  for (const auto& piece : message.payload) bytes += piece.bytes.size();
  return bytes;
}

}  // namespace lockstep::ps::internal
