#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Stream.h>

#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "lockstep/collective/device_sum.h"
#include "lockstep/collective/transport.h"
#include "lockstep/collective/worker_bytes.h"

namespace lockstep {

// The workers' calls for tensors on GPUs, from memory to memory, on an engine of all workers. What all of them are about to
// do was compared before.
//
// Note [streams of a GPU engine]
// 1. The engine has a stream of its own. A call makes it wait, by an event, for what the calling thread has queued so far,
//    and queues copies and additions there too, between the engine's own.
// 2. An engine's call returns when the GPU is through with it, so that a peer that does not come is noticed here. What is
//    queued behind the last one is put before the calling thread's later work, by another event.
// 3. Memory that outlives the call is taken before it, on the caller's stream: LibTorch gives freed memory to the stream
//    that it was taken on.
class DeviceExchange {
 public:
  // `device`: of the engine's memory. Replicas on other GPUs have their values copied there and back.
  DeviceExchange(std::shared_ptr<Transport> engine, c10::Device device, const WorkerLayout& layout, bool is_deterministic);

  // Whether these values are where the engine's are.
  bool serves(std::span<const at::Tensor> values) const;

  // As WorkerGroup's.
  void sum(std::span<const std::vector<at::Tensor>> values, std::span<at::Tensor> outputs);
  // `shapes`: everybody's (shapes_to_text).
  std::vector<at::Tensor> all_gather(std::span<const at::Tensor> values, std::span<const std::string> shapes);
  void broadcast(std::span<at::Tensor> values);

  void abort(const Error& why) noexcept { engine_->abort(why); }

 private:
  // Runs `body` with the engine's stream as the current one.
  void on_stream(const std::function<void()>& body);

  // Const after construction.
  const std::shared_ptr<Transport> engine_;
  const c10::Device device_;
  const c10::Stream stream_;
  const bool is_deterministic_;

  // Used only by the thread that calls.
  DeviceSum sum_;
};

}  // namespace lockstep
