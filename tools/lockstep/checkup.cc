#include "tools/lockstep/checkup.h"

#include <netdb.h>

#include <algorithm>
#include <cstring>
#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>
#include <set>
#include <utility>

#include "lockstep/base/environment.h"
#include "lockstep/base/error.h"
#include "lockstep/base/str.h"
#include "lockstep/cluster/host_address.h"
#include "lockstep/cluster/roles.h"
#include "tools/lockstep/coordination_options.h"

namespace lockstep::tool {
namespace {

using Json = nlohmann::json;

// The chief or worker 0 first: the coordinator is there.
std::vector<Task> leader_first(const ClusterSpec& spec) {
  auto tasks = spec.all_tasks();
  const Task leader{spec.has_job("chief") ? "chief" : "worker", 0};
  const auto found = std::ranges::find(tasks, leader);
  if (found == tasks.end())
    throw Error(ErrorCode::kInvalidArgument, str("the cluster ", spec, " has no ", leader, ", where all tasks meet"));
  std::rotate(tasks.begin(), found, found + 1);
  return tasks;
}

std::size_t index_of(const std::vector<Task>& tasks, const Task& task) {
  return static_cast<std::size_t>(std::ranges::find(tasks, task) - tasks.begin());
}

std::optional<Address> address_of(const ClusterSpec& spec, const Task& task) {
  const auto& text = spec.task_address(task.type, task.index);
  return text.empty() ? std::nullopt : std::optional(Address::parse(text, str(task)));
}

// The first address of a name, as numbers. Throws kNotFound.
std::string resolved(const std::string& host) {
  addrinfo hints = {};
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  const int error = getaddrinfo(host.c_str(), nullptr, &hints, &found);
  if (error != 0) throw Error(ErrorCode::kNotFound, str("'", host, "' does not resolve (", gai_strerror(error), ")"));
  const std::unique_ptr<addrinfo, void (*)(addrinfo*)> list(found, freeaddrinfo);
  char text[NI_MAXHOST] = {};
  getnameinfo(list->ai_addr, list->ai_addrlen, text, sizeof text, nullptr, 0, NI_NUMERICHOST);
  return text;
}

}  // namespace

Checkup::Checkup(const DoctorOptions& options, ClusterSpec spec, Task task)
    : options_(options),
      spec_(std::move(spec)),
      task_(std::move(task)),
      tasks_(leader_first(spec_)),
      index_(index_of(tasks_, task_)) {
  validate_cluster_spec(spec_, task_.type, task_.index);
  if (index_ == tasks_.size()) throw Error(ErrorCode::kInvalidArgument, str(task_, " is not a task of ", spec_));
  own_ = address_of(spec_, task_);
  const auto leader = options.coordinator ? options.coordinator : address_of(spec_, tasks_[0]);
  if (!leader)
    throw Error(ErrorCode::kInvalidArgument, str("the environment does not say where ", tasks_[0],
                                                 " is; give all tasks the same --coordinator HOST:PORT of its machine"));
  coordinator_ = *leader;
}

Checkup::~Checkup() = default;

std::string Checkup::me() const { return str(task_); }

std::string Checkup::key(const char* what, const Task& task) const { return str("doctor/", what, "/", task); }

bool Checkup::step(const std::string& check, const std::string& fix, const std::function<void()>& body) {
  try {
    body();
    return true;
  } catch (const Error& error) {
    add({.check = check, .who = me(), .verdict = Verdict::kFailed, .found = error.message(), .fix = fix});
    return false;
  }
}

bool Checkup::run() {
  check_names();
  for (auto& finding : check_machine(me(), tasks_.size())) add(std::move(finding));
  const bool can_go_on =
      step("port", "end what uses the port, or give the task another address; its host must be this machine",
           [&] { open_probe(); }) &&
      step("registration", "start all tasks of the cluster with the same program, cluster and LOCKSTEP_JOB_SECRET",
           [&] { join(); }) &&
      step("all tasks", "start the missing tasks, and look at their own output", [&] { exchange_facts(); });
  if (can_go_on) {
    step("names", "check the spelling, add the host to DNS or /etc/hosts, or use its IP address", [&] { check_own_name(); });
    connect_to_all();
    open_memory();
    if (step("all tasks", "look at the output of the task that has ended", [&] { measure_pairs(); })) {
      if (is_leader()) check_machines();
      bool is_good = false;
      if (step("all tasks", "look at the output of the task that has ended", [&] { is_good = conclude(); })) return is_good;
    }
  }
  print_findings(std::cout, findings_, options_.as_json);
  return false;
}

void Checkup::check_names() {
  std::set<std::string> hosts;
  for (const auto& task : tasks_)
    if (const auto address = address_of(spec_, task)) hosts.insert(address->host);
  hosts.insert(coordinator_.host);
  std::size_t good = 0;
  for (const auto& host : hosts)
    good +=
        step("names", "check the spelling, add the host to DNS or /etc/hosts, or use its IP address", [&] { resolved(host); });
  if (good == hosts.size())
    add({.check = "names", .who = me(), .found = str(good, good == 1 ? " host resolves" : " hosts resolve")});
}

// The leader's own port is the coordinator's.
void Checkup::open_probe() {
  if (is_leader()) {
    server_ = std::make_unique<CoordinationServer>(coordinator_, spec_, tasks_, coordination_options(options_.timeout));
    probe_ = std::make_unique<ProbeServer>(Address{coordinator_.host, 0});
    add({.check = "port", .who = me(), .found = str("listens on ", coordinator_)});
  } else {
    if (own_) internal::Socket::listen(*own_);  // throws, where somebody else has it
    // A job's engines take free ports: those are what must be reached.
    const auto host = own_ ? own_->host : address_towards(coordinator_);
    probe_ = std::make_unique<ProbeServer>(Address{host, 0});
    add({.check = "port", .who = me(), .found = str("listens on ", Address{host, probe_->port()})});
  }
}

void Checkup::join() {
  client_ = std::make_unique<CoordinationClient>(coordinator_, spec_, task_, coordination_options(options_.timeout));
  add({.check = "registration", .who = me(), .found = str("same build, ", build_name())});
}

void Checkup::exchange_facts() {
  Facts mine;
  mine.probe = {is_leader() ? coordinator_.host : own_ ? own_->host : address_towards(coordinator_), probe_->port()};
  mine.token = probe_->token();
  mine.host = own_host_name();
  mine.machine = look_at_machine();
  memory_ = SharedBlock(sizeof mine.token);
  std::memcpy(memory_.data(), &mine.token, sizeof mine.token);
  mine.memory = memory_.ticket();
  client_->put(key("facts", task_), to_text(mine));
  client_->barrier("doctor/facts", options_.timeout);
  for (const auto& task : tasks_) facts_.push_back(facts_from(client_->get(key("facts", task), options_.timeout)));
  add({.check = "all tasks", .who = me(), .found = str(tasks_.size(), " are here")});
}

// Debian writes "127.0.1.1 name" into /etc/hosts: a task that listens there is heard by its own machine only.
void Checkup::check_own_name() {
  const auto host = is_leader() ? coordinator_.host : own_ ? own_->host : "";
  const bool are_others_elsewhere =
      std::ranges::any_of(facts_, [&](const Facts& facts) { return facts.machine.boot != facts_[index_].machine.boot; });
  if (host.empty() || !are_others_elsewhere || !is_loopback(resolved(host))) return;
  add({.check = "names",
       .who = me(),
       .verdict = Verdict::kFailed,
       .found = str("'", host, "' means ", resolved(host), " here, which the other machines cannot reach"),
       .fix = str("remove '", host, "' from the line of ", resolved(host), " in /etc/hosts")});
}

bool Checkup::conclude() {
  if (!is_leader()) {
    client_->put(key("findings", task_), tool::to_text(findings_));
    return client_->get("doctor/verdict", options_.timeout + options_.timeout) == "good";
  }
  for (std::size_t other = 1; other < tasks_.size(); ++other)
    for (auto& finding : findings_from(client_->get(key("findings", tasks_[other]), options_.timeout))) add(std::move(finding));
  print_findings(std::cout, findings_, options_.as_json);
  std::cout.flush();
  const bool is_good = !has_failed(findings_);
  client_->put("doctor/verdict", is_good ? "good" : "bad");
  return is_good;
}

void Checkup::check_machines() {
  std::map<std::string, std::vector<const Facts*>> machines;
  for (const auto& facts : facts_) machines[facts.machine.boot].push_back(&facts);
  for (const auto& [boot, tasks] : machines) {
    std::vector<MachineFacts> on_it;
    for (const auto* facts : tasks) on_it.push_back(facts->machine);
    add(check_cores(tasks[0]->host, on_it));
  }
}

std::string Checkup::to_text(const Facts& facts) {
  return Json{{"probe_host", facts.probe.host}, {"probe_port", facts.probe.port},
              {"token", facts.token},           {"host", facts.host},
              {"key", facts.machine.key},       {"boot", facts.machine.boot},
              {"cpus", facts.machine.cpus},     {"quota", facts.machine.quota},
              {"memory", facts.memory}}
      .dump(-1, ' ', false, Json::error_handler_t::replace);
}

Checkup::Facts Checkup::facts_from(const std::string& text) {
  try {
    const auto json = Json::parse(text);
    return {{json.at("probe_host"), json.at("probe_port")},
            json.at("token"),
            json.at("host"),
            {json.at("key"), json.at("boot"), json.at("cpus"), json.at("quota")},
            json.at("memory")};
  } catch (const Json::exception& error) {
    throw Error(ErrorCode::kDataLoss, str("what a task tells about itself cannot be read (", error.what(), ")"));
  }
}

}  // namespace lockstep::tool
