#pragma once

#include <string>

#include "lockstep/ps/message.h"

namespace lockstep::ps {

// A message that came inside another one: fields of its own, and the payload of that one.
class InnerMessage final : public Incoming {
 public:
  InnerMessage(std::string fields, Incoming& outer) : outer_(outer) {
    fields_ = std::move(fields);
    left_ = outer.left();
  }
  void read(std::span<std::byte> into) override {
    outer_.read(into);
    left_ = outer_.left();
  }
  std::vector<std::span<const std::byte>> rest() override { return outer_.rest(); }

 private:
  Incoming& outer_;
};

}  // namespace lockstep::ps
