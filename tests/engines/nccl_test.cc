#include <cuda_runtime_api.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>

#include "lockstep/collective/engine_plugin.h"
#include "tests/engines/children.h"
#include "tests/engines/engine_cases.h"
#include "tests/engines/folder_store.h"
#include "tests/support/testing.h"

// Ranks are processes. They share one GPU, which NCCL refuses: each tells it that it is on a host of its own.

namespace lockstep {
namespace {

using namespace std::chrono_literals;
namespace fs = std::filesystem;
using testing::code_of;
using testing::must;
using testing::ThrowsCode;

// A copy of some host memory on the GPU.
class OnGpu {
 public:
  explicit OnGpu(ConstBytes host) : bytes_(host.size()) {
    if (bytes_ == 0) return;
    must(cudaMalloc(&data_, bytes_) == cudaSuccess, "no memory on the GPU");
    cudaMemcpy(data_, host.data(), bytes_, cudaMemcpyHostToDevice);
    cudaDeviceSynchronize();
  }
  ~OnGpu() { cudaFree(data_); }
  OnGpu(const OnGpu&) = delete;
  OnGpu& operator=(const OnGpu&) = delete;

  Bytes bytes() const { return {static_cast<std::byte*>(data_), bytes_}; }
  void copy_to(Bytes host) const { cudaMemcpy(host.data(), data_, bytes_, cudaMemcpyDeviceToHost); }

 private:
  void* data_ = nullptr;
  std::size_t bytes_;
};

class AllOnGpu {
 public:
  template <typename Parts>
  explicit AllOnGpu(const Parts& parts) {
    for (const auto& part : parts) copies_.push_back(std::make_unique<OnGpu>(part));
  }
  template <typename Part>
  std::vector<Part> bytes() const {
    std::vector<Part> all;
    for (const auto& copy : copies_) all.push_back(copy->bytes());
    return all;
  }
  void copy_to(std::span<const Bytes> parts) const {
    for (std::size_t i = 0; i < parts.size(); ++i) copies_[i]->copy_to(parts[i]);
  }

 private:
  std::vector<std::unique_ptr<OnGpu>> copies_;
};

// The engine for memory of the host, which the cases of all engines are written for.
class FromHost final : public Transport {
 public:
  explicit FromHost(Transport& engine) : engine_(engine) {}
  std::string name() const override { return engine_.name(); }
  int rank() const override { return engine_.rank(); }
  int size() const override { return engine_.size(); }
  void all_to_all(std::span<const ConstBytes> send, std::span<const Bytes> receive) override {
    const AllOnGpu out(send);
    const AllOnGpu in(receive);
    engine_.all_to_all(out.bytes<ConstBytes>(), in.bytes<Bytes>());
    in.copy_to(receive);
  }
  void all_gather(std::span<const Bytes> parts) override {
    const AllOnGpu all(parts);
    engine_.all_gather(all.bytes<Bytes>());
    all.copy_to(parts);
  }
  void broadcast(Bytes data, int root) override {
    const OnGpu there(data);
    engine_.broadcast(there.bytes(), root);
    there.copy_to(data);
  }
  void barrier() override { engine_.barrier(); }
  void all_reduce(SumType type, Bytes data) override {
    const OnGpu there(data);
    engine_.all_reduce(type, there.bytes());
    there.copy_to(data);
  }
  void abort(const Error& why) noexcept override { engine_.abort(why); }

 private:
  Transport& engine_;
};

// Arguments of all children: rank, size, folder.
EngineSetup setup_of(const std::vector<std::string>& arguments) {
  setenv("NCCL_SOCKET_IFNAME", "lo", 1);
  return testing::setup_in_folder(std::stoi(arguments[0]), std::stoi(arguments[1]), arguments[2]);
}
std::unique_ptr<Transport> engine_of(const std::vector<std::string>& arguments, const std::string& name = "job") {
  setenv("NCCL_HOSTID", ("host" + arguments[0]).c_str(), 1);
  auto setup = setup_of(arguments);
  setup.name = name;
  return make_engine("nccl", setup);
}

class Nccl : public ::testing::Test {
 protected:
  void SetUp() override {
    alarm(120);
    folder_ = fs::path(::testing::TempDir()) / str("lockstep_nccl_", getpid());
  }
  void TearDown() override {
    for (const pid_t pid : children_) {
      if (pid == 0) continue;
      kill(pid, SIGKILL);
      waitpid(pid, nullptr, 0);
    }
    fs::remove_all(folder_);
    alarm(0);
  }

