#include "tools/lockstep/machine.h"

#include <sched.h>
#include <sys/resource.h>
#include <sys/statvfs.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <map>

#include "lockstep/base/errno_text.h"
#include "lockstep/base/error.h"
#include "lockstep/base/number.h"
#include "lockstep/base/str.h"
#include "lockstep/collective/shared_block.h"

namespace lockstep::tool {
namespace {

constexpr double kMegabyte = 1 << 20;

std::string megabytes(double bytes) { return str(static_cast<std::int64_t>(bytes / kMegabyte), " MB"); }

std::string first_line(const char* path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return line;
}

// cgroup v2: "200000 100000" is two cores, "max 100000" no limit.
double cpu_quota() {
  std::ifstream file("/sys/fs/cgroup/cpu.max");
  double quota = 0;
  double period = 0;
  return file >> quota >> period && period > 0 ? quota / period : 0;
}

Finding check_shared_memory(const std::string& who) {
  constexpr std::size_t kBytes = 16 << 20;
  try {
    const SharedBlock block(kBytes);
    std::memset(block.data(), 1, kBytes);
    return {.check = "shared memory", .who = who, .found = str("memfd_create gives ", megabytes(kBytes))};
  } catch (const Error& error) {
    return {.check = "shared memory",
            .who = who,
            .verdict = Verdict::kFailed,
            .found = error.message(),
            .fix = "allow the system call memfd_create (container's seccomp profile), or use the engine gloo"};
  }
}

Finding check_shm_folder(const std::string& who) {
  constexpr double kWanted = 256 * kMegabyte;
  struct statvfs status = {};
  if (statvfs("/dev/shm", &status) != 0)
    return {.check = "/dev/shm",
            .who = who,
            .verdict = Verdict::kWarning,
            .found = str("is not there (", errno_text(errno), ")"),
            .fix = "mount a tmpfs at /dev/shm: MPI and NCCL use it between processes of one machine"};
  const auto free = static_cast<double>(status.f_bavail) * static_cast<double>(status.f_frsize);
  if (free >= kWanted) return {.check = "/dev/shm", .who = who, .found = str(megabytes(free), " free")};
  return {.check = "/dev/shm",
          .who = who,
          .verdict = Verdict::kWarning,
          .found = str(megabytes(free), " free; MPI and NCCL may need ", megabytes(kWanted)),
          .fix = "give the container more (docker run --shm-size 1g), or remove what was left in /dev/shm"};
}

Finding check_open_files(const std::string& who, std::size_t tasks) {
  constexpr std::size_t kOwn = 256;
  constexpr std::size_t kForEachTask = 8;
  const auto wanted = kOwn + kForEachTask * tasks;
  rlimit limit = {};
  getrlimit(RLIMIT_NOFILE, &limit);
  const auto now = limit.rlim_cur == RLIM_INFINITY ? str("no limit") : str("limit ", limit.rlim_cur);
  if (limit.rlim_cur >= wanted) return {.check = "open files", .who = who, .found = now};
  return {.check = "open files",
          .who = who,
          .verdict = Verdict::kFailed,
          .found = str(now, "; ", tasks, " tasks need ", wanted),
          .fix = str("ulimit -n ", std::max<std::size_t>(wanted, 4096), " before the job starts")};
}

}  // namespace

MachineFacts look_at_machine() {
  MachineFacts facts{machine_key(), first_line("/proc/sys/kernel/random/boot_id"), {}, cpu_quota()};
  cpu_set_t mask;
  if (sched_getaffinity(0, sizeof mask, &mask) != 0) return facts;
  for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu)
    if (CPU_ISSET(cpu, &mask)) facts.cpus.insert(cpu);
  return facts;
}

std::vector<Finding> check_machine(const std::string& who, std::size_t tasks) {
  return {check_shared_memory(who), check_shm_folder(who), check_open_files(who, tasks)};
}

Finding check_cores(const std::string& host, const std::vector<MachineFacts>& facts) {
  std::set<int> cpus;
  std::map<std::string, MachineFacts> containers;  // each with what all its tasks may use
  for (const auto& one : facts) {
    cpus.insert(one.cpus.begin(), one.cpus.end());
    auto& container = containers[one.key];
    container.cpus.insert(one.cpus.begin(), one.cpus.end());
    container.quota = one.quota;
  }
  double cores = 0;
  for (const auto& [key, container] : containers) {
    const auto allowed = static_cast<double>(container.cpus.size());
    cores += container.quota > 0 ? std::min(allowed, container.quota) : allowed;
  }
  cores = std::min(cores, static_cast<double>(cpus.size()));
  const auto tasks = static_cast<double>(facts.size());
  Finding finding{.check = "cores",
                  .who = str("host ", host),
                  .found = str(cores, cores == 1 ? " core for " : " cores for ", tasks, tasks == 1 ? " task" : " tasks"),
                  .badness = tasks / std::max(cores, 1.0)};
  if (cores >= tasks) return finding;
  finding.verdict = Verdict::kWarning;
  finding.fix =
      "start fewer tasks on this machine, or let them use more of its cores: tasks that share a core wait for each other";
  return finding;
}

}  // namespace lockstep::tool
