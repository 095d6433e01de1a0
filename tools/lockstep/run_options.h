#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/cluster/address.h"
#include "tools/lockstep/hosts.h"
#include "tools/lockstep/plan.h"
#include "tools/lockstep/ssh.h"

namespace lockstep::tool {

// What `lockstep run` is told.
struct RunOptions {
  std::vector<std::string> command = {};

  // On this machine, or on each where a host or node does not say otherwise.
  int workers = 1;
  bool has_chief = false;
  int ps = 0;
  bool has_evaluator = false;

  // Other machines through ssh.
  std::vector<Host> hosts = {};
  SshOptions ssh = {};

  // Other machines where this command is started too.
  int nodes = 1;
  int node_rank = 0;
  std::optional<Address> rendezvous = std::nullopt;  // of node 0
  std::string local_address = "";                    // where others reach this machine; empty: as they see it
  std::chrono::milliseconds join_timeout = std::chrono::minutes(10);

  std::string run_id = "";
  std::optional<int> master_port = std::nullopt;
  std::string log_dir = "";  // empty: no files
  int max_restarts = 0;
  int task_restarts = 0;  // of one task alone, all together: Note [jobs with parameter servers]
  std::chrono::milliseconds grace = std::chrono::seconds(5);  // from the first request to end to the last one
  // The same where that request is a SIGTERM from outside, upon which tasks save; the longer of the two counts. Schedulers kill
  // after 30 s.
  std::chrono::milliseconds save_grace = std::chrono::seconds(25);
};

// Throws kInvalidArgument naming what does not fit together.
void validate(const RunOptions& options);

// The job as far as the options say it: of nodes that tell their own part when they come, there are as many as here.
JobShape shape_of(const RunOptions& options);

}  // namespace lockstep::tool
