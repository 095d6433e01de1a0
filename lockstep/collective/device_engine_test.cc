#include "lockstep/collective/device_engine.h"

#include "lockstep/base/error.h"
#include "tests/support/testing.h"

namespace lockstep {
namespace {

using ::testing::HasSubstr;
using testing::ThrowsCode;

const std::vector<std::string> kTasks = {"worker 0", "worker 1"};
const std::string kNoGpu = device_fact(DeviceWish::kAuto, {});

TEST(DeviceEngine, IsTakenWhenEveryWorkerHasGpusOfItsOwn) {
  const std::vector<std::string> facts = {device_fact_of({"H200 GPU-a", "H200 GPU-b"}), device_fact_of({"H200 GPU-c"})};
  const auto chosen = choose_device_engine(DeviceWish::kAuto, facts, kTasks);
  EXPECT_EQ(chosen.engine, "nccl");
  EXPECT_THAT(chosen.why, HasSubstr("GPUs of its own"));
  EXPECT_EQ(choose_device_engine(DeviceWish::kNccl, facts, kTasks).why, "asked for");
  EXPECT_EQ(choose_device_engine(DeviceWish::kNone, facts, kTasks).engine, "");
}

TEST(DeviceEngine, ReplicasOfOneWorkerMayShareAGpu) {
  const std::vector<std::string> facts = {device_fact_of({"GPU-a", "GPU-a"}), device_fact_of({"GPU-b"})};
  EXPECT_EQ(choose_device_engine(DeviceWish::kAuto, facts, kTasks).engine, "nccl");
}

TEST(DeviceEngine, WorkersThatShareAGpuAreNamed) {
  const std::vector<std::string> facts = {device_fact_of({"GPU-b", "H200 GPU-a"}), device_fact_of({"H200 GPU-a"})};
  const auto chosen = choose_device_engine(DeviceWish::kAuto, facts, kTasks);
  EXPECT_EQ(chosen.engine, "");
  EXPECT_EQ(chosen.why, "worker 0 and worker 1 share H200 GPU-a");
  EXPECT_THAT([&] { choose_device_engine(DeviceWish::kNccl, facts, kTasks); },
              ThrowsCode(ErrorCode::kInvalidArgument, "worker 0 and worker 1 share H200 GPU-a", "CUDA_VISIBLE_DEVICES"));
}

TEST(DeviceEngine, AWorkerWithoutGpuIsNamed) {
  const std::vector<std::string> facts = {device_fact_of({"GPU-a"}), kNoGpu};
  EXPECT_THAT(choose_device_engine(DeviceWish::kAuto, facts, kTasks).why, HasSubstr("worker 1 has a replica"));
  EXPECT_THAT([&] { choose_device_engine(DeviceWish::kNccl, facts, kTasks); },
              ThrowsCode(ErrorCode::kInvalidArgument, "worker 1 has a replica that is not on a GPU", "AUTO or RING"));
}

TEST(DeviceEngine, AJobWithoutGpusHasNothingToSay) {
  const auto chosen = choose_device_engine(DeviceWish::kAuto, {kNoGpu, kNoGpu}, kTasks);
  EXPECT_EQ(chosen.engine, "");
  EXPECT_EQ(chosen.why, "");
}

TEST(DeviceEngine, ABuildWithoutTheEngineSaysWhatToInstall) {
  const std::string fact = "engine there is no engine_nccl.so; install NCCL";
  EXPECT_THAT(choose_device_engine(DeviceWish::kAuto, {device_fact_of({"GPU-a"}), fact}, kTasks).why,
              HasSubstr("worker 1: there is no engine_nccl.so"));
  EXPECT_THAT(
      [&] {
        choose_device_engine(DeviceWish::kNccl, {fact, fact}, kTasks);
      },
      ThrowsCode(ErrorCode::kUnimplemented, "worker 0", "install NCCL"));
}

}  // namespace
}  // namespace lockstep
