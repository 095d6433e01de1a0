#pragma once

#include <exception>
#include <mutex>
#include <string>
#include <vector>

namespace lockstep {

// Collects what the members of one parallel piece of work threw, and rethrows the error that came first.
// An error that only says "another one failed" (kAborted) never hides the one that did.
// Thread-safe.
class FirstError {
 public:
  // Records the exception being handled. Call inside a catch block. `who` is put before its text among the others.
  void capture(const std::string& who) noexcept;

  bool has_error() const noexcept;

  // What rethrow_if_any() would throw, without the others' messages; null: nothing.
  std::exception_ptr first() const noexcept;

  // Forgets everything.
  void clear() noexcept;

  // Rethrows the first error, if there is one. When it is a lockstep::Error the others' messages are attached.
  void rethrow_if_any();

 private:
  struct Entry {
    std::exception_ptr error;
    std::string text;
    bool is_consequence = false;
  };

  mutable std::mutex mu_;
  std::vector<Entry> entries_;  // guarded by mu_
};

// The text of an exception, whatever its type.
std::string describe(const std::exception_ptr& error) noexcept;

}  // namespace lockstep
