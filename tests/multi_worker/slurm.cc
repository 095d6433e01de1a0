#include "tests/multi_worker/slurm.h"

#include <pwd.h>
#include <signal.h>
#include <unistd.h>

#include <fstream>
#include <sstream>
#include <stdexcept>

#include "lockstep/base/str.h"
#include "lockstep/cluster/host_address.h"

namespace lockstep::testing {
namespace {

using namespace std::chrono_literals;
namespace fs = std::filesystem;

std::string user_name() {
  const passwd* const user = getpwuid(geteuid());
  return user == nullptr ? "root" : user->pw_name;
}

// Two tasks share a core where they must, nothing is confined, and nobody is asked who they are: the ports are open for
// the length of a test.
std::string configuration(const fs::path& folder, int controller_port, int node_port) {
  std::ostringstream out;
  out << "ClusterName=test\n"
      << "SlurmctldHost=" << own_host_name() << "(127.0.0.1)\n"
      << "SlurmUser=" << user_name() << "\nSlurmdUser=" << user_name() << "\n"
      << "SlurmctldPort=" << controller_port << "\nSlurmdPort=" << node_port << "\n"
      << "AuthType=auth/none\nCredType=cred/none\n"
      << "StateSaveLocation=" << (folder / "state").string() << "\n"
      << "SlurmdSpoolDir=" << (folder / "spool").string() << "\n"
      << "SlurmctldPidFile=" << (folder / "controller.pid").string() << "\n"
      << "SlurmdPidFile=" << (folder / "node.pid").string() << "\n"
      << "ProctrackType=proctrack/linuxproc\nTaskPlugin=task/none\nJobAcctGatherType=jobacct_gather/none\n"
      << "SchedulerType=sched/builtin\nSelectType=select/linear\nReturnToService=2\nMpiDefault=none\nSwitchType=switch/none\n"
      << "NodeName=" << own_host_name() << " NodeAddr=127.0.0.1 CPUs=" << sysconf(_SC_NPROCESSORS_ONLN) << " State=UNKNOWN\n"
      << "PartitionName=all Nodes=ALL Default=YES State=UP OverSubscribe=YES\n";
  return out.str();
}

fs::path new_folder() {
  std::string name = (fs::temp_directory_path() / "lockstep-slurm-XXXXXX").string();
  if (mkdtemp(name.data()) == nullptr) throw std::runtime_error("cannot make a folder for Slurm");
  return name;
}

}  // namespace

Slurm::Slurm() : folder_(new_folder()) {
  fs::create_directory(folder_ / "state");
  fs::create_directory(folder_ / "spool");
  const auto ports = free_ports(2);
  std::ofstream(folder_ / "slurm.conf") << configuration(folder_, ports[0], ports[1]);
  for (const char* daemon : {LOCKSTEP_SLURMCTLD, LOCKSTEP_SLURMD})
    daemons_.push_back(
        std::make_unique<Process>(daemon, Command{{daemon, "-D", "-f", (folder_ / "slurm.conf").string()}, variables()}));
  // The node is registered when a task can run.
  const auto ending = run_process("srun true", srun(1, {{"true"}, {}}), 30s);
  if (ending.exit_code != 0) {
    std::ostringstream why;
    why << "Slurm does not start: " << ending;
    for (const auto& daemon : daemons_) {
      daemon->signal(SIGKILL);
      why << daemon->wait(Process::Clock::now() + 5s);
    }
    throw std::runtime_error(why.str());
  }
}

Slurm::~Slurm() {
  for (const auto& daemon : daemons_) daemon->signal(SIGTERM);
  for (const auto& daemon : daemons_) daemon->wait(Process::Clock::now() + 10s);
  std::error_code ignored;
  fs::remove_all(folder_, ignored);
}

Variables Slurm::variables() const { return {{"SLURM_CONF", (folder_ / "slurm.conf").string()}}; }

Command Slurm::srun(int tasks, Command command, const std::vector<std::string>& options) const {
  std::vector<std::string> words = {LOCKSTEP_SRUN, str("--ntasks=", tasks), "--overcommit", "--immediate=30", "--quiet"};
  words.insert(words.end(), options.begin(), options.end());
  command.words.insert(command.words.begin(), words.begin(), words.end());
  command.variables.merge(variables());
  return command;
}

}  // namespace lockstep::testing
