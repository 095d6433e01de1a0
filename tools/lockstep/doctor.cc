#include "tools/lockstep/doctor.h"

#include <iostream>

#include "lockstep/base/error.h"
#include "lockstep/base/str.h"
#include "lockstep/cluster/host_address.h"
#include "lockstep/cluster/resolve.h"
#include "tools/lockstep/checkup.h"

namespace lockstep::tool {
namespace {

bool check_alone(const DoctorOptions& options) {
  std::vector<Finding> findings = {
      {.check = "cluster", .who = "this machine", .found = "the environment describes none: only this machine is checked"}};
  for (auto& finding : check_machine("this machine", 1)) findings.push_back(std::move(finding));
  findings.push_back(check_cores(own_host_name(), {look_at_machine()}));
  print_findings(std::cout, findings, options.as_json);
  return !has_failed(findings);
}

bool check_cluster(const DoctorOptions& options, const ClusterResolver& resolver) {
  const auto type = resolver.task_type();
  const auto id = resolver.task_id();
  if (!type || !id)
    throw Error(ErrorCode::kInvalidArgument, str(resolver.source(), " describes a cluster but not which task this is"));
  return Checkup(options, resolver.cluster_spec(), {*type, *id}).run();
}

}  // namespace

int run_doctor(const DoctorOptions& options) {
  try {
    const auto resolver = resolve_cluster();
    const bool is_alone = resolver == nullptr || resolver->cluster_spec().empty();
    return (is_alone ? check_alone(options) : check_cluster(options, *resolver)) ? 0 : 1;
  } catch (const Error& error) {
    print_findings(std::cout,
                   {{.check = "cluster",
                     .who = "this task",
                     .verdict = Verdict::kFailed,
                     .found = error.message(),
                     .fix = "correct what describes the cluster (TF_CONFIG, or the variables of torchrun, mpirun, Slurm)"}},
                   options.as_json);
    return 1;
  }
}

}  // namespace lockstep::tool
