#include <algorithm>
#include <utility>

#include "lockstep/cluster/socket.h"
#include "tools/lockstep/node.h"

namespace lockstep::tool {

std::vector<int> find_free_ports(const std::string& host, std::size_t count) {
  std::vector<internal::Socket> held;
  std::vector<int> ports;
  for (std::size_t i = 0; i < count; ++i) {
    held.push_back(internal::Socket::listen({host, 0}));
    ports.push_back(held.back().port());
  }
  return ports;
}

void LocalNode::prepare(std::size_t ports) {
  children_.clear();
  ports_ = find_free_ports(listen_host_, ports);
}

void LocalNode::start(const Work& work, Events events) {
  children_.clear();
  events_ = std::move(events);
  try {
    for (const auto& planned : work.tasks) {
      auto variables = planned.environment;
      variables.insert(work.variables.begin(), work.variables.end());
      children_.push_back(
          std::make_unique<Child>(work.command, variables,
                                  [this, task = children_.size()](std::string_view bytes) { events_.on_output(task, bytes); }));
    }
  } catch (...) {
    children_.clear();
    throw;
  }
}

void LocalNode::send(int signal) {
  for (const auto& child : children_)
    if (!child->has_ended()) child->send(signal);
}

void LocalNode::watch(std::vector<pollfd>& watched, bool wants_output) const {
  for (const auto& child : children_)
    if (wants_output && child->output() >= 0) watched.push_back({child->output(), POLLIN, 0});
}

void LocalNode::work(bool wants_output) {
  if (wants_output)
    for (const auto& child : children_) child->forward_output();
  for (std::size_t task = 0; task < children_.size(); ++task)
    if (children_[task]->check_ended()) events_.on_ended({task, children_[task]->ending()});
}

bool LocalNode::is_idle() const {
  return std::ranges::all_of(children_, [](const auto& child) { return child->has_ended(); });
}

}  // namespace lockstep::tool
