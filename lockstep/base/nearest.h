#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace lockstep {

// How many letters must be inserted, removed or replaced to make `b` of `a`.
std::size_t edit_distance(std::string_view a, std::string_view b);

// The name that `given` was probably meant to be: the nearest in letters, first without and then with regard to case; the
// first of several.
// Empty when there are no names.
std::string nearest_name(std::string_view given, const std::vector<std::string>& names);

// "'accurcy' is not a metric; did you mean 'accuracy'? There are: a, b, c": the message of a name that does not exist.
// `what` is "a metric" and so on.
std::string unknown_name(std::string_view what, std::string_view given, const std::vector<std::string>& names);

}  // namespace lockstep
