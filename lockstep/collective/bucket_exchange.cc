#include "lockstep/collective/bucket_exchange.h"

#include <ATen/ATen.h>

#include "lockstep/collective/local_group.h"
#include "lockstep/collective/reduce_values.h"

namespace lockstep {

BucketExchange::BucketExchange(std::vector<std::vector<at::Tensor>> buffers)
    : buffers_(std::move(buffers)),
      size_(buffers_.size()),
      count_(buffers_.empty() ? 0 : buffers_[0].size()),
      by_bucket_(count_),
      progress_(std::make_unique<Progress[]>(size_)),
      published_(std::make_unique<std::atomic<std::uint64_t>[]>(count_)) {
  for (std::size_t bucket = 0; bucket < count_; ++bucket) {
    published_[bucket].store(0);
    for (const auto& mine : buffers_) by_bucket_[bucket].push_back(mine[bucket]);
  }
  for (std::size_t replica = 0; replica < size_; ++replica) {
    progress_[replica].published.resize(count_);
    progress_[replica].fences.resize(count_);
  }
}

bool BucketExchange::is_published(std::size_t replica, std::size_t bucket) const {
  return progress_[replica].published[bucket] == progress_[replica].step + 1;
}

void BucketExchange::publish(std::size_t replica, std::size_t bucket) {
  Progress& mine = progress_[replica];
  mine.published[bucket] = mine.step + 1;
  mine.fences[bucket].record(buffers_[replica][bucket].device());
  published_[bucket].fetch_add(1, std::memory_order_release);
  help(replica);
}

void BucketExchange::help(std::size_t replica) {
  Progress& mine = progress_[replica];
  const auto target = (mine.step + 1) * size_;
  while (mine.next < count_ && published_[mine.next].load(std::memory_order_acquire) >= target) sum_chunk(replica, mine.next++);
}

void BucketExchange::sum_chunk(std::size_t replica, std::size_t bucket) {
  auto& tensors = by_bucket_[bucket];
  const auto& mine = tensors[replica];
  const auto [begin, end] = chunk_of(mine.numel(), static_cast<std::int64_t>(mine.element_size()), static_cast<int>(replica),
                                     static_cast<int>(size_));
  for (std::size_t r = 0; r < size_; ++r) progress_[r].fences[bucket].block();
  tree_sum_tensors(tensors, tensors, begin, end);
}

void BucketExchange::finish(std::size_t replica) {
  help(replica);
  if (count_ > 0) progress_[replica].done.record(buffers_[replica][0].device());
}

void BucketExchange::begin_step(std::size_t replica) {
  for (std::size_t r = 0; r < size_; ++r) progress_[r].done.block();
  ++progress_[replica].step;
  progress_[replica].next = 0;
}

void BucketExchange::reset() {
  std::uint64_t step = 0;
  for (std::size_t r = 0; r < size_; ++r) step = std::max(step, progress_[r].step);
  ++step;
  for (std::size_t r = 0; r < size_; ++r) {
    progress_[r].step = step;
    progress_[r].next = 0;
  }
  for (std::size_t bucket = 0; bucket < count_; ++bucket) published_[bucket].store(step * size_);
}

}  // namespace lockstep
