#include <mpi.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <numeric>
#include <vector>

#include "lockstep/base/backoff.h"
#include "lockstep/base/deadline.h"
#include "lockstep/base/str.h"
#include "lockstep/base/thread.h"
#include "lockstep/collective/engine_plugin.h"
#include "lockstep/collective/engines/watch.h"

namespace lockstep {
namespace {

// MPI counts with an int; a multiple of every element's size.
constexpr std::size_t kMostBytes = std::size_t{1} << 30;

// The one place that knows MPI's codes.
void throw_if_mpi(int code, const char* call) {
  if (code == MPI_SUCCESS) return;
  char text[MPI_MAX_ERROR_STRING] = "";
  int length = 0;
  int kind = MPI_ERR_UNKNOWN;
  MPI_Error_string(code, text, &length);
  MPI_Error_class(code, &kind);
  // MPI_ERR_TRUNCATE: a message that is larger than the memory for it.
  throw Error(kind == MPI_ERR_TRUNCATE ? ErrorCode::kInternal : ErrorCode::kUnavailable, str("mpi: ", call, ": ", text));
}

// One for all engines of the process. A call that is stopped leaves operations behind, which MPI cannot take back: they
// would read and write the caller's memory as soon as any engine lets MPI go on. So when one is stopped, all are, and MPI
// is not shut down either.
Watch& process_watch() {
  static Watch& watch = *new Watch(0);  // for engines that end with the process, in whatever order
  return watch;
}

std::atomic<int> g_engines{0};

// Not when the process ends in the middle of a job: MPI would wait for the others, who wait for this one, and nobody would
// notice its end.
void finalize_mpi() {
  int is_over = 0;
  if (MPI_Finalized(&is_over) == MPI_SUCCESS && is_over == 0 && !process_watch().is_stopped() && g_engines.load() == 0)
    MPI_Finalize();
}

// Starts MPI unless the program did.
void start_mpi() {
  static std::mutex mu;
  const std::scoped_lock lock(mu);
  int is_up = 0;
  int is_over = 0;
  int level = MPI_THREAD_SINGLE;
  MPI_Initialized(&is_up);
  MPI_Finalized(&is_over);
  if (is_over != 0)
    throw Error(ErrorCode::kFailedPrecondition,
                "mpi: MPI_Finalize was called, and MPI cannot start twice in a process; make the engine before");
  if (is_up != 0) {
    MPI_Query_thread(&level);
  } else {
    throw_if_mpi(MPI_Init_thread(nullptr, nullptr, MPI_THREAD_MULTIPLE, &level), "MPI_Init_thread");
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    std::atexit(finalize_mpi);
  }
  if (level < MPI_THREAD_MULTIPLE)
    throw Error(ErrorCode::kFailedPrecondition,
                str("mpi: this process's MPI has thread level ", level, ", below MPI_THREAD_MULTIPLE (", MPI_THREAD_MULTIPLE,
                    "); call MPI_Init_thread with MPI_THREAD_MULTIPLE, or leave the start of MPI to Lockstep"));
}

void require_place(int worker, int workers) {
  int rank = 0;
  int size = 0;
  throw_if_mpi(MPI_Comm_rank(MPI_COMM_WORLD, &rank), "MPI_Comm_rank");
  throw_if_mpi(MPI_Comm_size(MPI_COMM_WORLD, &size), "MPI_Comm_size");
  if (rank != worker || size != workers)
    throw Error(ErrorCode::kFailedPrecondition,
                str("mpi: this process is rank ", worker, " of ", workers, " in the job, and ", rank, " of ", size,
                    " in MPI; start the job with mpirun -n ", workers, " and take the ranks from MPI"));
}

MPI_Datatype type_of(SumType type) {
  switch (type) {
    case SumType::kFloat: return MPI_FLOAT;
    case SumType::kDouble: return MPI_DOUBLE;
    case SumType::kInt64: return MPI_UINT64_T;  // unsigned: sums wrap around
    case SumType::kInt32: return MPI_UINT32_T;
  }
  throw Error(ErrorCode::kInternal, "mpi: unknown type of sum");
}

// Operations that are under way together.
class Operations {
 public:
  // start(data, bytes, request) begins one operation; called for each piece that is not too large for MPI.
  template <typename Start>
  void add(Bytes data, const char* call, Start start) {
    for (std::size_t at = 0; at < data.size(); at += kMostBytes) {
      requests_.push_back(MPI_REQUEST_NULL);
      const auto piece = data.subspan(at, std::min(kMostBytes, data.size() - at));
      throw_if_mpi(start(piece.data(), static_cast<int>(piece.size()), &requests_.back()), call);
    }
    bytes_ += data.size();
  }

  // An operation that is not cut into pieces.
  template <typename Start>
  void add(const char* call, Start start) {
    requests_.push_back(MPI_REQUEST_NULL);
    throw_if_mpi(start(&requests_.back()), call);
  }

