#include <algorithm>
#include <csignal>
#include <utility>

#include "lockstep/base/error.h"
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
  work_ = work;
  events_ = std::move(events);
  try {
    for (std::size_t task = 0; task < work_.tasks.size(); ++task) children_.push_back(make_child(task));
  } catch (...) {
    children_.clear();
    throw;
  }
}

std::unique_ptr<Child> LocalNode::make_child(std::size_t task) {
  auto variables = work_.tasks[task].environment;
  variables.insert(work_.variables.begin(), work_.variables.end());
  return std::make_unique<Child>(work_.command, variables,
                                 [this, task](std::string_view bytes) { events_.on_output(task, bytes); });
}

void LocalNode::again(std::size_t task, int attempt) {
  children_[task]->send(SIGKILL);  // what its own children still hold, such as its port
  set_attempt(work_.tasks[task].environment, attempt);
  try {
    children_[task] = make_child(task);
  } catch (const Error& error) {
    events_.on_ended({task, {.lost = error.message()}});
  }
}

void LocalNode::send(int signal, std::optional<std::size_t> task) {
  for (std::size_t k = 0; k < children_.size(); ++k)
    if (task.value_or(k) == k && !children_[k]->has_ended()) children_[k]->send(signal);
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
