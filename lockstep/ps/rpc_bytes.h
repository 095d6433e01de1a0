#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/ps/message.h"

// Messages between tasks as bytes.
//
// Note [a message]: a Head; the numbers of its slots (u32 each); the fields; the payload, unless it lies in slots of a lane
// (Note [lanes]). An error of a method is a message too, with the text as its fields: what gRPC says of a failed call is
// short, and could be gRPC's own.

namespace lockstep::ps::internal {

using Bytes = std::span<const std::byte>;

struct Head {
  std::uint32_t fields_bytes = 0;
  std::uint32_t slots = 0;         // 0: the payload follows the fields
  std::uint64_t shared_bytes = 0;  // of the payload in the slots
  std::uint64_t lane = 0;          // a request's: where the caller has memory for this server; 0: nowhere
  std::uint32_t error = 0;         // a reply's: 0: none, else 1 + the code
  std::uint32_t unused = 0;
};

// Everything but a payload that follows. `head` gets the lengths.
std::string front_of(Head head, const std::vector<std::uint32_t>& slots, const std::string& fields);

// What an error is sent as. Very long texts lose their middle.
std::string front_of(const Error& error);

// Reads bytes that lie in pieces, from the first to the last.
class Cursor {
 public:
  Cursor() = default;
  explicit Cursor(std::vector<Bytes> pieces);

  std::size_t left() const noexcept { return left_; }
  // There must be as many.
  void read(std::span<std::byte> into);
  // What is left, where it lies.
  std::vector<Bytes> rest() const;

 private:
  std::vector<Bytes> pieces_;
  std::size_t piece_ = 0;  // the one that is read,
  std::size_t at_ = 0;     // from here
  std::size_t left_ = 0;
};

struct Parts {
  Head head;
  std::vector<std::uint32_t> slots;
  std::string fields;
  Cursor payload;  // that follows
};

// Throws kInvalidArgument for bytes that are no message. Takes no more memory than their number.
Parts take_apart(std::vector<Bytes> message);

// The error that a reply carries, named after the server.
std::optional<Error> error_in(const Parts& reply, const std::string& server);

// A message that has arrived. `hold` keeps the payload's memory, until all of it has been read; to the end, when rest() was
// asked for.
class Received : public Incoming {
 public:
  Received(std::string fields, Cursor payload, std::shared_ptr<const void> hold);
  void read(std::span<std::byte> into) override;
  std::vector<Bytes> rest() override;

 private:
  Cursor payload_;
  std::shared_ptr<const void> hold_;
  bool is_shown_ = false;  // somebody knows where the payload lies
};

std::size_t payload_bytes(const Outgoing& message);

}  // namespace lockstep::ps::internal
