#pragma once

#include "lockstep/data/dataset.h"
#include "lockstep/data/ops/ops.h"

namespace lockstep::data::internal {

NodePtr make_buckets(NodePtr input, KeyFunction length, std::vector<std::int64_t> boundaries, std::vector<std::int64_t> sizes,
                     const Buckets& options);

}  // namespace lockstep::data::internal
