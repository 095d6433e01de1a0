#pragma once

#include <sstream>
#include <string>
#include <type_traits>

namespace lockstep {

// The key of a parameter's state in LibTorch's optimizer.state(): the address of its implementation or, before 2.0, that as
// text.
template <typename Map, typename Tensor>
typename Map::key_type state_key(const Map&, const Tensor& parameter) {
  if constexpr (std::is_same_v<typename Map::key_type, std::string>) {
    std::ostringstream text;
    text << parameter.unsafeGetTensorImpl();
    return text.str();
  } else {
    return parameter.unsafeGetTensorImpl();
  }
}

}  // namespace lockstep
