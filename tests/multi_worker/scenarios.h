#pragma once

#include <map>
#include <string>
#include <vector>

#include "lockstep/strategy/multi_worker_mirrored_strategy.h"

namespace lockstep::testing {

// "steps=100" and the like.
class Parameters {
 public:
  explicit Parameters(const std::vector<std::string>& words);

  std::string text(const std::string& name, const std::string& otherwise) const;
  int number(const std::string& name, int otherwise) const;

 private:
  std::map<std::string, std::string> values_;
};

// Options that parameters may name: device ("CPU:0"), replicas, engine, timeout and stall (seconds), deterministic (0 or 1).
MultiWorkerOptions options_of(const Parameters& parameters);

void run_scenario(const std::string& name, const Parameters& parameters);

// The scenarios.
void train(const Parameters& parameters);           // a CNN with dropout; prints the weights' digest
void collectives(const Parameters& parameters);     // every kind of collective; prints what came
void errors(const Parameters& parameters);          // calls that do not fit together; prints the codes
void cases(const Parameters& parameters);           // numbered ones of CASES.md; prints what came
void misbehave(const Parameters& parameters);       // one worker does what it should not
void go_on(const Parameters& parameters);           // a call that does not fit in a training loop; prints the weights' digest
void outside_writes(const Parameters& parameters);  // weights written outside run(), by all or one; prints their digest
void fit(const Parameters& parameters);             // Model::fit with backups; prints the weights' digest
void preempted(const Parameters& parameters);       // a loop whose worker is told to go; prints what it has come to
void tensors(const Parameters& parameters);         // collectives on the replicas' device against those on the CPU; times

}  // namespace lockstep::testing