  // Waits for all. Throws when the engine is stopped, and what `look`, asked now and then, throws.
  void wait(const char* call, const std::function<void()>& look = {}) {
    // As long as bytes may be moving: MPI moves them only while it is asked.
    Backoff backoff(std::chrono::milliseconds(1) + std::chrono::nanoseconds(4 * bytes_));
    while (!are_done(call)) {
      process_watch().throw_if_stopped();
      if (look) look();
      backoff.pause();
    }
  }

 private:
  bool are_done(const char* call) {
    statuses_.resize(requests_.size());
    int is_done = 0;
    const int code = MPI_Testall(static_cast<int>(requests_.size()), requests_.data(), &is_done, statuses_.data());
    if (code == MPI_ERR_IN_STATUS)
      for (const auto& status : statuses_)
        if (status.MPI_ERROR != MPI_ERR_PENDING) throw_if_mpi(status.MPI_ERROR, call);
    throw_if_mpi(code, call);
    return is_done != 0;
  }

  std::vector<MPI_Request> requests_;
  std::vector<MPI_Status> statuses_;
  std::size_t bytes_ = 0;
};

// MPI is only let on while a thread is in a call; no thread of ours.
class Mpi final : public Transport {
 public:
  explicit Mpi(const EngineSetup& setup) : rank_(setup.rank), size_(setup.size), members_(members_of(setup)) {
    process_watch().throw_if_stopped();
    start_mpi();
    require_place(members_[static_cast<std::size_t>(rank_)], setup.members.empty() ? size_ : setup.workers);
    const auto deadline = Deadline::after(setup.timeout);
    const auto look = [&] {
      if (setup.check) setup.check();
      if (deadline.has_passed()) throw Error(ErrorCode::kDeadlineExceeded, "mpi: not all ranks came in time");
    };
    try {
      const MPI_Comm base = members_communicator(look);
      Operations operations;
      operations.add("MPI_Comm_idup", [&](MPI_Request* request) { return MPI_Comm_idup(base, &comm_, request); });
      operations.wait("MPI_Comm_idup", look);
    } catch (const Error& e) {
      process_watch().stop(e);  // MPI still writes comm_, when it is let on
      throw;
    }
    throw_if_mpi(MPI_Comm_set_errhandler(comm_, MPI_ERRORS_RETURN), "MPI_Comm_set_errhandler");
    g_engines.fetch_add(1);
  }

  ~Mpi() override {
    g_engines.fetch_sub(1);
    int is_over = 0;
    if (MPI_Finalized(&is_over) == MPI_SUCCESS && is_over == 0 && !process_watch().is_stopped()) MPI_Comm_free(&comm_);
  }

  std::string name() const override { return "mpi"; }
  int rank() const override { return rank_; }
  int size() const override { return size_; }

  void all_to_all(std::span<const ConstBytes> send, std::span<const Bytes> receive) override {
    require_one_a_rank(send.size());
    require_one_a_rank(receive.size());
    call("all_to_all", [&](Operations& operations) {
      for (int step = 1; step < size_; ++step) add_receive(operations, before(step), receive[before(step)]);
      for (int step = 1; step < size_; ++step) add_send(operations, after(step), send[after(step)]);
    });
  }

  void all_gather(std::span<const Bytes> parts) override {
    require_one_a_rank(parts.size());
    call("all_gather", [&](Operations& operations) {
      for (int step = 1; step < size_; ++step) add_receive(operations, before(step), parts[before(step)]);
      for (int step = 1; step < size_; ++step) add_send(operations, after(step), parts[rank_]);
    });
  }

  void broadcast(Bytes data, int root) override {
    call("broadcast", [&](Operations& operations) {
      operations.add(data, "MPI_Ibcast", [&](void* at, int bytes, MPI_Request* request) {
        return MPI_Ibcast(at, bytes, MPI_BYTE, root, comm_, request);
      });
    });
  }

  void barrier() override {
    call("barrier", [&](Operations& operations) {
      operations.add("MPI_Ibarrier", [&](MPI_Request* request) { return MPI_Ibarrier(comm_, request); });
    });
  }

  void all_reduce(SumType type, Bytes data) override {
    call("all_reduce", [&](Operations& operations) {
      operations.add(data, "MPI_Iallreduce", [&](void* at, int bytes, MPI_Request* request) {
        const int count = bytes / static_cast<int>(size_of(type));
        return MPI_Iallreduce(MPI_IN_PLACE, at, count, type_of(type), MPI_SUM, comm_, request);
      });
    });
  }

  void abort(const Error& why) noexcept override { process_watch().stop(why); }

 private:
  static constexpr int kTag = 1;
  static constexpr int kSetupTag = 30011;  // in MPI's world, where the program may have messages of its own