  void start(const std::string& child, int size) {
    fs::remove_all(folder_);
    fs::create_directories(folder_);
    for (int rank = 0; rank < size; ++rank)
      children_.push_back(testing::start_child(child, {str(rank), str(size), folder_.string()}));
  }
  // The exit code of rank r's process.
  int end_of(int rank) {
    int status = 0;
    waitpid(children_[rank], &status, 0);
    children_[rank] = 0;
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  }
  void expect_success(int size) {
    for (int rank = 0; rank < size; ++rank) EXPECT_EQ(end_of(rank), 0) << "rank " << rank << " of " << size;
    children_.clear();
  }

  fs::path folder_;
  std::vector<pid_t> children_;
};

const testing::Child calls("nccl_calls", [](const std::vector<std::string>& arguments) {
  const auto first = engine_of(arguments, "first");
  const auto second = engine_of(arguments, "second");
  must(first->name() == "nccl" && first->rank() == std::stoi(arguments[0]) && first->stream() != nullptr, "who am I");
  FromHost host(*first);
  testing::check_calls(host);
  must(code_of([&] { first->all_gather({}); }) == ErrorCode::kInvalidArgument, "no parts");
  // At the same time: they do not hear each other.
  testing::on_threads(2, [&](int i) {
    FromHost one(i == 0 ? *first : *second);
    for (int round = 0; round < 10; ++round) testing::check_broadcast(one, round % one.size(), i == 0 ? 1000 : 2000);
  });
  first->barrier();
  return 0;
});

TEST_F(Nccl, EveryCallWithEverySize) {
  for (const int size : {1, 2, 3}) {
    start("nccl_calls", size);
    expect_success(size);
  }
}

// Rank 1 is there and does not call.
const testing::Child aborts("nccl_aborts", [](const std::vector<std::string>& arguments) {
  const auto engine = engine_of(arguments);
  if (engine->rank() == 1) {
    pause();
    return 1;
  }
  std::vector<float> data(1 << 20);
  FromHost host(*engine);
  const auto call = [&] { host.all_reduce(SumType::kFloat, std::as_writable_bytes(std::span(data))); };
  std::jthread aborter([&] {
    std::this_thread::sleep_for(200ms);
    engine->abort(Error(ErrorCode::kDeadlineExceeded, "it took too long"));
  });
  const auto time = testing::time_of([&] { must(code_of(call) == ErrorCode::kDeadlineExceeded, "the code of the abort"); });
  must(time > 150ms && time < 1500ms, str("the call ended after ", time.count(), " s"));
  engine->abort(Error(ErrorCode::kAborted, "once more"));
  must(code_of(call) == ErrorCode::kDeadlineExceeded, "the code of a later call");
  return 0;
});

TEST_F(Nccl, AbortEndsACallWhosePeerDoesNotCome) {
  start("nccl_aborts", 2);
  EXPECT_EQ(end_of(0), 0);
}

const testing::Child for_ever("nccl_for_ever", [](const std::vector<std::string>& arguments) {
  const auto engine = engine_of(arguments);
  std::vector<float> data(1 << 20);
  const OnGpu there(std::as_bytes(std::span(data)));
  const auto code = code_of([&] {
    for (int round = 0;; ++round) {
      engine->all_reduce(SumType::kFloat, there.bytes());
      if (round == 10) setup_of(arguments).put("begun" + arguments[0], "yes");
    }
  });
  return code == ErrorCode::kUnavailable && code_of([&] { engine->barrier(); }) == code ? 0 : 1;
});

TEST_F(Nccl, APeerThatIsKilledIsNoticed) {
  start("nccl_for_ever", 2);
  testing::setup_in_folder(0, 2, folder_).get("begun0");
  kill(children_[1], SIGKILL);
  const auto time = testing::time_of([&] { EXPECT_EQ(end_of(0), 0); });
  EXPECT_LT(time, 10s);
}

const testing::Child sharers("nccl_sharers", [](const std::vector<std::string>& arguments) {
  const auto setup = setup_of(arguments);
  try {
    make_engine("nccl", setup);
  } catch (const Error& e) {
    const bool says_so = e.message().find("ranks 0 and 1 are both on") != std::string::npos &&
                         e.message().find("CUDA_VISIBLE_DEVICES") != std::string::npos;
    return e.code() == ErrorCode::kInvalidArgument && says_so ? 0 : 1;
  }
  return 2;
});

TEST_F(Nccl, TwoProcessesOnOneGpuAreAnErrorOnBoth) {
  start("nccl_sharers", 2);
  expect_success(2);
}

TEST_F(Nccl, ASetupWithoutStoreIsAnError) {
  EXPECT_THAT([] { make_engine("nccl", {}); }, ThrowsCode(ErrorCode::kInvalidArgument, "no store"));
}

}  // namespace
}  // namespace lockstep
