#pragma once

#include <chrono>
#include <optional>

#include "lockstep/cluster/address.h"

namespace lockstep::tool {

struct DoctorOptions {
  bool as_json = false;
  std::chrono::milliseconds timeout = std::chrono::seconds(30);  // of each wait
  std::optional<Address> coordinator = std::nullopt;             // where the environment does not say it
};

// Checks the cluster that the environment describes, together with all its other tasks, which must call it too; without
// one, this machine alone. The first task prints what all have found. Returns 0 when it is good, else 1, on all of them.
int run_doctor(const DoctorOptions& options);

}  // namespace lockstep::tool