  static std::vector<int> members_of(const EngineSetup& setup) {
    if (!setup.members.empty()) return setup.members;
    std::vector<int> all(static_cast<std::size_t>(setup.size));
    std::iota(all.begin(), all.end(), 0);
    return all;
  }

  // Of which every engine of these members has a copy. Made once.
  MPI_Comm members_communicator(const std::function<void()>& look) {
    static std::mutex mu;
    static auto& made = *new std::map<std::vector<int>, MPI_Comm>;
    const std::scoped_lock lock(mu);
    if (const auto found = made.find(members_); found != made.end()) return found->second;
    meet_members(look);
    MPI_Group all = MPI_GROUP_NULL;
    MPI_Group mine = MPI_GROUP_NULL;
    throw_if_mpi(MPI_Comm_group(MPI_COMM_WORLD, &all), "MPI_Comm_group");
    throw_if_mpi(MPI_Group_incl(all, size_, members_.data(), &mine), "MPI_Group_incl");
    const auto comm = create_communicator(mine, look);
    MPI_Group_free(&mine);
    MPI_Group_free(&all);
    return made[members_] = comm;
  }

  // MPI has no way to end this call. It is left to itself, with its thread, when somebody does not come any more.
  static MPI_Comm create_communicator(MPI_Group members, const std::function<void()>& look) {
    struct Call {
      MPI_Comm comm = MPI_COMM_NULL;
      int code = MPI_SUCCESS;
      std::atomic<bool> is_done{false};
      std::jthread thread = {};
    };
    auto call = std::make_unique<Call>();
    call->thread = start_thread("lockstep:mpi", [members, call = call.get()](const std::stop_token&) {
      call->code = MPI_Comm_create_group(MPI_COMM_WORLD, members, kSetupTag, &call->comm);
      call->is_done.store(true, std::memory_order_release);
    });
    Backoff backoff(std::chrono::milliseconds(1));
    try {
      for (; !call->is_done.load(std::memory_order_acquire); backoff.pause()) look();
    } catch (const Error&) {
      [[maybe_unused]] const Call* const left = call.release();
      throw;
    }
    throw_if_mpi(call->code, "MPI_Comm_create_group");
    return call->comm;
  }

  // Nobody makes the communicator before everybody is there to make it. In each round everybody has heard, directly or
  // not, of twice as many others.
  void meet_members(const std::function<void()>& look) {
    static std::byte out{}, in{};  // MPI may still write there when the wait was given up
    for (int step = 1; step < size_; step *= 2) {
      Operations operations;
      operations.add(Bytes(&in, 1), "MPI_Irecv", [&](void* at, int bytes, MPI_Request* request) {
        return MPI_Irecv(at, bytes, MPI_BYTE, members_[before(step)], kSetupTag, MPI_COMM_WORLD, request);
      });
      operations.add(Bytes(&out, 1), "MPI_Isend", [&](void* at, int bytes, MPI_Request* request) {
        return MPI_Isend(at, bytes, MPI_BYTE, members_[after(step)], kSetupTag, MPI_COMM_WORLD, request);
      });
      operations.wait("the engine's start", look);
    }
  }

  int after(int steps) const { return (rank_ + steps) % size_; }
  int before(int steps) const { return (rank_ - steps + size_) % size_; }

  void require_one_a_rank(std::size_t parts) const {
    if (parts != static_cast<std::size_t>(size_))
      throw Error(ErrorCode::kInvalidArgument, str("mpi: ", parts, " parts for ", size_, " ranks; give one for each rank"));
  }

  void add_receive(Operations& operations, int peer, Bytes bytes) const {
    operations.add(bytes, "MPI_Irecv", [&](void* at, int count, MPI_Request* request) {
      return MPI_Irecv(at, count, MPI_BYTE, peer, kTag, comm_, request);
    });
  }
  void add_send(Operations& operations, int peer, ConstBytes bytes) const {
    const Bytes unchanged(const_cast<std::byte*>(bytes.data()), bytes.size());
    operations.add(unchanged, "MPI_Isend", [&](void* at, int count, MPI_Request* request) {
      return MPI_Isend(at, count, MPI_BYTE, peer, kTag, comm_, request);
    });
  }

  template <typename Start>
  void call(const char* name, Start start) {
    process_watch().throw_if_stopped();
    try {
      Operations operations;
      start(operations);
      operations.wait(name);
    } catch (const Error& e) {
      process_watch().stop(e);
      process_watch().throw_if_stopped();
    }
  }

  // Const after construction.
  const int rank_;
  const int size_;
  const std::vector<int> members_;  // in MPI's world, by rank
  MPI_Comm comm_ = MPI_COMM_NULL;
};

}  // namespace
}  // namespace lockstep

extern "C" lockstep::Transport* lockstep_make_engine(const lockstep::EngineSetup& setup) { return new lockstep::Mpi(setup); }
