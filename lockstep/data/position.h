#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "lockstep/data/element.h"

// Where a pass over a dataset is, as bytes: what its streams have written, from the last operation to the sources.

namespace lockstep::data::internal {

class PositionWriter {
 public:
  PositionWriter();

  // Every stream begins with its name, so that a position is not taken for one of another pipeline.
  void begin(std::string_view stream) { put(stream); }
  void put(std::int64_t number);
  void put(std::uint64_t number) { put(static_cast<std::int64_t>(number)); }
  void put(bool value) { put(std::int64_t{value}); }
  void put(std::string_view bytes);
  void put(const Element& element);

  // With a checksum at the end.
  std::string take() &&;

 private:
  std::string bytes_;
};

// Throws kDataLoss where the bytes are damaged, kInvalidArgument where they are of another pipeline.
class PositionReader {
 public:
  explicit PositionReader(std::string_view bytes);

  void expect(std::string_view stream);
  std::int64_t number();
  std::uint64_t unsigned_number() { return static_cast<std::uint64_t>(number()); }
  bool flag() { return number() != 0; }
  // How many of something follow, each of at least `bytes` bytes.
  std::size_t count(std::size_t bytes = 1);
  std::string_view bytes();
  Element element();

  // Throws kInvalidArgument when something is left.
  void require_end() const;

 private:
  std::string_view take(std::size_t bytes);

  std::string_view left_;
};

}  // namespace lockstep::data::internal
