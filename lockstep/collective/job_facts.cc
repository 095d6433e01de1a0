#include "lockstep/collective/job_facts.h"

#include <algorithm>
#include <array>
#include <map>
#include <sstream>

#include "lockstep/base/environment.h"
#include "lockstep/base/str.h"

namespace lockstep {

std::string JobFacts::to_text() const {
  return str(machine, "\n", host, "\n", wishes, "\n", gpus, "\n", held_port, "\n", replicas, "\n", seed, "\n", has_mpi);
}

JobFacts JobFacts::from_text(const std::string& text) {
  std::array<std::string, 4> texts;
  std::istringstream in(text);
  for (auto& line : texts) std::getline(in, line);
  JobFacts facts{texts[0], texts[1], texts[2], texts[3]};
  in >> facts.held_port >> facts.replicas >> facts.seed >> facts.has_mpi;
  return facts;
}

std::vector<int> number_machines(const std::vector<JobFacts>& facts, bool is_shared) {
  std::map<std::string, int> seen;
  std::vector<int> machines;
  for (std::size_t worker = 0; worker < facts.size(); ++worker) {
    const auto key = is_shared ? facts[worker].machine : str(worker);
    machines.push_back(seen.emplace(key, static_cast<int>(seen.size())).first->second);
  }
  return machines;
}

// Open MPI, and Slurm with its process management interface, tell a process its rank, and mostly how many there are.
bool is_started_by_mpi(int rank, std::size_t size) {
  const Environment environment;
  const auto is = [&](const char* name, const std::string& value) { return environment.get(name).value_or(value) == value; };
  const std::array ranks{"OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK"};
  const bool has_rank = std::ranges::any_of(ranks, [&](const char* name) { return environment.get(name).has_value(); });
  return has_rank && std::ranges::all_of(ranks, [&](const char* name) { return is(name, str(rank)); }) &&
         is("OMPI_COMM_WORLD_SIZE", str(size)) && is("PMI_SIZE", str(size));
}

}  // namespace lockstep
