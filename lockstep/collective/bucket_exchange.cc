#include "lockstep/collective/bucket_exchange.h"

#include <ATen/ATen.h>

#include "lockstep/base/error.h"
#include "lockstep/base/str.h"
#include "lockstep/base/trace.h"
#include "lockstep/collective/bucket_carrier.h"
#include "lockstep/collective/chunk.h"
#include "lockstep/collective/reduce_values.h"

namespace lockstep {

BucketExchange::BucketExchange(std::vector<std::vector<at::Tensor>> buffers, int replicas, int divisor)
    : BucketExchange(std::move(buffers), replicas, divisor, {}) {}

BucketExchange::BucketExchange(std::vector<std::vector<at::Tensor>> buffers, int replicas, int divisor,
                               BucketNeighbours neighbours)
    : size_(buffers.empty() ? static_cast<std::size_t>(replicas) : buffers[0].size()),
      count_(static_cast<std::size_t>(replicas)),
      divisor_(divisor),
      neighbours_(std::move(neighbours)),
      buffers_(std::move(buffers)),
      progress_(std::make_unique<Progress[]>(count_)),
      own_published_(std::make_unique<std::atomic<std::uint64_t>[]>(buffers_.size())),
      published_(neighbours_.published != nullptr ? neighbours_.published : own_published_.get()) {
  for (std::size_t bucket = 0; bucket < buckets(); ++bucket) {
    own_published_[bucket].store(0);
    is_given_.push_back(!buffers_[bucket][0].defined());
  }
  for (std::size_t replica = 0; replica < count_; ++replica) {
    progress_[replica].published.resize(buckets());
    progress_[replica].fences.resize(buckets());
  }
}

BucketExchange::~BucketExchange() = default;

bool BucketExchange::is_published(std::size_t replica, std::size_t bucket) const {
  return progress_[replica].published[bucket] == progress_[replica].step + 1;
}

void BucketExchange::publish(std::size_t replica, std::size_t bucket, const at::Tensor& buffer) {
  buffers_[bucket][at(replica)] = buffer;
  publish(replica, bucket);
}

void BucketExchange::publish(std::size_t replica, std::size_t bucket) {
  Progress& mine = progress_[replica];
  mine.published[bucket] = mine.step + 1;
  mine.fences[bucket].record(buffers_[bucket][at(replica)].device());
  published_[bucket].fetch_add(1, std::memory_order_release);
  if (++mine.count < buckets()) help(replica);
}

void BucketExchange::help(std::size_t replica) {
  Progress& mine = progress_[replica];
  const auto target = (mine.step + 1) * size_;
  while (mine.next < buckets() && published_[mine.next].load(std::memory_order_acquire) >= target)
    sum_chunk(replica, mine.next++);
}

void BucketExchange::sum_chunk(std::size_t replica, std::size_t bucket) {
  auto& tensors = buffers_[bucket];
  const auto& mine = tensors[at(replica)];
  const auto [begin, end] = chunk_of(mine.numel(), static_cast<std::int64_t>(mine.element_size()),
                                     static_cast<int>(at(replica)), static_cast<int>(size_));
  const trace::Span span("sum bucket", trace::Category::kSync, {"bucket", static_cast<std::int64_t>(bucket)},
                         {"bytes", (end - begin) * static_cast<std::int64_t>(mine.element_size())});
  for (std::size_t r = 0; r < count_; ++r) {
    const auto& other = tensors[at(r)];
    if (other.scalar_type() != mine.scalar_type() || other.sizes() != mine.sizes() || other.strides() != mine.strides())
      throw Error(ErrorCode::kInvalidArgument,
                  lockstep::str("a gradient is ", mine.sizes(), " ", mine.scalar_type(), " with strides ", mine.strides(),
                                " in replica ", replica, " and ", other.sizes(), " ", other.scalar_type(), " with strides ",
                                other.strides(), " in replica ", r, "; change a model in every replica, inside run()"));
    progress_[r].fences[bucket].block();
  }
  if (neighbours_.carrier != nullptr) neighbours_.carrier->put(bucket, tensors, {begin, end}, progress_[replica].step + 1);
  else tree_sum_tensors(tensors, tensors, {begin, end, divisor_});
}

void BucketExchange::finish(std::size_t replica) {
  help(replica);
  if (progress_[replica].next < buckets())
    throw Error(ErrorCode::kInternal, lockstep::str("only ", progress_[replica].next, " of ", buckets(),
                                                    " gradient buckets are filled by all replicas"));
  if (neighbours_.carrier != nullptr)
    for (std::size_t bucket = 0; bucket < buckets(); ++bucket)
      neighbours_.carrier->take(bucket, progress_[replica].step + 1, buffers_[bucket][at(replica)], divisor_);
  if (buckets() > 0) progress_[replica].done.record(buffers_[0][at(replica)].device());
}

void BucketExchange::begin_step(std::size_t replica) {
  for (std::size_t r = 0; r < count_; ++r) progress_[r].done.block();
  ++progress_[replica].step;
  progress_[replica].next = 0;
  progress_[replica].count = 0;
  forget_given(replica);
}

void BucketExchange::forget_given(std::size_t replica) {
  for (std::size_t bucket = 0; bucket < buckets(); ++bucket)
    if (is_given_[bucket]) buffers_[bucket][at(replica)].reset();
}

std::uint64_t BucketExchange::last_step() const {
  std::uint64_t step = 0;
  for (std::size_t r = 0; r < count_; ++r) step = std::max(step, progress_[r].step);
  return step;
}

void BucketExchange::reset(std::uint64_t last) {
  const auto step = std::max(last, last_step()) + 1;
  for (std::size_t r = 0; r < count_; ++r) {
    progress_[r].step = step;
    progress_[r].next = 0;
    progress_[r].count = 0;
    forget_given(r);
  }
  for (std::size_t bucket = 0; bucket < buckets(); ++bucket) published_[bucket].store(step * size_);
}

}  // namespace lockstep
