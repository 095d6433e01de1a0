#pragma once

#include <map>
#include <string>
#include <vector>

#include "lockstep/collective/communication_options.h"

// What TensorFlow's first version configures a session with.

namespace lockstep {

class ClusterResolver;

namespace compat::v1 {

enum class Toggle { kDefault, kOn, kOff };

struct ScopedAllocatorOptions {
  std::vector<std::string> enable_op = {};
  bool operator==(const ScopedAllocatorOptions&) const = default;
};

struct RewriterConfig {
  Toggle scoped_allocator_optimization = Toggle::kDefault;
  ScopedAllocatorOptions scoped_allocator_opts = {};
  bool operator==(const RewriterConfig&) const = default;
};

struct GraphOptions {
  RewriterConfig rewrite_options = {};
  bool operator==(const GraphOptions&) const = default;
};

// The fields that strategies set, and those that programs set most. A value: a copy shares nothing with the original.
// There is no session here: Lockstep fills it in as TensorFlow does, for programs that hand it on, and reads none of it.
struct ConfigProto {
  struct Experimental {
    std::string collective_group_leader = "";
    bool collective_nccl = false;
    bool operator==(const Experimental&) const = default;
  };

  std::map<std::string, int> device_count = {};
  int intra_op_parallelism_threads = 0;
  int inter_op_parallelism_threads = 0;
  std::vector<std::string> device_filters = {};
  bool allow_soft_placement = false;
  bool log_device_placement = false;
  bool isolate_session_state = false;
  GraphOptions graph_options = {};
  Experimental experimental = {};

  bool operator==(const ConfigProto&) const = default;
};

namespace internal {

// What the strategies make of a config: for the devices of one process; for workers, of which `resolver` says which one this
// is (null, or without a cluster: it is alone). Throws kInvalidArgument when it is none of its cluster's tasks.
ConfigProto config_for_devices(ConfigProto config);
ConfigProto config_for_worker(ConfigProto config, const ClusterResolver* resolver, CommunicationImplementation implementation);

}  // namespace internal
}  // namespace compat::v1
}  // namespace lockstep
