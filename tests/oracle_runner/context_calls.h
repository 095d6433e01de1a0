#pragma once

#include <ATen/ATen.h>

#include <functional>
#include <string>

#include "tests/oracle_runner/case.h"
#include "tests/oracle_runner/strategies.h"

// The calls that the cases of `contexts` make at each place of a program.

namespace lockstep::oracle {

// What a program has made before it comes to the place.
struct Setup {
  explicit Setup(int replicas);

  MirroredStrategy& strategy;
  MirroredStrategy& other;             // the generator's: of 2 replicas, or of 3 beside one of 2
  Variable variable;                   // of `strategy`
  DistributedDataset dataset;          // of `strategy`
  DistributedIterator iterator;        // of `dataset`
  PerReplica<at::Tensor> replica_ids;  // float32
};

// The facts of the place where it is called: which strategy and context is current.
Json facts();

using Call = std::function<Json(Setup&)>;

// The call of that name. Throws NotApplicable for one that C++ or Lockstep does not have.
Call find_call(const std::string& name);

// The same for calls of the strategy that is current outside every scope; they are given a value.
Json call_default_strategy(const std::string& name, const Json& value);

// strategy.run(facts): one for each replica.
PerReplica<Json> run_facts(Strategy& strategy);

}  // namespace lockstep::oracle
