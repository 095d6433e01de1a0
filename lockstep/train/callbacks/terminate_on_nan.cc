#include "lockstep/train/callbacks/terminate_on_nan.h"

#include <cmath>

#include "lockstep/base/str.h"
#include "lockstep/train/callbacks/finite_weights.h"
#include "lockstep/train/model/model.h"

namespace lockstep {

void TerminateOnNaN::on_train_batch_end(Training& training) {
  const double loss = training.model().last_loss();
  const bool is_told = loss != 0;  // a train_step of one's own need not tell its loss
  if (std::isfinite(loss) && is_told) return;
  const auto bad = internal::not_finite_parameters(training.model());
  if (std::isfinite(loss) && bad.empty()) return;
  training.fail(
      Error(ErrorCode::kOutOfRange,
            str("TerminateOnNaN: the loss is ", is_told ? str(loss) : "not told", " in step ", training.step(), " of epoch ",
                training.epoch() + 1, "; ",
                bad.empty() ? "all parameters are finite: the loss itself, or the data, is not"
                            : "parameters that are not finite: " + bad,
                ". A smaller learning rate or clipping (global_clipnorm) may help; look for bad values in the data")));
}

}  // namespace lockstep
