#include "lockstep/replica/replica_set.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <ATen/ThreadLocalState.h>

#include <optional>
#include <system_error>
#include <thread>

#include "lockstep/base/error.h"
#include "lockstep/base/first_error.h"
#include "lockstep/base/forks.h"
#include "lockstep/base/gate.h"
#include "lockstep/base/log.h"
#include "lockstep/base/on_exit.h"
#include "lockstep/base/str.h"
#include "lockstep/base/thread.h"
#include "lockstep/base/trace.h"
#include "lockstep/collective/local_group.h"
#include "lockstep/collective/rendezvous.h"
#include "lockstep/collective/worker_hub.h"
#include "lockstep/device/torch_device.h"
#include "lockstep/replica/generator.h"
#include "lockstep/replica/intra_op_threads.h"
#include "lockstep/replica/mode.h"
#include "lockstep/replica/recording.h"
#include "lockstep/replica/replica_context.h"

namespace lockstep {
namespace {

constexpr std::chrono::hours kIdleWait(1);

// Where the replicas of one run() meet. A run() inside merge_call has a level of its own, so that neither its meetings
// nor its failure touch those of the run() around it.
struct Level {
  Level(int size, const ReplicaSetOptions& options) : rendezvous(size, "replica"), hub(rendezvous) {
    if (options.communication.timeout().count() > 0) rendezvous.set_timeout(options.communication.timeout());
    if (options.workers != nullptr) workers = std::make_unique<WorkerHub>(rendezvous, *options.workers);
  }
  Group& group(int replica) { return workers != nullptr ? workers->group(replica) : hub.group(replica); }

  Rendezvous rendezvous;
  LocalHub hub;
  std::unique_ptr<WorkerHub> workers;      // null: one process
  std::atomic<std::uint32_t> released{0};  // merges whose function has run
};

// Who may run: one thread at a time. A lock with a deadline whose every step is an atomic, so that thread sanitizers,
// which do not know the timed mutexes of the C library, understand it.
class Turn {
 public:
  bool take(const Deadline& deadline) noexcept {
    while (true) {
      const auto seen = given_back_.value();
      if (!is_taken_.exchange(true, std::memory_order_acq_rel)) return true;
      if (!given_back_.wait(seen, deadline)) return false;
    }
  }
  void give_back() noexcept {
    is_taken_.store(false, std::memory_order_release);
    given_back_.advance();
  }

 private:
  std::atomic<bool> is_taken_{false};
  Gate given_back_;
};

// One run(): lives on the caller's stack until every replica is done with it.
struct Job {
  Level& level;
  FunctionRef<void(ReplicaContext&)> body;
  at::ThreadLocalState settings;
  FirstError& errors;
  std::atomic<int> remaining{0};
};

}  // namespace

// A registered observer. Its mutex is held while it is called, so that who takes it back waits for the call to end; it
// may also be taken back by the call itself.
struct ReplicaSet::Observer {
  explicit Observer(RunObserver with) : observer(std::move(with)) {}
  const RunObserver observer;
  std::recursive_mutex mu;
  bool is_gone = false;  // guarded by mu
};

struct ReplicaSet::State {
  using Observers = std::vector<std::shared_ptr<Observer>>;

  struct alignas(64) Mailbox {
    std::atomic<Job*> job{nullptr};
    Gate gate;
  };

  State(ReplicaSet& owner, Strategy* of, std::vector<LogicalDevice> on, const ReplicaSetOptions& with);
  ~State();

  int first_replica() const {
    return options.workers == nullptr ? 0 : options.workers->layout().first_replica(options.workers->layout().rank);
  }
  void start_replica(int replica);
  void stop();
  void serve(int replica, const std::function<bool()>& is_over);
  void execute(int replica, Job& job);
  void execute_body(int replica, Job& job);
  void wake_all();
  void take_turn();
  void give_turn_back() noexcept;
  void run_job(FunctionRef<void(ReplicaContext&)> body, FirstError& errors);
  void notify(std::function<void()> RunObserver::*when);
  void tell_workers(const FirstError& errors, std::uint64_t shared_failures_before);
  std::size_t require_replica(int replica) const;
  Level& enter_level();
  void wait_for_all(Job& job);

  // Own synchronisation.
  std::atomic<Strategy*> strategy;  // null: gone

