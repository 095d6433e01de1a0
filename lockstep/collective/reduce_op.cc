#include "lockstep/collective/reduce_op.h"

#include <ostream>

#include "lockstep/base/error.h"
#include "lockstep/base/str.h"

namespace lockstep {
namespace {

ReduceOp parse(const std::string& name) {
  if (upper(name) == "SUM") return ReduceOp::kSum;
  if (upper(name) == "MEAN") return ReduceOp::kMean;
  throw Error(ErrorCode::kInvalidArgument, str("'", name, "' is not a ReduceOp; use SUM or MEAN"));
}

}  // namespace

ReduceOpArg::ReduceOpArg(const char* name) : op_(parse(name == nullptr ? "(null)" : name)) {}
ReduceOpArg::ReduceOpArg(const std::string& name) : op_(parse(name)) {}

std::ostream& operator<<(std::ostream& out, ReduceOp op) { return out << (op == ReduceOp::kSum ? "SUM" : "MEAN"); }

}  // namespace lockstep
