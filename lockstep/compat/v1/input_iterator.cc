#include "lockstep/compat/v1/input_iterator.h"

#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/base/str.h"
#include "lockstep/compat/v1/first_version.h"
#include "lockstep/replica/replica_set.h"
#include "lockstep/strategy/strategy.h"

namespace lockstep::compat::v1 {

InputIterator::InputIterator(const char* maker, Strategy& strategy, DistributedDataset dataset)
    : maker_(maker), replicas_(strategy.replicas().shared_from_this()), dataset_(std::move(dataset)) {}

bool InputIterator::belongs_to(const Strategy& strategy) const noexcept { return replicas_.get() == &strategy.replicas(); }

void InputIterator::initialize() {
  auto* strategy = replicas_->strategy();
  if (strategy == nullptr)
    throw Error(ErrorCode::kFailedPrecondition,
                str("initialize() of an iterator of ", maker_,
                    "(): its strategy was destroyed; make the iterator of one that is still there"));
  const auto scope = internal::enter(*strategy, "initialize");
  finalize();  // first, so that two passes never hold memory at once
  pass_.emplace(dataset_.make_iterator());
}

DistributedIterator::Batch InputIterator::get_next() {
  if (!pass_)
    throw Error(ErrorCode::kFailedPrecondition,
                str("get_next() of an iterator of ", maker_, "(): no pass was begun; call initialize() first"));
  auto batch = pass_->next();
  if (!batch) throw Error(ErrorCode::kOutOfRange, str("end of the data of ", maker_, "(); initialize() begins a new pass"));
  return *std::move(batch);
}

}  // namespace lockstep::compat::v1
