#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "tools/lockstep/link.h"
#include "tools/lockstep/node.h"

namespace lockstep::tool {

// How a launcher reaches a node.
class Transport {
 public:
  virtual ~Transport() = default;
  virtual Link& link() = 0;
  // Beside the link's own.
  virtual void watch(std::vector<pollfd>& watched) const = 0;
  virtual void work() = 0;
  // What is known about the end of the connection beside the link's word; may be empty.
  virtual std::string last_words() = 0;
};

// Another machine, where a node listens to this launcher.
class RemoteNode : public Node {
 public:
  // `hello`, when it has come already.
  RemoteNode(std::string name, std::unique_ptr<Transport> transport, std::optional<Hello> hello);
  ~RemoteNode() override;  // waits a moment for the node's end

  std::string name() const override { return name_; }
  void prepare(std::size_t ports) override;
  const std::optional<std::vector<int>>& ports() const override { return ports_; }
  void start(const Work& work, Events events) override;
  void again(std::size_t task, int attempt) override;
  void send(int signal, std::optional<std::size_t> task) override;
  void watch(std::vector<pollfd>& watched, bool wants_output) const override;
  void work(bool wants_output) override;
  bool is_lost() const override { return is_lost_; }
  void say_goodbye(const Farewell& farewell) override;

 private:
  void take(const Message& message);
  void take_hello(const Hello& hello);
  void take_ports(std::vector<int> ports);
  void end_task(const Report& report);
  void lose(const std::string& why);

  const std::string name_;
  const std::unique_ptr<Transport> transport_;
  std::optional<Hello> hello_;
  std::size_t asked_ports_ = 0;
  std::optional<std::vector<int>> ports_;
  Events events_;
  std::vector<bool> has_ended_;  // by task; empty: none has been started
  bool is_lost_ = false;
  bool has_said_goodbye_ = false;
  bool is_held_ = false;
};

}  // namespace lockstep::tool
