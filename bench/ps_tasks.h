#pragma once

#include <sys/types.h>

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "lockstep/cluster/cluster_resolver.h"

namespace bench {

// This program again, with other arguments and more in its environment. It is killed when this process ends, however it ends,
// or the object does.
class Child {
 public:
  Child(const std::vector<std::string>& arguments, const std::map<std::string, std::string>& environment);
  ~Child();
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;

  pid_t pid() const noexcept { return pid_; }
  // For the top of main().
  static void end_with_parent();

 private:
  pid_t pid_ = 0;
};

// Parameter servers and workers on this machine, a process each; this one is the chief.
class Tasks {
 public:
  Tasks(int servers, int workers);

  std::shared_ptr<const lockstep::ClusterResolver> chief() const { return chief_; }
  pid_t server(std::size_t index) const { return servers_.at(index)->pid(); }

 private:
  std::shared_ptr<const lockstep::ClusterResolver> chief_;
  std::vector<std::unique_ptr<Child>> servers_;
  std::vector<std::unique_ptr<Child>> workers_;
};

}  // namespace bench
