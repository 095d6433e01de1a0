#include "lockstep/cluster/lifeline_bytes.h"

#include <algorithm>
#include <cstring>

namespace lockstep::internal {
namespace {

constexpr std::string_view kMagic = "LOCKSTEP";
constexpr std::size_t kTicketBytes = kMagic.size() + sizeof(std::uint64_t);

}  // namespace

std::string LifelineBytes::show(std::uint64_t ticket) {
  std::string bytes(kMagic);
  bytes.resize(kTicketBytes);
  std::memcpy(bytes.data() + kMagic.size(), &ticket, sizeof ticket);
  return bytes;
}

LifelineBytes::News LifelineBytes::next() {
  if (state_ == State::kEnded || bytes_.empty()) return News::kNothing;
  if (state_ == State::kBeforeTicket) {
    const auto known = std::min(bytes_.size(), kMagic.size());
    if (bytes_.compare(0, known, kMagic, 0, known) != 0) {
      state_ = State::kEnded;
      return News::kGarbage;
    }
    if (bytes_.size() < kTicketBytes) return News::kNothing;
    std::memcpy(&ticket_, bytes_.data() + kMagic.size(), sizeof ticket_);
    bytes_.erase(0, kTicketBytes);
    state_ = State::kOpen;
    return News::kTicket;
  }
  bytes_.erase(0, bytes_.find_first_not_of(kBeat));
  if (bytes_.empty()) return News::kNothing;
  state_ = State::kEnded;
  return bytes_.front() == kGoodbye ? News::kGoodbye : News::kGarbage;
}

}  // namespace lockstep::internal
