#include "tools/lockstep/run_options.h"

#include "lockstep/base/error.h"
#include "lockstep/base/str.h"

namespace lockstep::tool {
namespace {

void require(bool condition, const std::string& message) {
  if (!condition) throw Error(ErrorCode::kInvalidArgument, message);
}

}  // namespace

void validate(const RunOptions& options) {
  constexpr int kMostNodes = 4096;
  constexpr int kHighestPort = 65535;
  require(!options.command.empty(), "there is no program to run");
  require(options.workers >= 0, str("-n (--nproc-per-node) is ", options.workers, "; it must not be negative"));
  require(options.ps >= 0, str("--ps is ", options.ps, "; it must not be negative"));
  require(options.max_restarts >= 0, str("--max-restarts is ", options.max_restarts, "; it must not be negative"));
  require(options.task_restarts >= 0, str("--task-restarts is ", options.task_restarts, "; it must not be negative"));
  require(options.task_restarts == 0 || options.node_rank > 0 || has_coordinator(shape_of(options)),
          "--task-restarts is for jobs with --ps and --chief, where a task can be started again alone; "
          "in others --max-restarts starts all again");
  require(options.nodes >= 1 && options.nodes <= kMostNodes,
          str("--nnodes is ", options.nodes, "; it must be 1 to ", kMostNodes));
  require(!options.master_port || (*options.master_port > 0 && *options.master_port <= kHighestPort),
          str("--master-port is ", options.master_port.value_or(0), "; it must be 1 to ", kHighestPort));
  require(options.node_rank >= 0 && options.node_rank < options.nodes,
          str("--node-rank is ", options.node_rank, " of ", options.nodes, " nodes; ranks count from 0"));
  require(options.nodes == 1 || options.rendezvous.has_value(),
          "several nodes need --rdzv HOST:PORT, where node 0 listens; give all nodes the same");
  require(options.nodes == 1 || (options.rendezvous->port > 0 && options.rendezvous->port <= kHighestPort),
          str("the nodes meet at port ", options.nodes == 1 ? 0 : options.rendezvous->port,
              " (--rdzv or --master-port); all need to know one, 1 to ", kHighestPort));
  require(options.nodes == 1 || options.hosts.empty(),
          "--nnodes is for machines where this command is started too, --hosts for those it starts itself; give one of them");
  require(options.ssh.lost_after >= 2 * kAliveEvery,
          "--lost-after is too short: machines give a sign of life every second; "
          "2 is the least");
  validate(shape_of(options));
}

JobShape shape_of(const RunOptions& options) {
  JobShape shape{{}, options.has_chief, options.ps, options.has_evaluator};
  for (const auto& host : options.hosts) shape.nodes.push_back({host.name, host.slots == 0 ? options.workers : host.slots});
  if (!options.hosts.empty()) return shape;
  shape.nodes.assign(static_cast<std::size_t>(options.nodes), {.workers = options.workers});
  if (!options.local_address.empty()) shape.nodes[0].address = options.local_address;
  else if (options.nodes > 1) shape.nodes[0].address = options.rendezvous->host;
  return shape;
}

}  // namespace lockstep::tool
