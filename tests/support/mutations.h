#pragma once

#include <cstdint>
#include <cstring>
#include <limits>
#include <random>
#include <string>
#include <vector>

// For tests that give requests with mistakes in them to a server: numbers and bytes drawn by lot, the same for the same seed.

namespace lockstep::testing {

class Mutations {
 public:
  explicit Mutations(std::uint64_t seed) : random_(seed) {}

  std::uint64_t below(std::uint64_t count) { return random_() % count; }
  bool happens(int percent) { return below(100) < static_cast<std::uint64_t>(percent); }

  template <typename T>
  const T& one_of(const std::vector<T>& all) {
    return all[below(all.size())];
  }

  // A small number, or now and then one at which sums and products go wrong.
  std::int64_t number(std::int64_t most) {
    static const std::vector<std::int64_t> odd = {-1,
                                                  0,
                                                  std::numeric_limits<std::int64_t>::max(),
                                                  std::numeric_limits<std::int64_t>::min(),
                                                  std::int64_t{1} << 32,
                                                  std::int64_t{1} << 40,
                                                  (std::int64_t{1} << 61) + 1,
                                                  -(std::int64_t{1} << 31)};
    return happens(10) ? one_of(odd) : static_cast<std::int64_t>(below(static_cast<std::uint64_t>(most) + 1));
  }

  std::string bytes(std::size_t count) {
    std::string text(count, '\0');
    for (auto& byte : text) byte = static_cast<char>(random_());
    return text;
  }

  // Changes some of the bytes, their number, or eight of them to a number at which things go wrong.
  void spoil(std::string& text) {
    for (auto times = below(3) + 1; times > 0; --times) {
      const auto at = text.empty() ? 0 : below(text.size());
      switch (below(5)) {
        case 0: text.resize(at); break;
        case 1: text += bytes(below(12)); break;
        case 2: text.insert(at, bytes(below(9))); break;
        case 3:
          if (text.size() >= at + sizeof(std::int64_t)) {
            const auto value = number(300);
            std::memcpy(text.data() + at, &value, sizeof value);
          }
          break;
        default:
          if (!text.empty()) text[at] = static_cast<char>(random_());
      }
    }
  }

 private:
  std::mt19937_64 random_;
};

}  // namespace lockstep::testing
