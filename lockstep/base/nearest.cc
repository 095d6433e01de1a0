#include "lockstep/base/nearest.h"

#include <numeric>
#include <utility>

#include "lockstep/base/str.h"

namespace lockstep {

std::size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<std::size_t> row(b.size() + 1);  // row[j]: of the first i letters of a and the first j of b
  std::iota(row.begin(), row.end(), std::size_t{0});
  for (std::size_t i = 1; i <= a.size(); ++i) {
    std::size_t diagonal = row[0];
    row[0] = i;
    for (std::size_t j = 1; j <= b.size(); ++j) {
      const auto replaced = diagonal + (a[i - 1] == b[j - 1] ? 0 : 1);
      diagonal = row[j];
      row[j] = std::min({replaced, row[j] + 1, row[j - 1] + 1});
    }
  }
  return row[b.size()];
}

std::string nearest_name(std::string_view given, const std::vector<std::string>& names) {
  const auto wanted = upper(std::string(given));
  std::string best;
  std::pair<std::size_t, std::size_t> least;  // without regard to case, then with
  for (const auto& name : names) {
    const std::pair distance(edit_distance(wanted, upper(name)), edit_distance(given, name));
    if (!best.empty() && distance >= least) continue;
    best = name;
    least = distance;
  }
  return best;
}

std::string unknown_name(std::string_view what, std::string_view given, const std::vector<std::string>& names) {
  return str("'", given, "' is not ", what, "; did you mean '", nearest_name(given, names),
             "'? There are: ", join(", ", names));
}

}  // namespace lockstep
