#include "lockstep/train/callbacks/values.h"

#include "lockstep/base/error.h"
#include "lockstep/base/number.h"
#include "lockstep/base/str.h"

namespace lockstep::internal {

void put(CheckpointPart& part, const std::string& name, double value) { part.values[name] = exact_text(value); }

double get(const CheckpointPart& part, const std::string& name) {
  const auto found = part.values.find(name);
  if (found != part.values.end())
    if (const auto value = whole_number<double>(found->second)) return *value;
  throw Error(ErrorCode::kDataLoss, str("a callback's state has no number '", name, "'; it is another callback's, or damaged"));
}

}  // namespace lockstep::internal
