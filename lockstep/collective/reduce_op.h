#pragma once

#include <iosfwd>
#include <string>

namespace lockstep {

// How values of all replicas become one.
enum class ReduceOp { kSum, kMean };

// A ReduceOp, or its name in any case ("sum", "Mean"). Throws kInvalidArgument for another name.
class ReduceOpArg {
 public:
  ReduceOpArg(ReduceOp op) : op_(op) {}  // NOLINT: implicit on purpose, so that calls read reduce("sum", x)
  ReduceOpArg(const char* name);         // NOLINT
  ReduceOpArg(const std::string& name);  // NOLINT
  operator ReduceOp() const { return op_; }

 private:
  ReduceOp op_;
};

std::ostream& operator<<(std::ostream& out, ReduceOp op);

}  // namespace lockstep
