#include "tools/lockstep/run.h"

#include <algorithm>
#include <memory>
#include <utility>

#include "lockstep/base/environment.h"
#include "lockstep/base/error.h"
#include "lockstep/base/exit_codes.h"
#include "lockstep/base/random.h"
#include "lockstep/base/str.h"
#include "lockstep/cluster/coordination.h"
#include "lockstep/cluster/host_address.h"
#include "tools/lockstep/attempt.h"
#include "tools/lockstep/log_files.h"
#include "tools/lockstep/rendezvous.h"

namespace lockstep::tool {
namespace {

constexpr auto kSaved = "the job has saved and ended because it was told to; started again, it goes on there";

std::string random_secret() { return str(std::hex, unguessable_number(), unguessable_number()); }

// Machines that were started one by one have no other way to know each other than a secret they were given.
std::string job_secret(const RunOptions& options, Printer& printer) {
  const auto given = Environment().get("LOCKSTEP_JOB_SECRET").value_or("");
  if (!given.empty() || options.nodes == 1) return given.empty() ? random_secret() : given;
  say(printer, "LOCKSTEP_JOB_SECRET is not set: whoever reaches the port can join the job");
  return "";
}

MeetingOptions meeting_of(const RunOptions& options, const std::string& secret) {
  return {*options.rendezvous, options.nodes, secret, options.join_timeout, options.ssh.lost_after};
}

std::unique_ptr<Node> make_host_node(const RunOptions& options, std::size_t number, Printer& printer) {
  const auto& host = options.hosts[number];
  if (is_this_machine(host)) return std::make_unique<LocalNode>("0.0.0.0");
  return start_by_ssh(options.ssh, host, printer);
}

// False when a signal asked for the end.
bool gather(Job& job) {
  const auto& options = job.options;
  if (!options.hosts.empty()) {
    for (std::size_t k = 0; k < options.hosts.size(); ++k) job.nodes.push_back(make_host_node(options, k, job.printer));
    return true;
  }
  job.nodes.push_back(
      std::make_unique<LocalNode>(options.nodes == 1 && options.local_address.empty() ? "127.0.0.1" : "0.0.0.0"));
  if (options.nodes == 1) return true;
  auto guests = wait_for_nodes(meeting_of(options, job.secret), job.signals, job.printer);
  for (auto& guest : guests) {
    job.shape.nodes[static_cast<std::size_t>(guest.hello.rank)] = {guest.address, static_cast<int>(guest.hello.workers)};
    job.nodes.push_back(std::move(guest.node));
  }
  if (guests.empty()) return false;
  validate(job.shape);
  return true;
}

// A machine behind ssh is started anew; one that came by itself does not come again.
bool can_start_again(Job& job) {
  for (std::size_t k = 0; k < job.nodes.size(); ++k) {
    if (!job.nodes[k]->is_lost()) continue;
    if (job.options.hosts.empty()) {
      say(job.printer, str("cannot start again without ", job.nodes[k]->name()));
      return false;
    }
    job.nodes[k] = make_host_node(job.options, k, job.printer);
  }
  return true;
}

int lead(Job& job) {
  const auto& options = job.options;
  if (!gather(job)) return 1;
  if (job.shape.ps > 0 && !job.shape.has_chief)
    say(job.printer, "has no --chief: workers and parameter servers wait for a coordinator that somebody else starts");
  for (int number = 0;;) {
    Attempt attempt(job, number);
    const auto outcome = attempt.run();
    const bool is_good = outcome == Outcome::kGood;
    const bool is_saved = !is_good && attempt.is_saved();
    if (is_saved) say(job.printer, kSaved);
    else if (!is_good) attempt.show_failure();
    if (is_good || outcome == Outcome::kInterrupted || job.restarts >= options.max_restarts || !can_start_again(job)) {
      const auto why = is_saved                           ? std::string(kSaved)
                       : outcome == Outcome::kInterrupted ? std::string("node 0 was told to end")
                                                          : attempt.failure();
      const int exit_code = is_good ? 0 : is_saved ? kPreemptedExitCode : 1;
      for (const auto& node : job.nodes) node->say_goodbye({exit_code, why});
      return exit_code;
    }
    number = attempt.last_number() + 1;
    say(job.printer, str("starts all tasks again (", ++job.restarts, " of ", options.max_restarts, ")"));
  }
}

int follow(const RunOptions& options, const std::string& secret, Printer& printer) {
  return join_launcher(meeting_of(options, secret),
                       {.build = build_name(),
                        .host = own_host_name(),
                        .rank = options.node_rank,
                        .nodes = options.nodes,
                        .workers = options.workers,
                        .secret = secret,
                        .address = options.local_address},
                       {options.command, options.log_dir}, printer);
}

}  // namespace

int run_job(const RunOptions& options) {
  validate(options);
  make_log_dir(options.log_dir);
  Printer printer;  // outlives all others: who reads slowly keeps nobody else waiting, and signals end that wait
  const auto secret = job_secret(options, printer);
  if (options.node_rank > 0) return follow(options, secret, printer);
  const Signals signals;
  Job job{options, signals, printer, secret, shape_of(options), {}};
  return lead(job);
}

}  // namespace lockstep::tool
