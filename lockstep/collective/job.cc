#include "lockstep/collective/job.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <condition_variable>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <numeric>
#include <sstream>

#include "lockstep/base/environment.h"
#include "lockstep/base/errno_text.h"
#include "lockstep/base/forks.h"
#include "lockstep/base/gate.h"
#include "lockstep/base/log.h"
#include "lockstep/base/on_exit.h"
#include "lockstep/base/str.h"
#include "lockstep/base/thread.h"
#include "lockstep/cluster/host_address.h"
#include "lockstep/cluster/reach.h"
#include "lockstep/cluster/roles.h"
#include "lockstep/collective/engine_plugin.h"
#include "lockstep/collective/job_facts.h"
#include "lockstep/collective/rendezvous.h"
#include "lockstep/collective/shared_block.h"
#include "lockstep/collective/watchdog.h"

namespace lockstep {
namespace {

using std::chrono::nanoseconds;
using std::chrono::seconds;

constexpr seconds kLook(1);

CoordinationOptions coordination_of(const JobOptions& options) {
  CoordinationOptions result;
  result.secret = options.secret.empty() ? Environment().get("LOCKSTEP_JOB_SECRET").value_or("") : options.secret;
  result.tls = options.tls.is_given() ? options.tls : TlsFiles::from_environment();
  result.join_timeout = options.join_timeout;
  return result;
}

// The tasks that train together, in the order of their ranks.
std::vector<Task> workers_of(const ClusterSpec& spec) {
  std::vector<Task> tasks;
  for (const std::string job : {"chief", "worker"})
    for (std::int64_t index = 0; index < task_count(spec, job); ++index) tasks.push_back({job, index});
  return tasks;
}

std::string wishes_of(const JobOptions& options) {
  return str("engine ", options.engine, ", GPU tensors ", name_of(options.device_engine),
             options.is_deterministic ? ", deterministic" : ", not deterministic");
}

// From rank 0. Before there is a watch over the engine's calls.
void broadcast_in_time(Transport& engine, Bytes data, nanoseconds timeout) {
  Gate done;
  const auto start = done.value();
  const auto clock = start_thread("lockstep:start", [&](const std::stop_token&) {
    if (!done.wait(start, Deadline::after(timeout)))
      engine.abort(Error(ErrorCode::kDeadlineExceeded, "rank 0 of MPI did not say in time where the job meets"));
  });
  const OnExit stop([&] { done.advance(); });
  engine.broadcast(data, 0);
}

}  // namespace

struct Job::State {
  State(const ClusterResolver& resolver, const JobOptions& with);

  void find_coordinator();
  void connect();
  void wait_for_all();  // says on the log for whom, when it takes long
  void exchange_facts(const WorkerFacts& mine);
  std::string choose_network(int machines) const;
  void make_group(const WorkerFacts& mine);
  DeviceChoice choose_device() const;
  void connect_device(WorkerGroup& group, const std::string& engine, int gpu);
  std::vector<Reach::Peer> other_leaders() const;
  void start_watch();
  EngineSetup setup(const std::string& name, int rank, std::vector<int> members);
  void fail(const Error& why) noexcept;
  void throw_if_failed();
  [[noreturn]] void rethrow_with_reason(const Error& error);
  void make_flight_folder() const;
  void write_flight_record() const noexcept;
  std::string me() const { return str(tasks[static_cast<std::size_t>(rank)]); }

  // Const after construction of the job.
  const std::uint64_t forks_at_start = forks();
  const JobOptions options;
  const CoordinationOptions coordination;
  const ClusterSpec spec;
  const std::vector<Task> tasks;
  const int rank;
  Address coordinator;
  std::shared_ptr<Transport> mpi;  // when it was needed to find the coordinator
  std::vector<JobFacts> facts;
  std::string engine_choice;
  internal::Socket held_port;  // see Note [reach]

  // Guarded by mu.
  std::mutex mu;
  std::condition_variable has_failed;
  std::optional<Error> early_failure;  // before there was a group

