#include "lockstep/data/device_feed.h"

#include <ATen/ATen.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <algorithm>
#include <memory>
#include <optional>
#include <utility>

#include "lockstep/base/trace.h"
#include "lockstep/data/batch_memory.h"
#include "lockstep/data/prefetch.h"

namespace lockstep::data::internal {
namespace {

at::Tensor copy_to(const at::Tensor& tensor, c10::Device device) {
  if (tensor.device() == device) return tensor;
  if (!tensor.device().is_cpu() || !device.is_cuda()) return tensor.to(device);
  return tensor.pin_memory().to(device, /*non_blocking=*/true);
}

class CopiedSteps final : public StepSource {
 public:
  CopiedSteps(StepStream steps, std::vector<c10::Device> devices, bool has_own_thread)
      : steps_(std::move(steps)), devices_(std::move(devices)), has_own_thread_(has_own_thread) {
    for (const auto device : devices_)
      if (!device.is_cpu() && std::ranges::find(distinct_, device) == distinct_.end()) distinct_.push_back(device);
    has_cuda_ = std::ranges::any_of(distinct_, [](c10::Device device) { return device.is_cuda(); });
  }

  bool next(Step& out) override {
    if (has_own_thread_ && !std::exchange(has_streams_, true)) use_own_streams();
    {
      const PinnedBatches batches(has_cuda_);
      if (!steps_->next(out)) return false;
    }
    for (std::size_t replica = 0; replica < devices_.size(); ++replica) {
      if (devices_[replica].is_cpu()) continue;
      out.parts[replica].lockstep_leaves([&](at::Tensor& tensor) { tensor = copy_to(tensor, devices_[replica]); });
    }
    if (!has_own_thread_) return true;
    for (const auto device : distinct_) {
      out.arrived.emplace_back();
      out.arrived.back().record(device);
    }
    return true;
  }

  void save(PositionWriter& to, const std::deque<StepData>& ahead) override { steps_->save(to, ahead); }
  void restore(PositionReader& from) override { steps_->restore(from); }

 private:
  // For the rest of the life of this thread, which is ours.
  void use_own_streams() const {
    for (const auto device : distinct_) {
      const c10::impl::VirtualGuardImpl guard(device.type());
      guard.exchangeStream(guard.getStreamFromGlobalPool(device));
    }
  }

  const StepStream steps_;
  const std::vector<c10::Device> devices_;  // of every replica
  const bool has_own_thread_;
  std::vector<c10::Device> distinct_;
  bool has_cuda_ = false;
  bool has_streams_ = false;
};

// The thread begins with the first step, so that a position can be restored before.
class AheadSteps final : public StepSource {
 public:
  AheadSteps(StepStream steps, int ahead) : steps_(std::move(steps)), count_(ahead) {}

  bool next(Step& out) override {
    if (!ahead_)
      ahead_.emplace("lockstep:feed", count_, [this](Step& step) {
        const trace::Span span("feed devices", trace::Category::kInput);
        return steps_->next(step);
      });
    return ahead_->take(out);
  }

  void save(PositionWriter& to, const std::deque<StepData>& ahead) override {
    auto steps = ahead;
    if (!ahead_) return steps_->save(to, steps);
    ahead_->save([&](const Step& step) { steps.push_back(arrived(step)); }, [&] { steps_->save(to, steps); });
  }
  void restore(PositionReader& from) override { steps_->restore(from); }

 private:
  // A copy that can be read here.
  static StepData arrived(const Step& step) {
    for (const auto& fence : step.arrived) fence.block();
    return step;
  }

  const StepStream steps_;  // used by the thread, once there is one
  const std::int64_t count_;
  std::optional<Prefetcher<Step>> ahead_;
};

}  // namespace

StepStream feed_devices(StepStream steps, std::vector<c10::Device> devices, int ahead) {
  if (std::ranges::all_of(devices, [](c10::Device device) { return device.is_cpu(); })) return steps;
  auto copied = std::make_unique<CopiedSteps>(std::move(steps), std::move(devices), ahead > 0);
  if (ahead == 0) return copied;
  return std::make_unique<AheadSteps>(std::move(copied), ahead);
}

void hand_over(Step& step) {
  if (step.arrived.empty()) return;
  for (const auto& fence : step.arrived) fence.block();
  for (auto& part : step.parts)
    part.lockstep_leaves([](at::Tensor& tensor) {
      if (tensor.device().is_cpu()) return;
      const c10::impl::VirtualGuardImpl guard(tensor.device().type());
      tensor.record_stream(guard.getStream(tensor.device()));
    });
}

}  // namespace lockstep::data::internal
