#include "lockstep/collective/bucket_plan.h"

#include <algorithm>
#include <functional>
#include <map>
#include <utility>

namespace lockstep {

std::vector<Bucket> plan_buckets(std::span<const GradientInfo> gradients, std::int64_t cap_bytes) {
  constexpr std::int64_t kCacheLine = 64;
  std::vector<Bucket> buckets;
  std::map<std::pair<int, int>, std::size_t> open;
  for (std::size_t i = gradients.size(); i-- > 0;) {
    const auto& gradient = gradients[i];
    if (gradient.is_alone) {
      buckets.push_back({{{i, 0}}, gradient.elements});
      continue;
    }
    const auto key = std::pair(gradient.dtype, gradient.device);
    auto found = open.find(key);
    if (found == open.end() || (buckets[found->second].elements + gradient.elements) * gradient.element_bytes > cap_bytes) {
      buckets.emplace_back();
      found = open.insert_or_assign(key, buckets.size() - 1).first;
    }
    Bucket& bucket = buckets[found->second];
    bucket.members.push_back({i, bucket.elements});
    const auto line = std::max<std::int64_t>(1, kCacheLine / gradient.element_bytes);
    bucket.elements += (gradient.elements + line - 1) / line * line;
  }
  // A large gradient that comes early does not wait for small ones that come last.
  std::ranges::stable_sort(buckets, std::greater(), [](const Bucket& bucket) { return bucket.members.back().gradient; });
  return buckets;
}

}  // namespace lockstep
