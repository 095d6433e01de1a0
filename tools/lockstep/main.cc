#include <CLI/CLI.hpp>
#include <iostream>

#include "lockstep/base/error.h"
#include "lockstep/base/str.h"
#include "lockstep/cluster/coordination.h"
#include "tools/lockstep/inspect.h"
#include "tools/lockstep/run.h"

// The command `lockstep`. Exit status: 0 good, 1 failed, 2 wrong use.

namespace lockstep::tool {
namespace {

struct Arguments {
  RunOptions run;
  std::string rendezvous;
  double grace_seconds = 5;
  std::string address;
  double timeout_seconds = 5;
  bool as_json = false;
};

CLI::App* add_run(CLI::App& app, Arguments& arguments) {
  auto* run = app.add_subcommand(
      "run", "Starts PROGRAM, with the arguments that follow it, as the tasks of a cluster on this machine, and watches them");
  run->prefix_command();
  auto& shape = arguments.run.shape;
  run->add_option("-n,--nproc-per-node", shape.workers, "workers on this machine")->capture_default_str();
  run->add_flag("--chief", shape.has_chief, "one more task, the chief, which trains too");
  run->add_option("--ps", shape.ps, "parameter servers");
  run->add_flag("--evaluator", shape.has_evaluator, "one more task that evaluates");
  run->add_option("--nnodes", shape.nodes, "machines that take part, each started with this command")->capture_default_str();
  run->add_option("--node-rank", shape.node_rank, "which of them this is, from 0")->capture_default_str();
  run->add_option("--rdzv,--rdzv-endpoint", arguments.rendezvous, "HOST:PORT of worker 0, the same on all machines");
  run->add_option("--log-dir", arguments.run.log_dir, "one file for each task and attempt goes here");
  run->add_option("--max-restarts", arguments.run.max_restarts, "how often all tasks are started again when one fails")
      ->capture_default_str();
  run->add_option("--grace", arguments.grace_seconds, "seconds that tasks get to end by themselves")
      ->capture_default_str()
      ->check(CLI::Range(0.0, 86400.0));
  return run;
}

CLI::App* add_inspect(CLI::App& app, Arguments& arguments) {
  auto* inspect = app.add_subcommand("inspect", "Shows what every task of a running cluster does");
  inspect->add_option("address", arguments.address, "HOST:PORT of the chief, or of worker 0")->required();
  inspect->add_option("--timeout", arguments.timeout_seconds, "seconds to wait for an answer")
      ->capture_default_str()
      ->check(CLI::Range(0.0, 86400.0));
  inspect->add_flag("--json", arguments.as_json, "as JSON");
  return inspect;
}

int start(const CLI::App& run, Arguments& arguments) {
  arguments.run.command = run.remaining();
  if (!arguments.run.command.empty() && arguments.run.command[0] == "--")
    arguments.run.command.erase(arguments.run.command.begin());
  else if (!arguments.run.command.empty() && arguments.run.command[0].starts_with('-'))
    throw Error(ErrorCode::kInvalidArgument,
                str("there is no option '", arguments.run.command[0], "'; lockstep run --help lists them"));
  if (!arguments.rendezvous.empty()) arguments.run.shape.rendezvous = Address::parse(arguments.rendezvous, "--rdzv");
  arguments.run.grace = std::chrono::milliseconds(static_cast<std::int64_t>(arguments.grace_seconds * 1000));
  return run_job(arguments.run);
}

int look(const Arguments& arguments) {
  const auto timeout = std::chrono::milliseconds(static_cast<std::int64_t>(arguments.timeout_seconds * 1000));
  print_cluster(std::cout, inspect_cluster(Address::parse(arguments.address, "the coordinator"), timeout), arguments.as_json);
  return 0;
}

int main(int argc, char** argv) {
  constexpr int kFailed = 1;
  constexpr int kWrongUse = 2;
  CLI::App app("Runs and watches clusters of Lockstep programs", "lockstep");
  app.require_subcommand(1);
  Arguments arguments;
  const auto* run = add_run(app, arguments);
  add_inspect(app, arguments);
  try {
    app.parse(argc, argv);
    return run->parsed() ? start(*run, arguments) : look(arguments);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : kWrongUse;
  } catch (const Error& error) {
    std::cerr << "lockstep: " << error.what() << "\n";
    return error.code() == ErrorCode::kInvalidArgument ? kWrongUse : kFailed;
  } catch (const std::exception& error) {
    std::cerr << "lockstep: " << error.what() << "\n";
    return kFailed;
  }
}

}  // namespace
}  // namespace lockstep::tool

int main(int argc, char** argv) { return lockstep::tool::main(argc, argv); }
