#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "lockstep/fwd.h"
#include "lockstep/ps/store_messages.h"

namespace lockstep::ps {

// value = value <kind> given, element by element: kAdd, kSub, and on rows `ids` in their order the row forms. Integers wrap
// around. Both have the same dtype, which is no bool, and fit.
void combine(Operation::Kind kind, at::Tensor& value, const at::Tensor& given);
void combine_rows(Operation::Kind kind, at::Tensor& value, std::span<const std::int64_t> ids, const at::Tensor& rows);

// Whether integers would be divided by 0.
bool has_zero_divisor(const at::Tensor& given);

}  // namespace lockstep::ps
