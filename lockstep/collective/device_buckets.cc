#include "lockstep/collective/device_buckets.h"

#include <ATen/ATen.h>
#include <c10/core/GradMode.h>
#include <c10/core/StreamGuard.h>

#include <algorithm>
#include <optional>

#include "lockstep/base/str.h"
#include "lockstep/base/thread.h"
#include "lockstep/base/trace.h"
#include "lockstep/base/wait_clock.h"
#include "lockstep/device/native_stream.h"

namespace lockstep {
namespace {

constexpr std::chrono::milliseconds kNap(200);
constexpr std::chrono::milliseconds kShortNap(20);  // of a replica: a failure of the job is not told to it
constexpr std::chrono::seconds kLetEnd(2);

}  // namespace

DeviceBuckets::DeviceBuckets(WorkerGroup& workers, Setup setup)
    : workers_(workers),
      setup_(std::move(setup)),
      buckets_(std::make_unique<Bucket[]>(setup_.buffers.size())),
      sum_(*setup_.channel, workers.layout()) {
  for (const auto& buffer : setup_.buffers[0])
    if (std::ranges::find(devices_, buffer.device()) == devices_.end()) devices_.push_back(buffer.device());
  for (std::size_t b = 0; b < setup_.buffers.size(); ++b) {
    buckets_[b].ready.resize(devices_.size());
    buckets_[b].done.resize(devices_.size());
  }
  carrier_ = start_thread("lockstep:gpu", [this](const std::stop_token& stop) { carry(stop); });
}

DeviceBuckets::~DeviceBuckets() {
  carrier_.request_stop();
  put_.disturb();
  // What has begun is let end, so that the engine stays whole; a peer that does not come ends it.
  const auto seen = carrying_.value();
  if (seen % 2 == 1 && !carrying_.wait(seen, Deadline::after(kLetEnd)))
    setup_.channel->abort(Error(ErrorCode::kCancelled, "the gradients are not wanted any more"));
}

// Whoever calls has its streams wait for everybody's buffer: one mark in them stands for all.
void DeviceBuckets::put(std::size_t bucket, std::span<const at::Tensor>, std::pair<std::int64_t, std::int64_t>,
                        std::uint64_t step) {
  Bucket& mine = buckets_[bucket];
  auto last = mine.begun.load();
  if (last >= step || !mine.begun.compare_exchange_strong(last, step)) return;
  for (std::size_t d = 0; d < devices_.size(); ++d) mine.ready[d].record(devices_[d]);
  mine.full.store(step, std::memory_order_release);
  put_.advance();
}

bool DeviceBuckets::wait_until_full(const Bucket& bucket, std::uint64_t step, const std::stop_token& stop) {
  while (true) {
    const auto seen = put_.value();
    if (stop.stop_requested() || workers_.failure()) return false;
    if (bucket.full.load(std::memory_order_acquire) >= step) return true;
    if (!put_.wait_briefly(seen)) put_.doze(seen, kNap);
  }
}

void DeviceBuckets::carry(const std::stop_token& stop) {
  try {
    for (std::uint64_t step = 1;; ++step)
      for (std::size_t b = 0; b < setup_.buffers.size(); ++b) {
        if (!wait_until_full(buckets_[b], step, stop)) return;
        carrying_.advance();
        sum(b);
        carrying_.advance();
        buckets_[b].summed.store(step, std::memory_order_release);
        arrived_.advance();
      }
  } catch (const Error& error) {
    if (error.code() != ErrorCode::kCancelled)
      workers_.abort_by_engine(Error(error.code(), str(setup_.name, ": ", error.message())));
  } catch (const std::exception& error) {
    workers_.abort(Error(ErrorCode::kInternal, str(setup_.name, ": ", error.what())));
  }
  if (carrying_.value() % 2 == 1) carrying_.advance();
  arrived_.advance();
}

void DeviceBuckets::sum(std::size_t bucket) {
  const c10::NoGradGuard no_grad;
  const auto& buffers = setup_.buffers[bucket];
  const trace::Span span("bucket between GPUs", trace::Category::kSync, {"bucket", static_cast<std::int64_t>(bucket)},
                         {"bytes", static_cast<std::int64_t>(buffers[0].nbytes())});
  const c10::StreamGuard guard(native_stream(devices_[0], setup_.channel->stream()));
  for (const auto& fence : buckets_[bucket].ready) fence.block();
  sum_.reduce(sum_subtrees(sum_.local(), buffers, devices_[0]), buffers[0]);
  for (std::size_t r = 1; r < buffers.size(); ++r) buffers[r].copy_(buffers[0]);
  for (std::size_t d = 0; d < devices_.size(); ++d) buckets_[bucket].done[d].record(devices_[d]);
}

void DeviceBuckets::take(std::size_t bucket, std::uint64_t step, at::Tensor& buffer, int divisor) {
  const Bucket& mine = buckets_[bucket];
  const auto is_there = [&] { return mine.summed.load(std::memory_order_acquire) >= step; };
  if (!is_there()) {
    const Calls::Scope wait(workers_.calls(), setup_.name, /*is_numbered=*/false);
    const WaitClock::Scope waiting;
    const trace::Span span("bucket of other workers", trace::Category::kWait, {"bucket", static_cast<std::int64_t>(bucket)});
    while (true) {
      const auto seen = arrived_.value();
      if (is_there()) break;
      if (const auto failure = workers_.failure()) throw *failure;
      if (!arrived_.wait_briefly(seen)) arrived_.doze(seen, kShortNap);
    }
  }
  for (const auto& fence : mine.done) fence.block();
  if (divisor != 1 && (buffer.is_floating_point() || buffer.is_complex())) buffer.div_(divisor);
}

}  // namespace lockstep
