#include "lockstep/train/callbacks/training.h"

#include "lockstep/base/first_error.h"

namespace lockstep {

void Training::fail(const std::exception_ptr& thrown) {
  if (failure_) return;
  thrown_ = thrown;
  try {
    std::rethrow_exception(thrown);
  } catch (const Error& error) {
    fail(error);
  } catch (...) {
    fail(Error(ErrorCode::kInternal, describe(thrown)));
  }
}

}  // namespace lockstep
