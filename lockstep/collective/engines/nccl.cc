#include <cuda_runtime_api.h>
#include <nccl.h>

#include <string>
#include <vector>

#include "lockstep/base/backoff.h"
#include "lockstep/base/deadline.h"
#include "lockstep/base/environment.h"
#include "lockstep/base/str.h"
#include "lockstep/collective/engine_plugin.h"
#include "lockstep/collective/engines/watch.h"

namespace lockstep {
namespace {

using std::chrono::nanoseconds;

// How long an engine that goes away lets its last bytes leave.
constexpr std::chrono::seconds kLetEnd(2);

// The one place that knows CUDA's codes.
void throw_if_cuda(cudaError_t code, const char* call) {
  if (code == cudaSuccess) return;
  throw Error(ErrorCode::kInternal, str("nccl: ", call, ": ", cudaGetErrorString(code)));
}

// The one place that knows NCCL's codes. A call that is under way is no error.
void throw_if_nccl(ncclResult_t code, const char* call, ncclComm_t world = nullptr) {
  if (code == ncclSuccess || code == ncclInProgress) return;
  const bool is_ours = code == ncclInvalidArgument || code == ncclInvalidUsage;
  const std::string detail = ncclGetLastError(world);
  throw Error(is_ours ? ErrorCode::kInternal : ErrorCode::kUnavailable,
              str("nccl: ", call, ": ", ncclGetErrorString(code), detail.empty() ? "" : ": ", detail));
}

// This thread's device while it lives; the one it had before afterwards.
class OnDevice {
 public:
  explicit OnDevice(int device) {
    throw_if_cuda(cudaGetDevice(&before_), "cudaGetDevice");
    throw_if_cuda(cudaSetDevice(device), "cudaSetDevice");
  }
  ~OnDevice() { cudaSetDevice(before_); }
  OnDevice(const OnDevice&) = delete;
  OnDevice& operator=(const OnDevice&) = delete;

 private:
  int before_ = 0;
};

std::string hex(const char* bytes, std::size_t count) {
  constexpr const char* kDigits = "0123456789abcdef";
  std::string text;
  for (std::size_t i = 0; i < count; ++i) {
    const auto value = static_cast<unsigned char>(bytes[i]);
    text += {kDigits[value / 16], kDigits[value % 16]};
  }
  return text;
}

int digit(char c) { return c <= '9' ? c - '0' : c - 'a' + 10; }

// Equal for two processes that NCCL would find on one GPU: NCCL_HOSTID is its own idea of a machine.
std::string name_of_gpu(int device) {
  cudaDeviceProp properties{};
  throw_if_cuda(cudaGetDeviceProperties(&properties, device), "cudaGetDeviceProperties");
  const auto host = Environment().get("NCCL_HOSTID").value_or("");
  return str(properties.name, " GPU-", hex(properties.uuid.bytes, sizeof properties.uuid.bytes), host.empty() ? "" : " of ",
             host);
}

// NCCL gives up with a text of its own when two processes share a GPU, and not on all of them.
void require_own_gpus(const EngineSetup& setup) {
  const auto key = [&](int rank) { return str(setup.name, "/nccl/gpu/", rank); };
  setup.put(key(setup.rank), name_of_gpu(setup.device));
  std::vector<std::string> gpus;
  for (int rank = 0; rank < setup.size; ++rank) {
    gpus.push_back(setup.get(key(rank)));
    for (int other = 0; other < rank; ++other)
      if (gpus[static_cast<std::size_t>(other)] == gpus.back())
        throw Error(ErrorCode::kInvalidArgument,
                    str("nccl: ranks ", other, " and ", rank, " are both on ", gpus.back(),
                        ", and NCCL wants one process a GPU; give each a GPU of its own (CUDA_VISIBLE_DEVICES, or the "
                        "strategy's devices), or make them replicas of one process"));
  }
}

ncclUniqueId agree_on_id(const EngineSetup& setup) {
  const auto key = str(setup.name, "/nccl/id");
  ncclUniqueId id{};
  if (setup.rank == 0) {
    throw_if_nccl(ncclGetUniqueId(&id), "ncclGetUniqueId");
    setup.put(key, hex(id.internal, sizeof id.internal));
    return id;
  }
  const auto text = setup.get(key);
  if (text.size() != 2 * sizeof id.internal)
    throw Error(ErrorCode::kInternal, str("nccl: the id in ", key, " has ", text.size() / 2, " bytes"));
  for (std::size_t i = 0; i < sizeof id.internal; ++i)
    id.internal[i] = static_cast<char>(digit(text[2 * i]) * 16 + digit(text[2 * i + 1]));
  return id;
}

ncclDataType_t type_of(SumType type) {
  switch (type) {
    case SumType::kFloat: return ncclFloat;
    case SumType::kDouble: return ncclDouble;
    case SumType::kInt64: return ncclUint64;  // unsigned: sums wrap around
    case SumType::kInt32: return ncclUint32;
  }
  throw Error(ErrorCode::kInternal, "nccl: unknown type of sum");
}

// NCCL on one GPU. All memory is that GPU's.
//
// Note [calls that can be ended]
// The communicator does not block: NCCL's calls return at once, and the thread that made one asks again and again whether
// it is through, first NCCL and then the stream. abort() only leaves word; that thread reads it between two questions
// and ends the communicator itself, so that nobody else is in a call of NCCL's at that moment.
class Nccl final : public Transport {
 public:
  explicit Nccl(const EngineSetup& setup) : rank_(setup.rank), size_(setup.size), device_(setup.device) {
    if (!setup.put || !setup.get) throw Error(ErrorCode::kInvalidArgument, "nccl: there is no store to find the peers in");
    const OnDevice here(device_);
    require_own_gpus(setup);
    const auto id = agree_on_id(setup);
    try {
      ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
      config.blocking = 0;
      throw_if_nccl(ncclCommInitRankConfig(&world_, size_, id, rank_, &config), "ncclCommInitRankConfig");
      settle("ncclCommInitRankConfig", &setup);
      throw_if_cuda(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), "cudaStreamCreateWithFlags");
      throw_if_cuda(cudaMalloc(&token_, sizeof(float)), "cudaMalloc");
      throw_if_cuda(cudaMemset(token_, 0, sizeof(float)), "cudaMemset");
    } catch (const Error&) {
      leave(/*is_whole=*/false);
      free_memory();
      throw;
    }
  }

