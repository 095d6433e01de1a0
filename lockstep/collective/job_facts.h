#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace lockstep {

// What a worker tells the others before there is an engine.
struct JobFacts {
  std::string machine;
  std::string host;    // where the others reach it
  std::string wishes;  // what must be the same on all
  std::string gpus;    // device_fact
  int held_port = 0;   // at which its system answers
  int replicas = 1;
  std::uint64_t seed = 0;
  bool has_mpi = false;  // the engine is here, and a launcher of MPI has started the job's workers in this order

  std::string to_text() const;
  static JobFacts from_text(const std::string& text);
};

// By worker: its machine, counted from 0 in the order of workers. Without sharing every worker is a machine of its own.
std::vector<int> number_machines(const std::vector<JobFacts>& facts, bool is_shared);

// Whether a launcher of MPI has given this process the rank that it has in the job, of as many.
bool is_started_by_mpi(int rank, std::size_t size);

}  // namespace lockstep
