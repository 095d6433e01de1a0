#include "lockstep/collective/machine_buckets.h"

#include <ATen/ATen.h>

#include <cstring>

#include "lockstep/base/str.h"
#include "lockstep/base/thread.h"
#include "lockstep/base/trace.h"
#include "lockstep/base/wait_clock.h"

namespace lockstep {
namespace {

constexpr std::chrono::milliseconds kNap(200);
constexpr std::chrono::seconds kLetEnd(2);
constexpr std::size_t kLine = 64;

std::size_t rounded(std::size_t bytes) { return (bytes + kLine - 1) / kLine * kLine; }

}  // namespace

// At the beginning of the shared memory; the counters follow: by bucket, chunks put so far, and steps that have arrived.
struct MachineBuckets::Control {
  alignas(64) ProcessGate put;
  alignas(64) ProcessGate arrived;

  std::atomic<std::uint64_t>& chunks(std::size_t bucket) { return counters()[2 * bucket]; }
  std::atomic<std::uint64_t>& steps(std::size_t bucket) { return counters()[2 * bucket + 1]; }
  std::atomic<std::uint64_t>* counters() { return reinterpret_cast<std::atomic<std::uint64_t>*>(this + 1); }
};

std::size_t MachineBuckets::bytes_needed(const Shapes& shapes, std::size_t subtrees) {
  std::size_t bytes = rounded(sizeof(Control) + shapes.size() * 2 * sizeof(std::uint64_t));
  for (const auto& shape : shapes) bytes += rounded(shape.bytes()) * (subtrees + 1);
  return bytes;
}

MachineBuckets::MachineBuckets(WorkerGroup& workers, Setup setup)
    : workers_(workers),
      setup_(std::move(setup)),
      plan_(plan_sums(setup_.leaves, workers.layout().total_replicas())),
      control_(reinterpret_cast<Control*>(setup_.memory)) {
  std::size_t offset = rounded(sizeof(Control) + setup_.shapes.size() * 2 * sizeof(std::uint64_t));
  for (const auto& shape : setup_.shapes) {
    offsets_.push_back(offset);
    offset += rounded(shape.bytes()) * (plan_.nodes.size() + 1);
  }
  if (setup_.channel == nullptr) return;
  sum_ = std::make_unique<CanonicalSum>(*setup_.channel, setup_.brings, workers.layout().total_replicas());
  carrier_ = start_thread("lockstep:net", [this](const std::stop_token& stop) { carry(stop); });
}

MachineBuckets::~MachineBuckets() {
  if (setup_.channel == nullptr) return;
  carrier_.request_stop();
  control_->put.disturb();
  // What has begun is let end, so that the engine stays whole; a peer that does not come ends it.
  const auto seen = carrying_.value();
  if (seen % 2 == 1 && !carrying_.wait(seen, Deadline::after(kLetEnd)))
    setup_.channel->abort(Error(ErrorCode::kCancelled, "the gradients are not wanted any more"));
}

std::byte* MachineBuckets::outbox(std::size_t bucket, std::size_t subtree) const {
  return setup_.memory + offsets_[bucket] + rounded(setup_.shapes[bucket].bytes()) * (subtree + 1);
}
std::byte* MachineBuckets::inbox(std::size_t bucket) const { return setup_.memory + offsets_[bucket]; }

void MachineBuckets::put(std::size_t bucket, std::span<const at::Tensor> buffers, std::pair<std::int64_t, std::int64_t> chunk,
                         std::uint64_t step) {
  const auto& shape = setup_.shapes[bucket];
  const auto offset = static_cast<std::size_t>(chunk.first) * shape.element_bytes();
  std::vector<const void*> inputs;
  std::vector<void*> outputs;
  for (const auto& buffer : buffers) inputs.push_back(static_cast<const std::byte*>(buffer.data_ptr()) + offset);
  for (std::size_t k = 0; k < plan_.nodes.size(); ++k) outputs.push_back(outbox(bucket, k) + offset);
  carry_out(plan_, {shape.dtype, chunk.second - chunk.first}, inputs, outputs);
  const auto all = buffers.size() * step;
  if (control_->chunks(bucket).fetch_add(1, std::memory_order_acq_rel) + 1 == all) control_->put.advance();
}

bool MachineBuckets::wait_for_outbox(std::size_t bucket, std::uint64_t step, const std::stop_token& stop) {
  const auto all = setup_.leaves.size() * step;
  while (true) {
    const auto seen = control_->put.value();
    if (stop.stop_requested() || workers_.failure()) return false;
    if (control_->chunks(bucket).load(std::memory_order_acquire) >= all) return true;
    control_->put.doze(seen, kNap);
  }
}

void MachineBuckets::carry(const std::stop_token& stop) {
  try {
    for (std::uint64_t step = 1;; ++step)
      for (std::size_t bucket = 0; bucket < setup_.shapes.size(); ++bucket) {
        if (!wait_for_outbox(bucket, step, stop)) return;
        std::vector<const void*> mine;
        for (std::size_t k = 0; k < plan_.nodes.size(); ++k) mine.push_back(outbox(bucket, k));
        void* const result = inbox(bucket);
        carrying_.advance();
        const trace::Span span("bucket between machines", trace::Category::kSync, {"bucket", static_cast<std::int64_t>(bucket)},
                               {"bytes", static_cast<std::int64_t>(setup_.shapes[bucket].bytes())});
        sum_->reduce(setup_.shapes[bucket], mine, {&result, 1});
        carrying_.advance();
        control_->steps(bucket).store(step, std::memory_order_release);
        control_->arrived.advance();
      }
  } catch (const Error& error) {
    if (error.code() != ErrorCode::kCancelled)
      workers_.abort_by_engine(Error(error.code(), str(setup_.name, ": ", error.message())));
  } catch (const std::exception& error) {
    workers_.abort(Error(ErrorCode::kInternal, str(setup_.name, ": ", error.what())));
  }
  if (carrying_.value() % 2 == 1) carrying_.advance();
  control_->arrived.advance();
}

void MachineBuckets::take(std::size_t bucket, std::uint64_t step, at::Tensor& buffer, int divisor) {
  const auto is_there = [&] { return control_->steps(bucket).load(std::memory_order_acquire) >= step; };
  if (!is_there()) {
    const Calls::Scope wait(workers_.calls(), setup_.name, /*is_numbered=*/false);
    const WaitClock::Scope waiting;
    const trace::Span span("bucket of other machines", trace::Category::kWait, {"bucket", static_cast<std::int64_t>(bucket)});
    while (true) {
      const auto seen = control_->arrived.value();
      if (is_there()) break;
      if (const auto failure = workers_.failure()) throw *failure;
      if (!control_->arrived.wait_briefly(seen)) control_->arrived.doze(seen, kNap);
    }
  }
  std::memcpy(buffer.data_ptr(), inbox(bucket), buffer.nbytes());
  if (divisor != 1 && (buffer.is_floating_point() || buffer.is_complex())) buffer.div_(divisor);
}

}  // namespace lockstep
