#pragma once

#include <string>
#include <vector>

#include "lockstep/data/dataset.h"
#include "lockstep/data/steps.h"

namespace lockstep::data::internal {

// What experimental_distribute_dataset decided.
struct Distribution {
  Dataset dataset;                  // as it was given
  std::vector<int> replicas = {1};  // of each worker
  bool is_by_file = false;
  SplitRule rule = SplitRule::kWhole;

  int workers() const { return static_cast<int>(replicas.size()); }
};

// What each worker reads and each replica gets, in words; no data is read.
std::string explain(const Distribution& distribution);

}  // namespace lockstep::data::internal
