#include "lockstep/collective/dense.h"

#include <ATen/ATen.h>

#include "lockstep/base/error.h"
#include "lockstep/base/str.h"

namespace lockstep {

bool is_dense(const at::Tensor& value) {
  return value.defined() && value.layout() == at::kStrided && !value.is_quantized() && !value.is_meta();
}

void require_dense(const at::Tensor& value, const char* what) {
  if (is_dense(value)) return;
  const auto kind = !value.defined()                 ? lockstep::str("an undefined tensor")
                    : value.layout() != at::kStrided ? lockstep::str("a tensor of layout ", value.layout())
                    : value.is_quantized()           ? lockstep::str("a quantised tensor")
                                                     : lockstep::str("a tensor on the meta device");
  throw Error(ErrorCode::kInvalidArgument,
              lockstep::str(what, ": ", kind,
                            " was given; it must be a dense tensor with memory (sparse.to_dense(), "
                            "quantised.dequantize(); rows of a table travel as IndexedSlices)"));
}

at::Tensor in_memory(const at::Tensor& value) { return value.resolve_conj().resolve_neg().contiguous(); }

}  // namespace lockstep
