#pragma once

// All of Lockstep. Include it after, or before, <torch/torch.h>.

#include <torch/torch.h>

#include "lockstep/base/error.h"
#include "lockstep/base/log.h"
#include "lockstep/collective/communication_options.h"
#include "lockstep/collective/cross_device_ops.h"
#include "lockstep/collective/indexed_slices.h"
#include "lockstep/collective/reduce_op.h"
#include "lockstep/data/dataset.h"
#include "lockstep/data/distributed_dataset.h"
#include "lockstep/data/fashion_mnist.h"
#include "lockstep/device/device_spec.h"
#include "lockstep/device/devices.h"
#include "lockstep/replica/distributed_values.h"
#include "lockstep/replica/replica_context.h"
#include "lockstep/strategy/default_strategy.h"
#include "lockstep/strategy/mirrored_strategy.h"
#include "lockstep/strategy/one_device_strategy.h"
#include "lockstep/strategy/strategy.h"
#include "lockstep/strategy/strategy_extended.h"
#include "lockstep/train/loss.h"
#include "lockstep/train/optimizer.h"
#include "lockstep/train/progress_bar.h"
#include "lockstep/variable/mirrored.h"
#include "lockstep/variable/variable.h"