  ~Nccl() override {
    try {
      const OnDevice here(device_);
      leave(!watch_.is_stopped());
      free_memory();
    } catch (const Error&) {
      // CUDA itself is gone: the process ends.
    }
  }

  std::string name() const override { return "nccl"; }
  int rank() const override { return rank_; }
  int size() const override { return size_; }
  void* stream() const noexcept override { return stream_; }

  void all_to_all(std::span<const ConstBytes> send, std::span<const Bytes> receive) override {
    require_one_a_rank(send.size());
    require_one_a_rank(receive.size());
    call("all_to_all", [&] {
      for (int step = 1; step < size_; ++step) {
        add_send(after(step), send[after(step)]);
        add_receive(before(step), receive[before(step)]);
      }
    });
  }

  void all_gather(std::span<const Bytes> parts) override {
    require_one_a_rank(parts.size());
    call("all_gather", [&] {
      for (int step = 1; step < size_; ++step) {
        add_send(after(step), parts[rank_]);
        add_receive(before(step), parts[before(step)]);
      }
    });
  }

  void broadcast(Bytes data, int root) override {
    call("broadcast", [&] {
      bytes_ += data.size();
      throw_if_nccl(ncclBroadcast(data.data(), data.data(), data.size(), ncclUint8, root, world_, stream_), "ncclBroadcast");
    });
  }

  void barrier() override { all_reduce(SumType::kFloat, {static_cast<std::byte*>(token_), sizeof(float)}); }

  void all_reduce(SumType type, Bytes data) override {
    call("all_reduce", [&] {
      bytes_ += data.size();
      throw_if_nccl(
          ncclAllReduce(data.data(), data.data(), data.size() / size_of(type), type_of(type), ncclSum, world_, stream_),
          "ncclAllReduce");
    });
  }

  void abort(const Error& why) noexcept override {
    try {
      watch_.stop(why);
    } catch (const std::exception&) {
      // No memory for the reason.
    }
  }

 private:
  int after(int steps) const { return (rank_ + steps) % size_; }
  int before(int steps) const { return (rank_ - steps + size_) % size_; }

  void require_one_a_rank(std::size_t parts) const {
    if (parts != static_cast<std::size_t>(size_))
      throw Error(ErrorCode::kInvalidArgument, str("nccl: ", parts, " parts for ", size_, " ranks; give one for each rank"));
  }

  void add_send(int peer, ConstBytes bytes) {
    if (bytes.empty()) return;
    bytes_ += bytes.size();
    throw_if_nccl(ncclSend(bytes.data(), bytes.size(), ncclUint8, peer, world_, stream_), "ncclSend");
  }
  void add_receive(int peer, Bytes bytes) {
    if (bytes.empty()) return;
    bytes_ += bytes.size();
    throw_if_nccl(ncclRecv(bytes.data(), bytes.size(), ncclUint8, peer, world_, stream_), "ncclRecv");
  }

