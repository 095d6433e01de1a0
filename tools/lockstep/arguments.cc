#include "tools/lockstep/arguments.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <sstream>

#include "lockstep/base/error.h"
#include "lockstep/base/number.h"
#include "lockstep/base/str.h"

namespace lockstep::tool {
namespace {

constexpr double kMostSeconds = 86400;
constexpr int kTorchrunPort = 29500;  // its default for --master-port

// What CLI11 fills in, before it is checked.
struct Raw {
  std::string rendezvous;
  std::string master_address;
  int master_port = 0;
  std::string hosts;
  bool uses_ssh = false;
  double grace_seconds = 5;
  double save_grace_seconds = 25;
  double join_seconds = 600;
  double lost_seconds = std::chrono::duration<double>(kLostAfter).count();
  std::string address;
  double timeout_seconds = 5;
  double doctor_seconds = 30;
  std::string coordinator;
};

std::chrono::milliseconds milliseconds(double seconds) {
  return std::chrono::milliseconds(static_cast<std::int64_t>(seconds * 1000));
}

CLI::Option* add_seconds(CLI::App& app, const std::string& name, double& seconds, const std::string& text) {
  return app.add_option(name, seconds, text)
      ->capture_default_str()
      ->check(CLI::Range(0.0, kMostSeconds))
      ->check([](const std::string& given) { return std::isnan(std::atof(given.c_str())) ? "it must be a number" : ""; });
}

// CLI11 would take 010 for eight.
CLI::Option* add_number(CLI::App& app, const std::string& name, int& number, const std::string& text) {
  return app.add_option(name, number, text)->capture_default_str()->check([](const std::string& given) {
    const auto value = whole_number<int>(given);
    return value && std::to_string(*value) == given ? str("") : str("'", given, "' is no whole number that can be meant");
  });
}

void add_tasks(CLI::App& run, RunOptions& options) {
  add_number(run, "-n,--workers,--nproc-per-node,--nproc_per_node", options.workers, "workers on this machine, or on each");
  run.add_flag("--chief", options.has_chief,
               "one more task, the chief, which trains too; with --ps it leads, and the job ends with it");
  add_number(run, "--ps", options.ps, "parameter servers");
  run.add_flag("--evaluator", options.has_evaluator, "one more task that evaluates");
  run.add_option("--log-dir,--log_dir", options.log_dir, "one file for each task and attempt goes here");
  add_number(run, "--max-restarts,--max_restarts", options.max_restarts,
             "how often all tasks are started again when one fails; with --ps and --chief, how often the chief is when it "
             "fails, while "
             "the others keep running");
  add_number(
      run, "--task-restarts,--task_restarts", options.task_restarts,
      "with --ps and --chief: how often a worker or parameter server that ends before the chief is started again alone, all "
      "together; then the job goes on without it");
}

void add_machines(CLI::App& run, RunOptions& options, Raw& raw) {
  run.add_option("--hosts", raw.hosts, "other machines to start tasks on: a,b:2,n[1-4] (host:workers), with --ssh");
  run.add_flag("--ssh", raw.uses_ssh, "reach the hosts through ssh");
  run.add_option("--ssh-command", options.ssh.command, "the program in place of ssh, with its options")->capture_default_str();
  run.add_option("--remote-lockstep", options.ssh.remote_lockstep,
                 "where the command lockstep is on the hosts; without it: where it is here");
  add_number(run, "--nnodes", options.nodes, "machines that take part, each started with this command");
  add_number(run, "--node-rank,--node_rank", options.node_rank, "which of them this is, from 0");
  run.add_option("--rdzv,--rdzv-endpoint,--rdzv_endpoint", raw.rendezvous,
                 "HOST:PORT where node 0 waits for the others, the same on all machines");
  run.add_option("--rdzv-id,--rdzv_id", options.run_id, "a name of the job, for the tasks (TORCHELASTIC_RUN_ID)");
  run.add_option("--master-addr,--master_addr", raw.master_address, "with --master-port: the same as --rdzv");
  add_number(run, "--master-port,--master_port", raw.master_port, "the port of the first task on one machine, or with --hosts");
  run.add_option("--local-addr,--local_addr", options.local_address, "where the other machines reach this one");
}

CLI::App* add_run(CLI::App& app, RunOptions& options, Raw& raw) {
  auto* run = app.add_subcommand(
      "run", "Starts PROGRAM, with the arguments that follow it, as the tasks of a cluster, and watches them");
  run->prefix_command();
  add_tasks(*run, options);
  add_machines(*run, options, raw);
  add_seconds(*run, "--grace", raw.grace_seconds, "seconds that tasks get to end by themselves");
  add_seconds(*run, "--save-grace", raw.save_grace_seconds, "the same when this command gets SIGTERM, upon which they save");
  add_seconds(*run, "--join-timeout", raw.join_seconds, "seconds to wait for the other machines");
  add_seconds(*run, "--lost-after", raw.lost_seconds, "seconds without a sign of life after which a machine counts as lost");
  return run;
}

CLI::App* add_inspect(CLI::App& app, InspectOptions& options, Raw& raw) {
  auto* inspect = app.add_subcommand("inspect", "Shows what every task of a running cluster does, or did before it failed");
  inspect->add_option("address", raw.address,
                      "HOST:PORT of the chief, of worker 0, or of any task of a job with parameter servers; or a folder with "
                      "flight records. Without it: the tasks that TF_CONFIG names");
  add_seconds(*inspect, "--timeout", raw.timeout_seconds, "seconds to wait for an answer");
  inspect->add_flag("--json", options.as_json, "as JSON");
  return inspect;
}

CLI::App* add_doctor(CLI::App& app, DoctorOptions& options, Raw& raw) {
  auto* doctor = app.add_subcommand(
      "doctor", "Checks a cluster before its job: run it as the job would be run, lockstep run -n 2 lockstep doctor");
  add_seconds(*doctor, "--timeout", raw.doctor_seconds, "seconds of each wait for the other tasks");
  doctor->add_option("--coordinator", raw.coordinator, "HOST:PORT of the first task, where the environment does not say it");
  doctor->add_flag("--json", options.as_json, "as JSON");
  return doctor;
}

CLI::App* add_report(CLI::App& app, ReportOptions& options) {
  auto* report = app.add_subcommand("report", "Draws the curves and the step times of training logs as one HTML page");
  report->add_option("logdir", options.folder, "a folder with TensorBoard event files or CSV logs in it, or below it")
      ->required();
  report->add_option("--out,-o", options.out, "the page; without it: report.html in the folder");
  return report;
}

// Stands for the first "--" while CLI11 reads, which would take all that follows it for its own.
const std::string kDashes = "\x01--";

std::vector<std::string> program_of(const CLI::App& run) {
  auto words = run.remaining();
  if (words.empty()) return words;
  const bool has_dashes = words[0] == kDashes;
  if (has_dashes) words.erase(words.begin());
  else if (words[0].starts_with('-'))
    throw Error(ErrorCode::kInvalidArgument, str("there is no option '", words[0], "'; lockstep run --help lists them"));
  std::ranges::replace(words, kDashes, "--");  // the program's own
  return words;
}

// torchrun's --master-addr and --master-port name the place where several machines meet, or the first task's of one.
void take_master(const Raw& raw, RunOptions& options) {
  const bool meets_there = options.nodes > 1 && raw.rendezvous.empty();
  if (!raw.rendezvous.empty()) options.rendezvous = Address::parse(raw.rendezvous, "--rdzv");
  if (meets_there && !raw.master_address.empty())
    options.rendezvous = Address{raw.master_address, raw.master_port == 0 ? kTorchrunPort : raw.master_port};
  if (!meets_there && raw.master_port != 0) options.master_port = raw.master_port;
  if (options.nodes == 1 && options.local_address.empty()) options.local_address = raw.master_address;
}

void finish_run(const CLI::App& run, const Raw& raw, RunOptions& options) {
  options.command = program_of(run);
  take_master(raw, options);
  if (!raw.hosts.empty()) options.hosts = parse_hosts(raw.hosts);
  if (raw.uses_ssh && options.hosts.empty())
    throw Error(ErrorCode::kInvalidArgument, "--ssh needs --hosts, the machines to reach, for example --hosts a,b:2");
  const auto is_other = [](const Host& host) { return !is_this_machine(host); };
  if (!raw.uses_ssh && std::ranges::any_of(options.hosts, is_other))
    throw Error(ErrorCode::kInvalidArgument,
                str("--hosts names other machines (", std::ranges::find_if(options.hosts, is_other)->name,
                    "): add --ssh to start tasks there through ssh, or start lockstep run there with --nnodes"));
  options.grace = milliseconds(raw.grace_seconds);
  options.save_grace = milliseconds(raw.save_grace_seconds);
  options.join_timeout = milliseconds(raw.join_seconds);
  options.ssh.lost_after = milliseconds(raw.lost_seconds);
  validate(options);
}

// CLI11 takes its words from the last to the first.
void parse(CLI::App& app, std::vector<std::string> words) {
  if (!words.empty() && !words[0].starts_with('-') &&
      app.get_subcommands([&](const CLI::App* command) { return command->get_name() == words[0]; }).empty())
    throw Error(ErrorCode::kInvalidArgument, str("there is no command '", words[0], "'; lockstep --help lists them"));
  if (const auto dashes = std::ranges::find(words, "--"); dashes != words.end()) *dashes = kDashes;
  std::ranges::reverse(words);
  app.parse(std::move(words));
}

}  // namespace

Arguments parse_arguments(const std::vector<std::string>& words) {
  CLI::App app("Runs and watches clusters of Lockstep programs", "lockstep");
  app.require_subcommand(1);
  app.option_defaults()->multi_option_policy(CLI::MultiOptionPolicy::TakeLast);  // as torchrun does
  Arguments arguments;
  Raw raw;
  const auto* run = add_run(app, arguments.run, raw);
  const auto* inspect = add_inspect(app, arguments.inspect, raw);
  const auto* doctor = add_doctor(app, arguments.doctor, raw);
  const auto* report = add_report(app, arguments.report);
  auto* agent = app.add_subcommand("agent", "Starts tasks for a launcher on another machine")->group("");
  add_seconds(*agent, "--lost-after", raw.lost_seconds, "seconds without a sign of life of the launcher");
  try {
    parse(app, words);
  } catch (const CLI::ParseError& error) {
    std::ostringstream help;
    std::ostringstream complaint;
    if (app.exit(error, help, complaint) != 0) throw Error(ErrorCode::kInvalidArgument, error.what());
    arguments.help = help.str();
    return arguments;
  }
  if (run->parsed()) {
    arguments.command = Arguments::Command::kRun;
    finish_run(*run, raw, arguments.run);
  } else if (inspect->parsed()) {
    arguments.command = Arguments::Command::kInspect;
    const bool is_path = raw.address.find('/') != std::string::npos || raw.address.find(':') == std::string::npos ||
                         std::filesystem::exists(raw.address);
    if (raw.address.empty()) arguments.inspect.address.reset();
    else if (is_path) arguments.inspect.records = raw.address;
    else arguments.inspect.address = Address::parse(raw.address, "the coordinator");
    arguments.inspect.timeout = milliseconds(raw.timeout_seconds);
  } else if (doctor->parsed()) {
    arguments.command = Arguments::Command::kDoctor;
    arguments.doctor.timeout = milliseconds(raw.doctor_seconds);
    if (!raw.coordinator.empty()) arguments.doctor.coordinator = Address::parse(raw.coordinator, "--coordinator");
  } else if (report->parsed()) {
    arguments.command = Arguments::Command::kReport;
  } else {
    arguments.command = Arguments::Command::kAgent;
    arguments.agent_lost_after = milliseconds(raw.lost_seconds);
  }
  return arguments;
}

}  // namespace lockstep::tool