  // Const after construction.
  const std::uint64_t forks_at_start = forks();
  const std::vector<LogicalDevice> devices;
  const ReplicaSetOptions options;
  const int threads_each;
  const int size;
  std::vector<c10::Device> torch_devices;
  std::vector<std::unique_ptr<ReplicaContext>> contexts;
  std::optional<ReplicaStreams> streams;  // always there after construction

  // Own synchronisation.
  std::unique_ptr<Mailbox[]> mailboxes;
  Gate done;  // moved when a replica has finished a job
  std::atomic<bool> is_stopping{false};
  std::atomic<std::uint64_t> runs{0};
  Turn turn;  // held during an outermost run()
  std::atomic<std::thread::id> turn_owner{};

  // Written by replica r before a meeting, read by replica 0 after it.
  std::vector<void*> records;

  // [r] used only by replica r's thread: the level of the run() it is in.
  std::vector<Level*> current;

  // Used only by the thread whose turn it is: one level for each depth of nested run() calls so far.
  std::vector<std::unique_ptr<Level>> levels;
  std::size_t depth = 0;
  std::atomic<Recording*> recording{nullptr};  // read by replicas while they run

  // Used by replica r's thread during run(), by others only between runs.
  std::vector<at::Generator> generators;

  // Guarded by observers_mu. The list is replaced, never changed: it is walked without the lock.
  std::mutex observers_mu;
  std::shared_ptr<const Observers> observers = std::make_shared<Observers>();

