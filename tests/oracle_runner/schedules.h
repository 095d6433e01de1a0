#pragma once

#include "lockstep/train/schedules/learning_rate.h"
#include "tests/oracle_runner/case.h"

namespace lockstep::oracle {

// The schedule of {"schedule", "arguments"}.
LearningRate to_learning_rate(const Json& input);

}  // namespace lockstep::oracle
