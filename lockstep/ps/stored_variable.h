#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>

#include "lockstep/ps/memory.h"
#include "lockstep/ps/store_messages.h"
#include "lockstep/ps/turn_mutex.h"
#include "lockstep/ps/update_rule.h"

namespace lockstep::ps {

// Throws kInvalidArgument for a description of what cannot be a variable; memory is not asked for.
void require_possible(const Description& description);

// "float32 [3, 4]", for texts.
std::string shown_shape(std::int8_t dtype, const std::vector<std::int64_t>& shape);

// Bytes of a tensor of this shape. Throws kInvalidArgument naming `what` when there are no such tensors.
std::size_t bytes_of(std::int8_t dtype, const std::vector<std::int64_t>& shape, const std::string& what);

bool is_of_rows(Operation::Kind kind) noexcept;

// What an operation was given, in the store's own memory.
struct Given {
  at::Tensor ids = {};  // int64; of operations on rows
  at::Tensor values = {};
  std::uint64_t passed_in = 0;  // Uploads::Whole's
};

// One variable of a server, with its rule. Thread-safe: readers share it, an update has it alone.
class StoredVariable {
 public:
  // `reserved` is the memory of both.
  StoredVariable(Description description, at::Tensor value, std::unique_ptr<UpdateRule> rule,
                 std::vector<Memory::Reservation> reserved);

  const Description& description() const noexcept { return description_; }
  const std::string& name() const noexcept { return description_.name; }
  std::size_t bytes() const noexcept { return bytes_; }
  std::size_t row_bytes() const noexcept { return row_bytes_; }
  std::uint64_t version() const noexcept { return version_; }

  // Of a copy of another one; before anybody uses it.
  void start_at(std::uint64_t version) { version_ = version; }

  // Throws kInvalidArgument, kFailedPrecondition or kOutOfRange when apply() could not do this, naming what is wrong; the
  // second when the values are known.
  void require_fits(const Operation& operation) const;
  void require_fits(const Operation& operation, const Given& given) const;
  // Throws kOutOfRange naming the first id that is no row, and the rows there are.
  void require_rows(std::span<const std::int64_t> ids) const;
  // See UpdateRule::room_for(); 0 for other operations.
  std::size_t room_for(const Operation& operation) const;

  // Does what was found to fit. Returns the version after it.
  std::uint64_t apply(const Operation& operation, const Given& given);

  // Copies bytes from `first` on, and gives their version; nothing when that is not above `newer_than`. The range must fit.
  std::optional<std::uint64_t> read(std::size_t first, std::span<std::byte> into,
                                    std::optional<std::uint64_t> newer_than = std::nullopt) const;
  std::uint64_t read_rows(std::span<const std::int64_t> ids, std::byte* into) const;

  // Calls fn with the value, the rule (null: none) and the version, while nobody updates them. For checkpoints, and for a copy
  // on another server.
  void look(const std::function<void(const at::Tensor& value, const UpdateRule* rule, std::uint64_t version)>& fn) const;

  // Calls fn with the value and the rule (null: none) while nobody else reads or updates them. What it returns is the version
  // from now on.
  using Work = std::function<std::uint64_t(at::Tensor& value, UpdateRule* rule, std::uint64_t version)>;
  void change(const Work& fn);

 private:
  // Const after construction.
  const Description description_;
  const std::size_t bytes_;
  const std::size_t row_bytes_;
  const std::vector<Memory::Reservation> reserved_;

  mutable TurnMutex mu_;
  // Guarded by mu_; the memory's address is const.
  at::Tensor value_;
  std::unique_ptr<UpdateRule> rule_;
  std::atomic<std::uint64_t> version_{0};  // written under mu_
};

}  // namespace lockstep::ps