  // What `start` adds goes out as one. A call that fails leaves peers in the middle of it, so that no other can follow.
  template <typename Start>
  void call(const char* name, Start start) {
    watch_.throw_if_stopped();
    const OnDevice here(device_);
    bytes_ = 0;
    try {
      add_together(name, start);
      settle(name);
      wait(name);
      return;
    } catch (const Error& e) {
      watch_.stop(e);
    }
    leave(/*is_whole=*/false);
    watch_.throw_if_stopped();
  }

  // A group that was begun is ended, whatever comes: it belongs to the thread.
  template <typename Start>
  void add_together(const char* name, Start start) {
    throw_if_nccl(ncclGroupStart(), "ncclGroupStart");
    try {
      start();
    } catch (const Error&) {
      ncclGroupEnd();
      throw;
    }
    throw_if_nccl(ncclGroupEnd(), name, world_);
  }

  // Until NCCL has done its part of a call on the host. `setup`: while the engine is made.
  void settle(const char* name, const EngineSetup* setup = nullptr) {
    const auto deadline = Deadline::after(setup == nullptr ? nanoseconds(0) : setup->timeout);
    Backoff backoff(patience());
    ncclResult_t state = ncclInProgress;
    while (true) {
      throw_if_nccl(ncclCommGetAsyncError(world_, &state), "ncclCommGetAsyncError");
      throw_if_nccl(state, name, world_);
      if (state == ncclSuccess) return;
      watch_.throw_if_stopped();
      if (setup != nullptr && setup->check) setup->check();
      if (setup != nullptr && deadline.has_passed())
        throw Error(ErrorCode::kDeadlineExceeded, str("nccl: ", name, ": not all ranks came in time"));
      backoff.pause();
    }
  }

  // Until the GPU has.
  void wait(const char* name) {
    Backoff backoff(patience());
    ncclResult_t state = ncclSuccess;
    while (true) {
      const auto code = cudaStreamQuery(stream_);
      if (code == cudaSuccess) return;
      if (code != cudaErrorNotReady) throw_if_cuda(code, name);
      throw_if_nccl(ncclCommGetAsyncError(world_, &state), "ncclCommGetAsyncError");
      throw_if_nccl(state, name, world_);
      watch_.throw_if_stopped();
      backoff.pause();
    }
  }

  // As long as bytes may be moving.
  nanoseconds patience() const { return std::chrono::milliseconds(1) + nanoseconds(bytes_); }

  // Ends the communicator. A whole one first lets its peers have what it has sent.
  void leave(bool is_whole) noexcept {
    if (world_ == nullptr) return;
    if (is_whole && finish()) ncclCommDestroy(world_);
    else ncclCommAbort(world_);
    world_ = nullptr;
    // Kernels of an ended communicator leave by themselves; the memory is its owner's again when they have.
    Backoff backoff{nanoseconds(0)};
    const auto end = Deadline::after(kLetEnd);
    while (stream_ != nullptr && cudaStreamQuery(stream_) == cudaErrorNotReady && !end.has_passed()) backoff.pause();
  }

  void free_memory() noexcept {
    if (stream_ != nullptr) cudaStreamDestroy(stream_);
    if (token_ != nullptr) cudaFree(token_);
  }

  bool finish() noexcept {
    const auto end = Deadline::after(kLetEnd);
    ncclResult_t state = ncclCommFinalize(world_);
    for (Backoff backoff{patience()}; state == ncclSuccess || state == ncclInProgress; backoff.pause()) {
      if (ncclCommGetAsyncError(world_, &state) != ncclSuccess || end.has_passed()) return false;
      if (state == ncclSuccess) return true;
    }
    return false;
  }

  // Const after construction.
  const int rank_;
  const int size_;
  const int device_;
  // Own synchronisation.
  Watch watch_{0};
  // Used only by the thread that is in a call.
  ncclComm_t world_ = nullptr;
  cudaStream_t stream_ = nullptr;
  void* token_ = nullptr;  // what a barrier sums
  std::size_t bytes_ = 0;  // of this call
};

}  // namespace
}  // namespace lockstep

extern "C" lockstep::Transport* lockstep_make_engine(const lockstep::EngineSetup& setup) { return new lockstep::Nccl(setup); }

extern "C" void lockstep_name_device(int device, std::string& name) { name = lockstep::name_of_gpu(device); }