  std::vector<std::jthread> threads;  // last member: joined first
};

ReplicaSet::State::State(ReplicaSet& owner, Strategy* of, std::vector<LogicalDevice> on, const ReplicaSetOptions& with)
    : strategy(of),
      devices(std::move(on)),
      options(with),
      threads_each(internal::intra_op_threads_for(with.intra_op_threads, static_cast<int>(devices.size()))),
      size(static_cast<int>(devices.size())),
      mailboxes(std::make_unique<Mailbox[]>(devices.size())),
      records(devices.size()),
      current(devices.size()) {
  const auto seed = options.seed.value_or(at::globalContext().defaultGenerator(c10::Device(c10::kCPU)).current_seed());
  for (int replica = 0; replica < size; ++replica) {
    torch_devices.push_back(lockstep::torch_device(devices[static_cast<std::size_t>(replica)]));
    contexts.push_back(std::make_unique<ReplicaContext>(owner, replica));
    generators.push_back(internal::make_generator(torch_devices.back(), seed, first_replica() + replica));
  }
  streams.emplace(torch_devices);
  try {
    for (int replica = 1; replica < size; ++replica) start_replica(replica);
  } catch (const std::system_error& error) {
    stop();  // those that have started wait for work
    throw Error(ErrorCode::kUnavailable,
                str("the threads of ", size, " replicas cannot be started (", error.what(), "); use fewer replicas"));
  }
}

void ReplicaSet::State::start_replica(int replica) {
  threads.push_back(start_thread(str("lockstep:r", replica), [this, replica](const std::stop_token&) {
    // In this order: the first read of a thread overwrites its value with the process's default (ARCHITECTURE.md, Traps).
    at::get_num_threads();
    at::set_num_threads(threads_each);
    serve(replica, [this] { return is_stopping.load(std::memory_order_acquire); });
  }));
}

ReplicaSet::State::~State() { stop(); }

void ReplicaSet::State::stop() {
  is_stopping.store(true, std::memory_order_release);
  wake_all();
  if (forks() != forks_at_start) {
    // In a forked child the threads do not exist, and neither can be joined nor detached: their handles are kept.
    static auto* lost = new std::vector<std::vector<std::jthread>>;
    lost->push_back(std::move(threads));
  }
  threads.clear();
}

void ReplicaSet::State::wake_all() {
  for (int replica = 1; replica < size; ++replica) mailboxes[static_cast<std::size_t>(replica)].gate.advance();
}

// A replica thread's loop: run the jobs that come until `is_over`. See Note [replica threads], 1 and 4.
void ReplicaSet::State::serve(int replica, const std::function<bool()>& is_over) {
  Mailbox& mailbox = mailboxes[static_cast<std::size_t>(replica)];
  while (true) {
    const auto seen = mailbox.gate.value();
    if (Job* job = mailbox.job.exchange(nullptr, std::memory_order_acq_rel)) {
      if (at::get_num_threads() != threads_each) at::set_num_threads(threads_each);  // what an earlier function set
      execute(replica, *job);
    } else if (is_over()) return;
    else if (!mailbox.gate.wait_briefly(seen)) mailbox.gate.wait(seen, Deadline::after(kIdleWait));
  }
}

void ReplicaSet::State::execute(int replica, Job& job) {
  Level* const outer = current[static_cast<std::size_t>(replica)];
  current[static_cast<std::size_t>(replica)] = &job.level;
  try {
    execute_body(replica, job);
  } catch (...) {
    job.errors.capture(str("replica ", replica));
    job.level.rendezvous.abort(str("another replica (", replica, ") failed first"));
  }
  current[static_cast<std::size_t>(replica)] = outer;
  job.level.rendezvous.leave(replica);
  // After this the caller may be gone with the job; `done` is ours.
  job.remaining.fetch_sub(1, std::memory_order_acq_rel);
  done.advance();
}

void ReplicaSet::State::execute_body(int replica, Job& job) {
  const auto r = static_cast<std::size_t>(replica);
  const at::ThreadLocalStateGuard settings(job.settings);
  const auto stream = streams->use(r);
  const internal::ModeGuard mode({&contexts[r]->replicas(), contexts[r].get()});
  const internal::GeneratorScope generator(&generators[r]);
  const trace::Span span("run", trace::Category::kOther, {"replica", first_replica() + replica});
  job.body(*contexts[r]);
}

Level& ReplicaSet::State::enter_level() {
  if (depth == levels.size()) levels.push_back(std::make_unique<Level>(size, options));
  Level& level = *levels[depth++];
  level.rendezvous.reset();
  return level;
}

// User code cannot be interrupted, so this wait ends when it does; meanwhile it says who is still running.
void ReplicaSet::State::wait_for_all(Job& job) {
  int warnings = 0;
  while (true) {
    const auto seen = done.value();
    const int remaining = job.remaining.load(std::memory_order_acquire);
    if (remaining == 0) return;
    if (done.wait_briefly(seen)) continue;
    const trace::Span span("the other replicas", trace::Category::kWait);
    if (done.wait(seen, Deadline::after(kWarnEvery))) continue;
    log_warning(str("run: ", remaining, " of ", size, " replicas still run their function, ", ++warnings * kWarnEvery.count(),
                    " s after replica 0 has finished"));
  }
}

void ReplicaSet::State::take_turn() {
  const auto timeout = options.communication.timeout();
  const auto limit = timeout.count() > 0 ? timeout : std::chrono::nanoseconds(kDefaultTimeout);
  if (!turn.take(Deadline::after(limit)))
    throw Error(
        ErrorCode::kDeadlineExceeded,
        str("run: another thread's run() of this strategy has not ended in ", std::chrono::duration<double>(limit).count(),
            " s; one strategy runs one function at a time, and a function must not wait for a thread that calls run()"));
  turn_owner.store(std::this_thread::get_id());
}

void ReplicaSet::State::give_turn_back() noexcept {
  turn_owner.store(std::thread::id());
  turn.give_back();
}

// The other workers wait for what this one will not do any more: they must hear of it.
// Unless they have it too.
void ReplicaSet::State::tell_workers(const FirstError& errors, std::uint64_t shared_failures_before) {
  try {
    std::rethrow_exception(errors.first());
  } catch (const Error& error) {
    const auto* shared = dynamic_cast<const SharedFailure*>(&error);
    if (shared != nullptr && shared->number() > shared_failures_before) return;
    options.workers->abort(Error(error.code(), error.message()));
  } catch (const std::exception& error) {
    options.workers->abort(Error(ErrorCode::kAborted, error.what()));
  } catch (...) {
    options.workers->abort(Error(ErrorCode::kAborted, "something that is no std::exception was thrown"));
  }
}

std::size_t ReplicaSet::State::require_replica(int replica) const {
  if (replica >= 0 && replica < size) return static_cast<std::size_t>(replica);
  throw Error(ErrorCode::kInvalidArgument, str("replica ", replica, " of ", size, "; replicas count from 0"));
}

void ReplicaSet::State::notify(std::function<void()> RunObserver::*when) {
  std::shared_ptr<const Observers> all;
  {
    const std::lock_guard lock(observers_mu);
    all = observers;
  }
  for (const auto& one : *all) {
    const std::lock_guard lock(one->mu);
    if (!one->is_gone && one->observer.*when) (one->observer.*when)();
  }
}

ReplicaSet::ReplicaSet(Strategy* strategy, std::vector<LogicalDevice> devices, const ReplicaSetOptions& options)
    : state_(std::make_unique<State>(*this, strategy, std::move(devices), options)) {}

ReplicaSet::~ReplicaSet() = default;

void ReplicaSet::retire() noexcept {
  state_->strategy.store(nullptr);
  state_->stop();
}

int ReplicaSet::size() const noexcept { return state_->size; }
int ReplicaSet::global_size() const noexcept {
  return workers() == nullptr ? state_->size : workers()->layout().total_replicas();
}
int ReplicaSet::first_replica() const noexcept { return state_->first_replica(); }
WorkerGroup* ReplicaSet::workers() const noexcept { return state_->options.workers.get(); }
Strategy* ReplicaSet::strategy() const noexcept { return state_->strategy; }
void ReplicaSet::set_strategy(Strategy* strategy) noexcept { state_->strategy = strategy; }
const std::vector<LogicalDevice>& ReplicaSet::devices() const noexcept { return state_->devices; }
c10::Device ReplicaSet::torch_device(int replica) const { return state_->torch_devices[state_->require_replica(replica)]; }
const ReplicaSetOptions& ReplicaSet::options() const noexcept { return state_->options; }
int ReplicaSet::intra_op_threads() const noexcept { return state_->threads_each; }
Group& ReplicaSet::group(int replica) { return state_->current[static_cast<std::size_t>(replica)]->group(replica); }
bool ReplicaSet::is_running_here() const noexcept { return state_->turn_owner.load() == std::this_thread::get_id(); }
std::uint64_t ReplicaSet::runs() const noexcept { return state_->runs.load(std::memory_order_relaxed); }

void ReplicaSet::State::run_job(FunctionRef<void(ReplicaContext&)> body, FirstError& errors) {
  Level& level = enter_level();
  Job job{level, body, at::ThreadLocalState(), errors};
  job.remaining.store(size);
  streams->fork();
  for (int replica = 1; replica < size; ++replica) {
    auto& mailbox = mailboxes[static_cast<std::size_t>(replica)];
    mailbox.job.store(&job, std::memory_order_release);
    mailbox.gate.advance();
  }
  {
    const internal::IntraOpThreads threads(size == 1 && options.intra_op_threads == 0 ? at::get_num_threads() : threads_each);
    execute(0, job);
  }
  wait_for_all(job);
  if (errors.has_error() && recording != nullptr) recording.load()->abandon();  // before the streams are used again
  streams->join();
  --depth;
}

void ReplicaSet::run(FunctionRef<void(ReplicaContext&)> body) {
  State& s = *state_;
  require_runnable();
  const bool is_nested = is_running_here();  // inside merge_call
  if (!is_nested) s.take_turn();
  const OnExit turn([&] {
    if (!is_nested) s.give_turn_back();
  });
  s.runs.fetch_add(1, std::memory_order_relaxed);
  const auto shared_failures = workers() == nullptr ? 0 : workers()->shared_failures();
  if (workers() != nullptr && !is_nested) workers()->calls().begin_step();
  if (!is_nested) s.notify(&RunObserver::before);
  FirstError errors;
  s.run_job(body, errors);
  if (errors.has_error() && workers() != nullptr) s.tell_workers(errors, shared_failures);
  if (!is_nested && !errors.has_error()) s.notify(&RunObserver::succeeded);
  if (!is_nested) s.notify(&RunObserver::after);
  if (errors.has_error()) s.notify(&RunObserver::failed);
  errors.rethrow_if_any();
}

void ReplicaSet::replay(FunctionRef<void()> body) {
  State& s = *state_;
  require_runnable();
  s.take_turn();
  const OnExit turn([&] { s.give_turn_back(); });
  s.runs.fetch_add(1, std::memory_order_relaxed);
  s.notify(&RunObserver::before);
  try {
    body();
  } catch (...) {
    s.notify(&RunObserver::after);
    s.notify(&RunObserver::failed);
    throw;
  }
  s.notify(&RunObserver::succeeded);
  s.notify(&RunObserver::after);
}

void ReplicaSet::set_recording(Recording* recording) noexcept { state_->recording = recording; }
Recording* ReplicaSet::recording() const noexcept { return state_->recording.load(std::memory_order_relaxed); }
const ReplicaStreams& ReplicaSet::streams() const noexcept { return *state_->streams; }

std::vector<at::Generator> ReplicaSet::device_generators() const {
  std::vector<at::Generator> all;
  for (const auto& generator : state_->generators)
    if (!generator.device().is_cpu()) all.push_back(generator);
  return all;
}

void ReplicaSet::require_runnable() const {
  const State& s = *state_;
  if (internal::current_mode().context != nullptr && internal::current_mode().replicas == this)
    throw Error(ErrorCode::kFailedPrecondition,
                "run() was called inside run(): it needs cross-replica context; call it outside, or inside merge_call()");
  if (s.is_stopping.load(std::memory_order_relaxed))
    throw Error(ErrorCode::kFailedPrecondition, "run() was called after its strategy was destroyed; keep the strategy alive");
  if ((s.size > 1 || workers() != nullptr) && forks() != s.forks_at_start)
    throw Error(ErrorCode::kFailedPrecondition,
                "run() was called in a child process that was forked after the strategy was made; the replicas' threads and "
                "the connections to other workers are the parent's: make the strategy after fork()");
}

void ReplicaSet::merge(ReplicaContext& context, const char* name, void* mine, MergeBody body) {
  State& s = *state_;
  const int replica = context.local_replica_id();
  s.records[static_cast<std::size_t>(replica)] = mine;
  Level& level = *s.current[static_cast<std::size_t>(replica)];
  const auto seen = level.released.load(std::memory_order_acquire);
  level.rendezvous.meet(replica, name);
  if (replica == 0) {
    try {
      const internal::ModeGuard mode({this, nullptr});
      if (s.size > 1) s.streams->join();
      body(s.records);
      if (s.size > 1) s.streams->fork();
    } catch (...) {
      level.rendezvous.abort(str("the function of ", name, " failed on replica 0"));
      s.wake_all();
      throw;
    }
    level.released.fetch_add(1, std::memory_order_release);
    s.wake_all();
    return;
  }
  const auto is_released = [&] { return level.released.load(std::memory_order_acquire) != seen; };
  s.serve(replica, [&] { return is_released() || level.rendezvous.is_broken(); });
  if (!is_released()) throw Error(ErrorCode::kAborted, str("the function of ", name, " failed on replica 0"));
}

std::shared_ptr<void> ReplicaSet::observe_runs(RunObserver observer) {
  auto added = std::make_shared<Observer>(std::move(observer));
  const std::lock_guard lock(state_->observers_mu);
  auto all = std::make_shared<State::Observers>();
  for (const auto& one : *state_->observers)
    if (const std::lock_guard own(one->mu); !one->is_gone) all->push_back(one);
  all->push_back(added);
  state_->observers = std::move(all);
  const auto take_back = [added](void*) {
    const std::lock_guard own(added->mu);
    added->is_gone = true;
  };
  return std::shared_ptr<void>(added.get(), take_back);
}

at::Tensor ReplicaSet::generator_state(int replica) const {
  return state_->generators[state_->require_replica(replica)].get_state();
}

void ReplicaSet::set_generator_state(int replica, const at::Tensor& state) {
  auto& generator = state_->generators[state_->require_replica(replica)];
  const auto mine = generator.get_state();
  if (!state.defined() || state.scalar_type() != at::kByte || !state.is_cpu() || state.sizes() != mine.sizes())
    throw Error(ErrorCode::kInvalidArgument,
                lockstep::str("set_generator_state: replica ", replica, "'s state is a byte tensor of shape ", mine.sizes(),
                              " on the CPU; give what generator_state() returned"));
  generator.set_state(state);
}

void ReplicaSet::manual_seed(std::uint64_t seed) {
  for (int replica = 0; replica < size(); ++replica)
    internal::seed_generator(state_->generators[static_cast<std::size_t>(replica)], seed, first_replica() + replica);
}

}  // namespace lockstep
