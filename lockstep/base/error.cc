#include "lockstep/base/error.h"

#include <cstring>
#include <utility>

#include "lockstep/base/str.h"

namespace lockstep {

const char* name_of(ErrorCode code) noexcept {
  switch (code) {
    case ErrorCode::kInvalidArgument: return "kInvalidArgument";
    case ErrorCode::kFailedPrecondition: return "kFailedPrecondition";
    case ErrorCode::kOutOfRange: return "kOutOfRange";
    case ErrorCode::kNotFound: return "kNotFound";
    case ErrorCode::kUnavailable: return "kUnavailable";
    case ErrorCode::kDeadlineExceeded: return "kDeadlineExceeded";
    case ErrorCode::kAborted: return "kAborted";
    case ErrorCode::kCancelled: return "kCancelled";
    case ErrorCode::kDataLoss: return "kDataLoss";
    case ErrorCode::kUnimplemented: return "kUnimplemented";
    case ErrorCode::kInternal: return "kInternal";
  }
  return "unknown code";
}

bool is_retryable(ErrorCode code) noexcept {
  return code == ErrorCode::kUnavailable || code == ErrorCode::kDeadlineExceeded || code == ErrorCode::kAborted;
}

Error::Error(ErrorCode code, const std::string& message) : std::runtime_error(str(name_of(code), ": ", message)), code_(code) {}

std::string Error::message() const { return std::string(what()).substr(std::strlen(name_of(code_)) + 2); }

Error Error::with_others(std::vector<std::string> others) const {
  Error copy = *this;
  copy.others_ = std::move(others);
  return copy;
}

}  // namespace lockstep
