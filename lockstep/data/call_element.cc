#include "lockstep/data/call_element.h"

#include "lockstep/base/error.h"
#include "lockstep/base/str.h"

namespace lockstep::data::internal {

void throw_component_count(std::size_t components, std::size_t taken) {
  throw Error(ErrorCode::kInvalidArgument,
              lockstep::str("an element with ", components, " component(s) is given to a function that takes ", taken,
                            " of them; take one parameter per component, or a `const data::Element&`"));
}

}  // namespace lockstep::data::internal
