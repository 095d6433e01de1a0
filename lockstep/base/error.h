#pragma once

#include <stdexcept>
#include <string>
#include <vector>

namespace lockstep {

// Canonical codes, with gRPC's meanings. Callers branch on the code, never on the text.
enum class ErrorCode {
  kInvalidArgument,     // the caller's fault; will fail again
  kFailedPrecondition,  // right call, wrong moment (e.g. run() inside run())
  kOutOfRange,          // past the end (of the data, of an index)
  kNotFound,            // the named thing does not exist
  kUnavailable,         // a peer is gone; re-form the cluster, then resume from a checkpoint
  kDeadlineExceeded,    // no answer in time; the peer may be alive
  kAborted,             // another replica failed first; its error is the one to read
  kCancelled,           // the caller no longer wants it
  kDataLoss,            // a checkpoint or record is damaged
  kUnimplemented,       // this cannot be done here; known before anything was changed
  kInternal,            // our bug
};

// "kInvalidArgument" and so on.
const char* name_of(ErrorCode code) noexcept;

// Peers or time were missing: the same call may succeed later.
bool is_retryable(ErrorCode code) noexcept;

// The one exception type of Lockstep. what() is "<code>: <message>".
class Error : public std::runtime_error {
 public:
  Error(ErrorCode code, const std::string& message);

  ErrorCode code() const noexcept { return code_; }
  // what() without the code.
  std::string message() const;

  // What the other replicas of the same run() threw, one line each; empty when they only stopped.
  const std::vector<std::string>& others() const noexcept { return others_; }

  // The same error with the other replicas' messages attached.
  Error with_others(std::vector<std::string> others) const;

 private:
  ErrorCode code_;
  std::vector<std::string> others_;
};

// Throws kInvalidArgument with `message` unless `condition` holds.
inline void require(bool condition, const char* message) {
  if (!condition) throw Error(ErrorCode::kInvalidArgument, message);
}

}  // namespace lockstep
