#include "lockstep/data/worker_pass.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <functional>
#include <nlohmann/json.hpp>
#include <sstream>

#include "lockstep/base/error.h"
#include "lockstep/base/str.h"

namespace lockstep::data::internal {
namespace {

using Json = nlohmann::json;

std::string to_text(const Element& empty) {
  Json list = Json::array();
  for (const auto& component : empty.components())
    list.push_back({{"name", component.name},
                    {"sizes", component.sizes()},
                    {"dtype", component.is_bytes() ? -1 : static_cast<int>(component.tensor().scalar_type())}});
  return list.dump();
}

Element from_text(const std::string& text) {
  std::vector<Component> components;
  for (const auto& one : Json::parse(text)) {
    const auto sizes = one.at("sizes").get<std::vector<std::int64_t>>();
    Component component{one.at("name")};
    if (one.at("dtype") == -1) component.value = Bytes{{}, sizes};
    else component.value = at::empty(sizes, static_cast<at::ScalarType>(one.at("dtype").get<int>()));
    components.push_back(std::move(component));
  }
  return Element(std::move(components));
}

std::string describe(const Dataset& dataset) {
  std::ostringstream text;
  text << dataset << dataset.cardinality();
  return text.str();
}

}  // namespace

WorkerPass::WorkerPass(std::shared_ptr<WorkerGroup> workers, std::int64_t steps, std::vector<c10::Device> devices)
    : workers_(std::move(workers)), devices_(std::move(devices)), shapes_(devices_.size()) {
  std::vector<std::int64_t> all;
  for (const auto& text : workers_->exchange("a new pass over the data", std::to_string(steps)))
    all.push_back(std::stoll(text));
  if (std::ranges::count(all, kUnknown) > 0) steps_ = kUnknown;
  else if (std::ranges::count(all, kInfinite) > 0) steps_ = kInfinite;
  else steps_ = *std::ranges::max_element(all);
  is_one_empty_ = std::ranges::count(all, 0) > 0;
}

bool WorkerPass::is_over(bool has_step) {
  if (steps_ != kUnknown) {
    must_tell_ = is_one_empty_ && count_ == 0;
    return steps_ != kInfinite && count_ >= steps_;
  }
  const std::string mine = has_step ? "1" : shapes_[0].is_known() ? "0" : "?";
  const auto all = workers_->exchange("whether there is more data", mine);
  must_tell_ = std::ranges::count(all, "?") > 0;
  return std::ranges::count(all, "1") == 0;
}

bool WorkerPass::go_on(bool has_step, Step& step) {
  if (is_over(has_step)) return false;
  ++count_;
  if (has_step) learn(step);
  if (must_tell_) learn_from_others();
  if (!has_step) fill(step);
  return true;
}

void WorkerPass::save(PositionWriter& to) const {
  to.begin("pass");
  to.put(count_);
  to.put(shapes_[0].is_known());
  if (!shapes_[0].is_known()) return;
  for (const auto& shape : shapes_) to.put(shape.empty());
}

void WorkerPass::restore(PositionReader& from) {
  from.expect("pass");
  count_ = from.number();
  if (!from.flag()) return;
  for (auto& shape : shapes_) shape.learn(from.element());
}

void WorkerPass::learn(const Step& step) {
  for (std::size_t r = 0; r < shapes_.size(); ++r) shapes_[r].learn(step.parts[r]);
}

void WorkerPass::learn_from_others() {
  const auto all = workers_->exchange("what an element looks like", shapes_[0].is_known() ? to_text(shapes_[0].empty()) : "");
  if (shapes_[0].is_known()) return;
  const auto known = std::ranges::find_if(all, [](const std::string& text) { return !text.empty(); });
  if (known == all.end())
    throw Error(ErrorCode::kInternal, "no worker has told what an element of the distributed dataset looks like");
  for (auto& shape : shapes_) shape.learn(from_text(*known));
}

void WorkerPass::fill(Step& step) const {
  step = Step{};
  for (std::size_t r = 0; r < shapes_.size(); ++r) {
    auto part = shapes_[r].empty();
    for (auto& component : part.components())
      if (!component.is_bytes()) component.value = component.tensor().to(devices_[r]);
    step.parts.push_back(std::move(part));
  }
  step.missing = static_cast<int>(shapes_.size());
}

void agree_on_pipeline(WorkerGroup& workers, const Dataset& dataset) {
  std::vector<std::atomic<std::uint64_t>*> seeds;
  for_each_node(*dataset.node(), [&](const Node& node) {
    if (auto* seed = node.drawn_seed()) seeds.push_back(seed);
  });
  Json mine = {{"pipeline", describe(dataset)}, {"seeds", Json::array()}};
  for (const auto* seed : seeds) mine["seeds"].push_back(seed->load());
  const auto all = workers.exchange("distributing a dataset", mine.dump(-1, ' ', false, Json::error_handler_t::replace));
  const auto first = Json::parse(all[0]);
  for (std::size_t worker = 1; worker < all.size(); ++worker) {
    const auto other = Json::parse(all[worker]);
    if (other["pipeline"] != first["pipeline"])
      throw Error(
          ErrorCode::kInvalidArgument,
          str("experimental_distribute_dataset: ", workers.layout().name_of(0), " has\n", first["pipeline"].get<std::string>(),
              "\nand ", workers.layout().name_of(static_cast<int>(worker)), " has\n", other["pipeline"].get<std::string>(),
              "\nevery worker must distribute the same dataset (or use "
              "distribute_datasets_from_function)"));
  }
  for (std::size_t i = 0; i < seeds.size(); ++i) seeds[i]->store(first["seeds"][i].get<std::uint64_t>());
}

}  // namespace lockstep::data::internal
