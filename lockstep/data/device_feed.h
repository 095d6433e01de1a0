#pragma once

#include <c10/core/Device.h>

#include <vector>

#include "lockstep/data/steps.h"

namespace lockstep::data::internal {

// Puts every replica's part on its device, `ahead` steps before they are asked for.
//
// Note [device feed]
// 1. A thread ("lockstep:feed") runs the pipeline, copies into page-locked memory what is not there yet (see Note [batch
// memory])
//    and queues the transfer on a stream of its own, so that neither the pipeline nor the transfer holds up the step that
//    computes.
// 2. It records a fence per device. hand_over() makes the caller's stream wait for it, and tells the allocator that this
//    stream uses the memory now.
// 3. With ahead == 0 the copies are made on the thread that asks, on its own streams.
// A CPU strategy does not use the thread: the parts are views of the batch, nothing is to be copied, and a thread that
// runs the pipeline would take a core away from the replicas. A dataset whose map functions are slow says prefetch().
StepStream feed_devices(StepStream steps, std::vector<c10::Device> devices, int ahead);

// Called on the thread that will use the step.
void hand_over(Step& step);

}  // namespace lockstep::data::internal
