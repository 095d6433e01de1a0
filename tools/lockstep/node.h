#pragma once

#include <poll.h>

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tools/lockstep/child.h"
#include "tools/lockstep/messages.h"

namespace lockstep::tool {

// The tasks that one machine runs for a launcher. No call waits; work() must be called often.
class Node {
 public:
  // Called by work(), start() and again().
  struct Events {
    std::function<void(std::size_t task, std::string_view bytes)> on_output;
    std::function<void(const Report& report)> on_ended;  // once for each start of a task
  };

  virtual ~Node() = default;
  virtual std::string name() const = 0;  // "host b"

  // Asks for free ports; ports() has them as soon as they are known.
  virtual void prepare(std::size_t ports) = 0;
  virtual const std::optional<std::vector<int>>& ports() const = 0;

  virtual void start(const Work& work, Events events) = 0;
  // Starts one that has ended again, as `attempt`; when that cannot be done, it has ended with it. REQUIRES: !is_lost()
  virtual void again(std::size_t task, int attempt) = 0;
  // To one task, or to all, that have not ended.
  virtual void send(int signal, std::optional<std::size_t> task) = 0;

  // What to wait for. Output is left where it is unless it is wanted.
  virtual void watch(std::vector<pollfd>& watched, bool wants_output) const = 0;
  // Throws kUnavailable when the machine cannot be reached, kNotFound when it cannot start the program; once all tasks
  // have been started, they end with it in place of this.
  virtual void work(bool wants_output) = 0;
  // Nothing can be started there any more.
  virtual bool is_lost() const = 0;
  // The job has ended.
  virtual void say_goodbye(const Farewell& farewell) = 0;
};

// Ports that were free a moment ago on `host`.
std::vector<int> find_free_ports(const std::string& host, std::size_t count);

// The machine that this process runs on.
class LocalNode : public Node {
 public:
  // Ports are looked for on `listen_host`.
  explicit LocalNode(std::string listen_host) : listen_host_(std::move(listen_host)) {}

  std::string name() const override { return "this machine"; }
  void prepare(std::size_t ports) override;  // what is left of earlier tasks is killed
  const std::optional<std::vector<int>>& ports() const override { return ports_; }
  // Throws kNotFound when the program cannot be started; then nothing is.
  void start(const Work& work, Events events) override;
  void again(std::size_t task, int attempt) override;
  void send(int signal, std::optional<std::size_t> task) override;
  void watch(std::vector<pollfd>& watched, bool wants_output) const override;
  void work(bool wants_output) override;
  bool is_lost() const override { return false; }
  void say_goodbye(const Farewell&) override {}

  // Kills what is left of all tasks.
  void clear() { children_.clear(); }
  const std::vector<PlannedTask>& tasks() const noexcept { return work_.tasks; }
  // True when no task is running.
  bool is_idle() const;

 private:
  std::unique_ptr<Child> make_child(std::size_t task);

  const std::string listen_host_;
  std::optional<std::vector<int>> ports_;
  Work work_;
  Events events_;
  std::vector<std::unique_ptr<Child>> children_;
};

}  // namespace lockstep::tool
