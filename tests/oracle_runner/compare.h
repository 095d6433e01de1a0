#pragma once

#include <string>

#include "tests/oracle_runner/case.h"

namespace lockstep::oracle {

// Where `got` is not what `expected` says ("/steps/0: expected ..., got ..."); empty when it is.
// Tensors must agree in dtype and shape; floats to a few units in the last place of their dtype; integers, text, lists
// and the keys of objects exactly; errors by the code that docs/from_tf_distribute.md gives the Python class.
std::string find_mismatch(const Json& expected, const Json& got);

// The text of a value, cut to a readable length.
std::string shorten(const Json& value);

// The code for an error as the oracle writes it: {"type", "contains"}. Empty for an unknown class.
std::string code_of(const Json& error);

}  // namespace lockstep::oracle
