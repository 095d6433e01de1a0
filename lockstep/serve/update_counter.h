#pragma once

#include <atomic>
#include <cstdint>
#include <optional>
#include <string>

namespace lockstep::internal {

// A number in a file that is mapped: what this process counts is there after its end, whatever ends it. A machine that loses
// its power may lose some.
class UpdateCounter {
 public:
  // Makes the file when it is not there. Throws kFailedPrecondition when another process has it; errors as FileLayer's.
  explicit UpdateCounter(const std::string& path);
  ~UpdateCounter();
  UpdateCounter(const UpdateCounter&) = delete;
  UpdateCounter& operator=(const UpdateCounter&) = delete;

  std::atomic<std::uint64_t>& count() noexcept;

  // What the process before left, and whether that is all that it counted: the machine was not started again since.
  struct Previous {
    std::uint64_t count = 0;
    bool is_exact = true;
  };
  // Nothing: there was no file.
  const std::optional<Previous>& previous() const noexcept { return previous_; }

 private:
  struct Page;

  int descriptor_ = -1;
  Page* page_ = nullptr;
  std::optional<Previous> previous_;
};

}  // namespace lockstep::internal