  // In this order: what is below uses what is above.
  std::unique_ptr<CoordinationServer> server;
  std::shared_ptr<WorkerGroup> workers;
  std::unique_ptr<CoordinationClient> client;
  std::unique_ptr<Reach> reach;  // used by the watchdog's thread
  std::unique_ptr<Watchdog> watchdog;
};

Job::State::State(const ClusterResolver& resolver, const JobOptions& with)
    : options(with),
      coordination(coordination_of(with)),
      spec(resolver.cluster_spec()),
      tasks(workers_of(spec)),
      rank(static_cast<int>(id_in_cluster(spec, resolver.task_type(), resolver.task_id()))) {}

// A cluster whose launcher does not say where worker 0 is was started by mpirun: MPI knows.
void Job::State::find_coordinator() {
  const auto text = spec.task_address(tasks[0].type, tasks[0].index);
  if (!text.empty()) {
    coordinator = Address::parse(text, str(tasks[0]));
    if (coordinator.port == 0)
      throw Error(ErrorCode::kInvalidArgument,
                  str(tasks[0], "'s address is ", text, "; the others cannot know which port it takes: give it one"));
    if (rank == 0) server = std::make_unique<CoordinationServer>(coordinator, spec, tasks, coordination);
    return;
  }
  EngineSetup setup;
  setup.rank = rank;
  setup.size = static_cast<int>(tasks.size());
  setup.timeout = options.join_timeout;
  mpi = make_engine("mpi", setup);
  std::array<char, 1024> message{};
  std::exception_ptr failure;
  if (rank == 0) {
    std::string where;
    try {
      server = std::make_unique<CoordinationServer>(Address{"0.0.0.0", 0}, spec, tasks, coordination);
      where = str(machine_key(), "\n", own_host_name(), "\n", server->port());
    } catch (const Error& error) {
      failure = std::current_exception();
      where = str("\n", tasks[0], ": ", error.message(), "\n");  // no machine is called ""
    }
    std::copy_n(where.data(), std::min(where.size(), message.size() - 1), message.data());
  }
  broadcast_in_time(*mpi, std::as_writable_bytes(std::span(message)), options.join_timeout);
  if (failure) std::rethrow_exception(failure);
  std::array<std::string, 3> lines;
  std::istringstream in(message.data());
  for (auto& line : lines) std::getline(in, line);
  if (lines[0].empty()) throw Error(ErrorCode::kUnavailable, lines[1]);
  coordinator = {lines[0] == machine_key() ? "127.0.0.1" : lines[1], std::stoi(lines[2])};
}

void Job::State::connect() {
  find_coordinator();
  client = std::make_unique<CoordinationClient>(coordinator, spec, tasks[static_cast<std::size_t>(rank)], coordination,
                                                [this](const Failure& failure) { fail(Error(failure.code, failure.message)); });
}

void Job::State::wait_for_all() {
  constexpr auto kName = "the start of the job";
  constexpr nanoseconds kSayAfter = seconds(5);
  const auto deadline = Deadline::after(options.join_timeout);
  try {
    return client->barrier(kName, std::min(kSayAfter, options.join_timeout));
  } catch (const Error& error) {
    if (error.code() != ErrorCode::kDeadlineExceeded || deadline.has_passed()) throw;
    log_warning(str(me(), " waits for the others, at ", coordinator, ": ", error.message()));
  }
  client->barrier(kName, deadline.remaining());
}

void Job::State::exchange_facts(const WorkerFacts& mine) {
  JobFacts here;
  here.machine = machine_key();
  here.host = address_towards(coordinator);
  here.wishes = wishes_of(options);
  held_port = internal::Socket::hold_port(here.host);
  here.held_port = held_port.port();
  here.gpus = device_fact(options.device_engine, mine.gpus);
  here.replicas = mine.replicas;
  here.seed = mine.seed;
  here.has_mpi = (mpi != nullptr || is_started_by_mpi(rank, tasks.size())) && has_engine("mpi");
  client->put(str("facts/", rank), here.to_text());
  wait_for_all();
  for (std::size_t worker = 0; worker < tasks.size(); ++worker)
    facts.push_back(JobFacts::from_text(client->get(str("facts/", worker), options.join_timeout)));
  for (std::size_t worker = 0; worker < tasks.size(); ++worker)
    if (facts[worker].wishes != facts[0].wishes)
      throw Error(ErrorCode::kInvalidArgument, str(tasks[0], " was given '", facts[0].wishes, "' and ", tasks[worker], " '",
                                                   facts[worker].wishes, "'; give all workers the same options"));
  // The coordinator knows itself by a name that may mean this machine only: others tell what leads to them.
  if (rank == 0 && is_loopback(facts[0].host))
    for (const auto& other : facts)
      if (!is_loopback(other.host)) facts[0].host = address_towards({other.host, coordinator.port});
}

// All workers decide alike, from what all have told.
std::string Job::State::choose_network(int machines) const {
  if (machines == 1) return "";
  if (options.engine != "auto" && options.engine != "shm") return options.engine;
  return std::ranges::all_of(facts, &JobFacts::has_mpi) ? "mpi" : "gloo";
}

// `members`: which workers take part, by rank; each may speak for its whole machine.
EngineSetup Job::State::setup(const std::string& name, int of, std::vector<int> members) {
  EngineSetup result;
  result.rank = of;
  result.size = static_cast<int>(members.size());
  for (const int member : members) result.names.push_back(str(tasks[static_cast<std::size_t>(member)]));
  result.members = std::move(members);
  result.workers = static_cast<int>(tasks.size());
  result.host = facts[static_cast<std::size_t>(rank)].host;
  result.name = name;
  result.timeout = options.join_timeout;
  result.put = [this](const std::string& key, const std::string& value) { client->put(key, value); };
  result.get = [this](const std::string& key) { return client->get(key, options.join_timeout); };
  result.check = [this] { throw_if_failed(); };
  return result;
}

void Job::State::make_group(const WorkerFacts& mine) {
  const auto device = choose_device();  // before anything is connected: all workers throw, or none
  const bool is_shared = options.engine == "auto" || options.engine == "shm";
  WorkerLayout layout{rank, {}, number_machines(facts, is_shared), {}};
  for (std::size_t worker = 0; worker < tasks.size(); ++worker) {
    layout.replicas.push_back(facts[worker].replicas);
    layout.names.push_back(str(tasks[worker]));
  }
  if (options.engine == "shm" && layout.machine_count() > 1)
    throw Error(ErrorCode::kInvalidArgument, str("the engine shm serves one machine and the workers are on ",
                                                 layout.machine_count(), "; use auto, gloo or mpi"));
  const int machine = layout.machine();
  const auto neighbours = layout.workers_of(machine);
  const auto place = std::ranges::find(neighbours, rank) - neighbours.begin();
  std::shared_ptr<ShmTransport> shm;
  if (neighbours.size() > 1)
    shm = std::make_shared<ShmTransport>(setup(str("machine", machine), static_cast<int>(place), neighbours));
  const auto engine = choose_network(layout.machine_count());
  const auto make_network = [this, engine, machine, leaders = layout.leaders()](const std::string& name) {
    return std::shared_ptr<Transport>(make_engine(engine, setup(name, machine, leaders)));
  };
  std::shared_ptr<Transport> network;
  if (!engine.empty() && place == 0) network = make_network("network");
  // Nobody's MPI starts before everybody's does.
  if (engine == "mpi" && place != 0 && mpi == nullptr) mpi = make_engine(engine, setup("alone", 0, {rank}));
  engine_choice =
      str(shm ? str("shm between the ", neighbours.size(), " workers of this machine") : str(""),
          shm && !engine.empty() ? ", " : "",
          engine.empty() ? str("") : str(engine, " between ", layout.machine_count(), is_shared ? " machines" : " workers"),
          options.engine != "auto" ? " (asked for)"
          : engine == "mpi"        ? " (started by an MPI launcher)"
          : engine == "gloo"       ? " (not started by an MPI launcher)"
                                   : "");
  if (!device.why.empty())
    engine_choice += device.engine.empty() ? str("; GPU tensors through the CPU's memory (", device.why, ")")
                                           : str("; ", device.engine, " for GPU tensors (", device.why, ")");
  auto group =
      std::make_shared<WorkerGroup>(std::make_unique<WorkerBytes>(std::move(layout), shm, network), options.is_deterministic);
  group->set_channel_factory(make_network);
  if (!device.engine.empty()) connect_device(*group, device.engine, mine.gpus[0]);
  group->on_abort([this](const Error& why) {
    if (client != nullptr) client->fail(why.code(), str(me(), ": ", why.message()));
    write_flight_record();
  });
  const std::lock_guard lock(mu);
  workers = group;
  if (early_failure) throw *early_failure;
}

DeviceChoice Job::State::choose_device() const {
  std::vector<std::string> told;
  std::vector<std::string> names;
  for (std::size_t worker = 0; worker < tasks.size(); ++worker) {
    told.push_back(facts[worker].gpus);
    names.push_back(str(tasks[worker]));
  }
  return choose_device_engine(options.device_engine, told, names);
}

void Job::State::connect_device(WorkerGroup& group, const std::string& engine, int gpu) {
  group.use_device_engine({c10::DeviceType::CUDA, static_cast<c10::DeviceIndex>(gpu)},
                          [this, gpu, engine](const std::string& name) {
                            std::vector<int> all(tasks.size());
                            std::iota(all.begin(), all.end(), 0);
                            auto with = setup(name, rank, all);
                            with.device = gpu;
                            return std::shared_ptr<Transport>(make_engine(engine, with));
                          });
}

void Job::State::throw_if_failed() {
  std::shared_ptr<WorkerGroup> group;
  {
    const std::lock_guard lock(mu);
    if (early_failure) throw *early_failure;
    group = workers;
  }
  if (group == nullptr) return;
  if (const auto failure = group->failure()) throw *failure;
}

// An engine that cannot be made because a worker died says that a connection failed. The coordinator knows more, and is
// given a moment to say it. Otherwise the others get this reason, not that a worker has left.
void Job::State::rethrow_with_reason(const Error& error) {
  {
    std::unique_lock lock(mu);
    if (error.code() == ErrorCode::kUnavailable && workers == nullptr)
      has_failed.wait_for(lock, WorkerGroup::kVerdict, [&] { return early_failure.has_value(); });
    if (early_failure) throw *early_failure;
  }
  client->fail(error.code(), str(me(), ": ", error.message()));
  throw error;
}

// The first reason ends everything that waits.
void Job::State::fail(const Error& why) noexcept {
  std::shared_ptr<WorkerGroup> group;
  {
    const std::lock_guard lock(mu);
    if (workers == nullptr && !early_failure) early_failure = why;
    has_failed.notify_all();
    group = workers;
  }
  if (group != nullptr) group->abort(why);
}

// Now, not when the job has failed, somebody may look at what is wrong with it.
void Job::State::make_flight_folder() const {
  std::error_code error;
  const auto folder = Environment().get("LOCKSTEP_FLIGHT_DIR");
  if (folder) std::filesystem::create_directories(*folder, error);
  if (error) log_warning(str("LOCKSTEP_FLIGHT_DIR: the folder '", *folder, "' cannot be made (", error.message(), ")"));
}

void Job::State::write_flight_record() const noexcept {
  try {
    const auto folder = Environment().get("LOCKSTEP_FLIGHT_DIR");
    if (!folder) return;
    auto name = tasks[static_cast<std::size_t>(rank)];
    const auto path = str(*folder, "/flight-", name.type, "-", name.index, ".jsonl");
    const auto part = path + ".part";  // who looks into the folder sees whole records only
    std::ofstream file(part);
    file << workers->calls().flight_record(me(), client == nullptr ? nanoseconds(0) : client->clock_offset());
    file.close();
    if (!file || std::rename(part.c_str(), path.c_str()) != 0)
      return log_warning(str("the last collectives cannot be written to ", path, " (", errno_text(errno), ")"));
    log_warning(str("the last collectives are in ", path, "; `lockstep inspect ", *folder, "` says who was behind"));
  } catch (...) {  // it is told to help with a failure, not to add one
  }
}

// Those with whom this worker speaks over the network: none, where it does not.
std::vector<Reach::Peer> Job::State::other_leaders() const {
  const auto leaders = workers->layout().leaders();
  std::vector<Reach::Peer> peers;
  if (std::ranges::find(leaders, rank) == leaders.end()) return peers;
  for (const int leader : leaders) {
    const auto& theirs = facts[static_cast<std::size_t>(leader)];
    if (leader != rank) peers.push_back({str(tasks[static_cast<std::size_t>(leader)]), {theirs.host, theirs.held_port}});
  }
  return peers;
}

void Job::State::start_watch() {
  Watchdog::Setup watch;
  watch.me = me();
  for (const auto& task : tasks) watch.workers.push_back(str(task));
  watch.stall_warning = options.stall_warning;
  const auto timeout = options.communication.timeout();
  watch.timeout = timeout.count() > 0 ? timeout : nanoseconds(kDefaultTimeout);
  watch.look = [this] { return inspect_cluster(coordinator, kLook, coordination.tls); };
  watch.tell = [this](const Activity& activity) { client->set_activity(activity); };
  watch.fail = [this](const Error& why) { workers->abort(why); };
  reach = std::make_unique<Reach>(other_leaders());
  reach->greet();
  watch.reach = [this](bool is_wanted) { return reach->look(is_wanted); };
  watchdog = std::make_unique<Watchdog>(workers->calls(), std::move(watch));
}

Job::Job(const ClusterResolver& resolver, const WorkerFacts& mine, const JobOptions& options)
    : state_(std::make_unique<State>(resolver, options)) {
  State& s = *state_;
  s.make_flight_folder();
  s.connect();
  try {
    s.exchange_facts(mine);
    s.make_group(mine);
    s.start_watch();
    s.workers->barrier("the start of the job");
  } catch (const Error& error) {
    s.rethrow_with_reason(error);
  } catch (const std::exception& error) {
    s.client->fail(ErrorCode::kInternal, error.what());
    throw;
  }
}

Job::~Job() {
  if (forks() != state_->forks_at_start) {  // the threads, and the job, are the parent's
    [[maybe_unused]] const State* const leaked = state_.release();
    return;
  }
  state_->watchdog.reset();
  if (state_->workers != nullptr) {
    if (!state_->workers->calls().under_way().empty())
      state_->workers->abort(Error(ErrorCode::kCancelled, "the strategy was destroyed while a collective was under way"));
    // What outlives the strategy must not wait for workers that it cannot hear any more.
    state_->workers->close(Error(ErrorCode::kFailedPrecondition, "the strategy of these workers was destroyed"));
    state_->workers->set_channel_factory(nullptr);
    state_->workers->forget_device_factory();
    state_->client->set_activity(activity_of(state_->workers->calls()));
  }
  state_->client.reset();
}

const std::shared_ptr<WorkerGroup>& Job::workers() const noexcept { return state_->workers; }
std::uint64_t Job::seed() const noexcept { return state_->facts[0].seed; }
int Job::replicas_of_machine() const {
  const auto& facts = state_->facts;
  const auto& here = facts[static_cast<std::size_t>(state_->rank)].machine;
  int replicas = 0;
  for (const auto& worker : facts)
    if (worker.machine == here) replicas += worker.replicas;
  return replicas;
}
const std::string& Job::engine_choice() const noexcept { return state_->engine_choice; }

}  // namespace lockstep
