#pragma once

#include <cstring>
#include <utility>
#include <vector>

#include "lockstep/ps/fields.h"
#include "lockstep/ps/message.h"

// A message that arrives without a network.

namespace lockstep::testing {

class Parcel : public ps::Incoming {
 public:
  Parcel(std::string fields, const std::vector<ps::Piece>& payload) {
    fields_ = std::move(fields);
    for (const auto& piece : payload) bytes_.insert(bytes_.end(), piece.bytes.begin(), piece.bytes.end());
    left_ = bytes_.size();
  }
  explicit Parcel(const ps::Outgoing& sent) : Parcel(sent.fields, sent.payload) {}

  void read(std::span<std::byte> into) override {
    if (into.size() > left_) throw Error(ErrorCode::kInvalidArgument, "a parcel has fewer bytes");
    if (!into.empty()) std::memcpy(into.data(), bytes_.data() + (bytes_.size() - left_), into.size());
    left_ -= into.size();
  }

 private:
  std::vector<std::byte> bytes_;
};

}  // namespace lockstep::testing
