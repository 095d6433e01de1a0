#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace lockstep::ps {

// Bytes of somebody's memory, which `owner` keeps where they are; null: they stay there until the call is over.
struct Piece {
  std::span<const std::byte> bytes = {};
  std::shared_ptr<const void> owner = nullptr;
};

// What one task sends another: some fields (ps/fields.h), and raw bytes that are sent from where they lie.
struct Outgoing {
  std::string fields = "";
  std::vector<Piece> payload = {};
};

// What the other one gets.
class Incoming {
 public:
  virtual ~Incoming() = default;

  const std::string& fields() const noexcept { return fields_; }
  // Bytes of the payload that have not been read.
  std::size_t left() const noexcept { return left_; }
  // The next ones, copied. Throws kInvalidArgument when there are fewer.
  virtual void read(std::span<std::byte> into) = 0;
  // Where the bytes lie that have not been read: there they stay, also when they are read, as long as this message does.
  // Nothing: they lie nowhere, and can only be read.
  virtual std::vector<std::span<const std::byte>> rest() { return {}; }

 protected:
  std::string fields_;
  std::size_t left_ = 0;
};

}  // namespace lockstep::ps
