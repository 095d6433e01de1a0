#include "lockstep/base/first_error.h"

#include <algorithm>

#include "lockstep/base/error.h"
#include "lockstep/base/str.h"

namespace lockstep {
namespace {

bool is_consequence(const std::exception_ptr& error) noexcept {
  try {
    std::rethrow_exception(error);
  } catch (const Error& e) {
    return e.code() == ErrorCode::kAborted;
  } catch (...) {
    return false;
  }
}

}  // namespace

std::string describe(const std::exception_ptr& error) noexcept {
  try {
    std::rethrow_exception(error);
  } catch (const std::exception& e) {
    return e.what();
  } catch (...) {
    return "an exception that is not a std::exception";
  }
}

void FirstError::capture(const std::string& who) noexcept {
  Entry entry{std::current_exception(), {}, false};
  try {
    entry.is_consequence = is_consequence(entry.error);
    entry.text = str(who, ": ", describe(entry.error));
  } catch (...) {  // no memory for its text: the error itself is what matters
  }
  const std::lock_guard lock(mu_);
  entries_.push_back(std::move(entry));
}

bool FirstError::has_error() const noexcept {
  const std::lock_guard lock(mu_);
  return !entries_.empty();
}

std::exception_ptr FirstError::first() const noexcept {
  const std::lock_guard lock(mu_);
  for (const auto& entry : entries_)
    if (!entry.is_consequence) return entry.error;
  return entries_.empty() ? nullptr : entries_[0].error;
}

void FirstError::clear() noexcept {
  const std::lock_guard lock(mu_);
  entries_.clear();
}

void FirstError::rethrow_if_any() {
  std::vector<Entry> entries;
  {
    const std::lock_guard lock(mu_);
    entries.swap(entries_);
  }
  if (entries.empty()) return;
  auto first = std::ranges::find_if(entries, [](const Entry& entry) { return !entry.is_consequence; });
  if (first == entries.end()) first = entries.begin();

  std::vector<std::string> others;
  for (auto it = entries.begin(); it != entries.end(); ++it)
    if (it != first && !it->is_consequence) others.push_back(it->text);
  try {
    std::rethrow_exception(first->error);
  } catch (const Error& e) {
    if (others.empty()) throw;
    throw e.with_others(std::move(others));
  }
}

}  // namespace lockstep
