#pragma once

#include <ATen/ATen.h>

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/ps/fields.h"
#include "lockstep/ps/rpc.h"
#include "lockstep/ps/update_rule.h"

// For tests of servers and clients that talk without a network.

namespace lockstep::testing {

// A message that has arrived.
class Arrived final : public ps::Incoming {
 public:
  explicit Arrived(const ps::Outgoing& sent) {
    fields_ = sent.fields;
    for (const auto& piece : sent.payload) bytes_.insert(bytes_.end(), piece.bytes.begin(), piece.bytes.end());
    left_ = bytes_.size();
  }
  void read(std::span<std::byte> into) override {
    if (into.size() > left_) throw Error(ErrorCode::kInvalidArgument, "a payload has fewer bytes");
    std::copy_n(bytes_.end() - static_cast<std::ptrdiff_t>(left_), into.size(), into.begin());
    left_ -= into.size();
  }

 private:
  std::vector<std::byte> bytes_;
};

inline ps::Piece piece_of(const at::Tensor& tensor) {
  const auto dense = tensor.contiguous();
  return {{static_cast<const std::byte*>(dense.data_ptr()), dense.nbytes()}, std::make_shared<at::Tensor>(dense)};
}

inline at::Tensor read_tensor(ps::Incoming& from, at::IntArrayRef shape, at::ScalarType dtype = at::kFloat) {
  auto tensor = at::empty(shape, dtype);
  from.read({static_cast<std::byte*>(tensor.data_ptr()), tensor.nbytes()});
  return tensor;
}

// A server's methods, called where they are.
class MethodTable {
 public:
  explicit MethodTable(std::map<std::string, ps::Method> methods) : methods_(std::move(methods)) {}

  std::unique_ptr<ps::Incoming> call(const std::string& method, const ps::Outgoing& request) const {
    Arrived arrived(request);
    ps::Outgoing reply;
    methods_.at(method).handler(arrived, reply);
    return std::make_unique<Arrived>(reply);
  }
  template <typename Reply, typename Request>
  Reply call(const std::string& method, const Request& request, const std::vector<at::Tensor>& payload = {}) const {
    ps::Outgoing outgoing{ps::to_bytes(request)};
    for (const auto& tensor : payload) outgoing.payload.push_back(piece_of(tensor));
    return ps::from_bytes<Reply>(call(method, outgoing)->fields());
  }

 private:
  std::map<std::string, ps::Method> methods_;
};

// value -= rate * gradient; `spec` is the rate.
class PlainRule final : public ps::UpdateRule {
 public:
  explicit PlainRule(double rate) : rate_(rate) {}
  void apply(at::Tensor& value, const at::Tensor& gradient) override {
    value.sub_(gradient, rate_);
    ++steps_;
  }
  void apply_rows(at::Tensor& value, const at::Tensor& ids, const at::Tensor& rows) override {
    value.index_add_(0, ids, rows, -rate_);
    ++steps_;
  }
  std::size_t room_for(std::size_t) const override { return 0; }
  std::size_t state_bytes() const noexcept override { return 0; }
  double learning_rate() const override { return rate_; }
  bool has_schedule() const noexcept override { return false; }
  void set_learning_rate(double rate) override { rate_ = rate; }
  std::int64_t steps() const noexcept override { return steps_; }
  ps::RuleState state() const override { return {{}, {{"steps", static_cast<double>(steps_)}, {"learning_rate", rate_}}}; }
  void load_state(const ps::RuleState& state) override {
    for (const auto& [name, number] : state.numbers)
      if (name == "steps") steps_ = static_cast<std::int64_t>(number);
      else rate_ = number;
  }

 private:
  double rate_;
  std::int64_t steps_ = 0;
};

inline std::unique_ptr<ps::UpdateRule> plain_rule(const std::string& spec, const at::Tensor&) {
  if (spec == "bad") throw Error(ErrorCode::kInvalidArgument, "no such rule");
  return std::make_unique<PlainRule>(std::stod(spec));
}

}  // namespace lockstep::testing
