#pragma once

#include <cstddef>
#include <string>
#include <utility>

namespace lockstep {

// Memory that processes of one machine share. It has no name in any file system: it is gone when the last process that
// has it open is gone, however that came.
class SharedBlock {
 public:
  SharedBlock() = default;
  // New memory, all zero. Pages are taken when they are first touched. Throws kUnavailable when there is none.
  explicit SharedBlock(std::size_t bytes);
  ~SharedBlock();
  SharedBlock(SharedBlock&& other) noexcept
      : data_(std::exchange(other.data_, nullptr)),
        bytes_(std::exchange(other.bytes_, 0)),
        descriptor_(std::exchange(other.descriptor_, -1)) {}
  SharedBlock& operator=(SharedBlock&& other) noexcept;

  std::byte* data() const noexcept { return data_; }
  std::size_t bytes() const noexcept { return bytes_; }

  // What another process needs to open it, while this one has not called close_ticket().
  std::string ticket() const;
  void close_ticket() noexcept;

  // Another process's block. Throws kUnavailable when it cannot be opened from here (another user or container), and
  // kInvalidArgument for a text that is no ticket.
  static SharedBlock open(const std::string& ticket);

 private:
  void map();

  std::byte* data_ = nullptr;
  std::size_t bytes_ = 0;
  int descriptor_ = -1;
};

// Equal for two processes that can share memory: the same running system, network and process namespace, and user.
std::string machine_key();

}  // namespace lockstep
