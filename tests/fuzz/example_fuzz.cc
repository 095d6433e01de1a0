#include <cstdlib>

#include "lockstep/data/io/example.h"
#include "tests/fuzz/fuzz.h"

// Every feature that is found can be counted and read.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace lockstep::data;
  return lockstep::fuzz::expect_typed_errors(data, size, [](const std::string& bytes) {
    visit_features(bytes, [](const FeatureView& feature) {
      const auto count = count_values(feature);
      if (count < 0) return;
      const auto values = static_cast<std::size_t>(count);
      if (feature.kind == FeatureKind::kInt64) {
        std::vector<std::int64_t> numbers(values);
        read_values(feature, std::span(numbers));
      } else if (feature.kind == FeatureKind::kFloat) {
        std::vector<float> numbers(values);
        read_values(feature, std::span(numbers));
      } else if (feature.kind == FeatureKind::kBytes) {
        std::vector<std::string_view> strings;
        if (read_values(feature, strings) && strings.size() != values) std::abort();
      }
    });
  });
}
