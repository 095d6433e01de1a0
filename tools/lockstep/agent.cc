#include "tools/lockstep/agent.h"

#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <optional>

#include "lockstep/base/errno_text.h"
#include "lockstep/base/error.h"
#include "lockstep/base/str.h"
#include "lockstep/cluster/coordination.h"
#include "lockstep/cluster/host_address.h"
#include "tools/lockstep/log_files.h"
#include "tools/lockstep/node.h"
#include "tools/lockstep/signals.h"
#include "tools/lockstep/task_output.h"

namespace lockstep::tool {
namespace {

using Clock = std::chrono::steady_clock;

// The node's side of Note [launcher and nodes].
class Agent {
 public:
  Agent(Link& link, const OwnWork* own) : link_(link), own_(own) {}

  int serve() {
    const Signals signals;
    while (true) {
      wait_for_news(signals);
      for (const int signal : signals.take()) interrupt(signal);
      for (const auto& message : link_.work()) take(message);
      node_.work(wants_output());
      printer_.work();
      if (farewell_) return farewell(signals);
      if (!link_.broken().empty() && !end_began_) {
        if (own_ != nullptr) say(printer_, str("the launcher of node 0 is lost: ", link_.broken(), "; ends all tasks here"));
        begin_end(SIGTERM);
      }
      if (end_began_ && Clock::now() - *end_began_ > time_to_end_) node_.send(SIGKILL, std::nullopt);
      if (end_began_ && node_.is_idle() && is_nobody_to_tell()) return 1;
    }
  }

 private:
  bool wants_output() const { return !is_held_ && !link_.is_full() && !printer_.is_full(); }

  // A launcher that is told of the tasks' end says good-bye, and has a while for it. One that has started none is not asked.
  bool is_nobody_to_tell() const { return !link_.broken().empty() || !has_started_ || Clock::now() - *end_began_ > 2 * grace_; }

  void wait_for_news(const Signals& signals) const {
    constexpr int kMilliseconds = 100;
    std::vector<pollfd> watched = {{signals.descriptor(), POLLIN, 0}};
    link_.watch(watched);
    node_.watch(watched, wants_output());
    printer_.watch(watched);
    poll(watched.data(), watched.size(), kMilliseconds);
  }

  void take(const Message& message) {
    try {
      switch (message.kind) {
        case MessageKind::kPrepare: return prepare(unpack_numbers(message.body));
        case MessageKind::kStart: return start(unpack_work(message.body));
        case MessageKind::kAgain: return again(unpack_numbers(message.body));
        case MessageKind::kSignal: return pass_on(unpack_numbers(message.body));
        case MessageKind::kHold: is_held_ = true; return;
        case MessageKind::kGo: is_held_ = false; return;
        case MessageKind::kBye: farewell_ = unpack_farewell(message.body); return;
        default: return;
      }
    } catch (const Error& error) {
      link_.send({MessageKind::kRefused, error.message()});
    }
  }

  void prepare(const std::vector<int>& wanted) {
    constexpr int kMostPorts = 4096;
    if (wanted.size() != 1 || wanted[0] < 0 || wanted[0] > kMostPorts)
      throw Error(ErrorCode::kDataLoss, "the launcher asks for no number of ports");
    node_.prepare(static_cast<std::size_t>(wanted[0]));
    link_.send({MessageKind::kReady, pack_numbers(*node_.ports())});
  }

  void start(Work work) {
    if (end_began_) throw Error(ErrorCode::kCancelled, "this node was told to end");
    grace_ = time_to_end_ = work.grace;
    save_grace_ = work.save_grace;
    outputs_.clear();
    if (own_ != nullptr) use_own(work);
    else enter(work);
    if (work.command.empty()) throw Error(ErrorCode::kInvalidArgument, "there is no program to run");
    has_started_ = true;
    node_.start(work, {[this](std::size_t task, std::string_view bytes) { pass_on(task, bytes); },
                       [this](const Report& report) { tell_end(report); }});
  }

  void again(const std::vector<int>& numbers) {
    if (numbers.size() != 2) throw Error(ErrorCode::kDataLoss, "the launcher does not say which task to start again");
    const auto task = known_task(numbers[0]);
    if (end_began_) return link_.send({MessageKind::kEnded, pack(Report{task, {.lost = "this node was told to end"}})});
    const auto& name = node_.tasks()[task].task;
    if (own_ != nullptr) outputs_[task] = make_output_again(printer_, str(name), log_file(own_->log_dir, name, numbers[1]));
    node_.again(task, numbers[1]);
  }

  // A signal, and for which task; without one for all.
  void pass_on(const std::vector<int>& numbers) {
    if (numbers.empty()) throw Error(ErrorCode::kDataLoss, "the launcher does not say which signal to send");
    node_.send(numbers[0], numbers.size() == 1 ? std::nullopt : std::optional(known_task(numbers[1])));
  }

  std::size_t known_task(int number) const {
    if (number < 0 || static_cast<std::size_t>(number) >= node_.tasks().size())
      throw Error(ErrorCode::kDataLoss, str("the launcher means task ", number, " of ", node_.tasks().size()));
    return static_cast<std::size_t>(number);
  }

  // A launcher that this node looked up by an address may say who the tasks are, but not what they run.
  void use_own(Work& work) {
    work.command = own_->command;
    work.variables.clear();
    for (auto& planned : work.tasks) {
      std::erase_if(planned.environment, [](const auto& variable) { return !is_planned_variable(variable.first); });
      outputs_.push_back(
          std::make_unique<TaskOutput>(printer_, str(planned.task), log_file(own_->log_dir, planned.task, work.attempt)));
    }
  }

  // The launcher's variables and folder become this process's: the program is looked for in both.
  void enter(Work& work) {
    for (const auto& [name, value] : work.variables) setenv(name.c_str(), value.c_str(), /*overwrite=*/1);
    work.variables.clear();
    if (chdir(work.folder.c_str()) != 0)
      throw Error(ErrorCode::kNotFound, str("cannot go to the folder '", work.folder, "' (", errno_text(errno),
                                            "); start where a folder of this name is on all machines"));
  }

  void pass_on(std::size_t task, std::string_view bytes) {
    if (own_ != nullptr) outputs_[task]->take(bytes);
    else link_.send({MessageKind::kOutput, pack_output(task, bytes)});
  }

  void tell_end(Report report) {
    if (own_ != nullptr) {
      outputs_[report.task]->finish();
      const auto& lines = outputs_[report.task]->last_lines();
      report.last_lines.assign(lines.begin(), lines.end());
    }
    link_.send({MessageKind::kEnded, pack(report)});
  }

  void interrupt(int signal) {
    printer_.hurry();
    if (own_ != nullptr && !end_began_) say(printer_, str("ends: ", strsignal(signal)));
    if (signal == SIGTERM) time_to_end_ = std::max(grace_, save_grace_);
    begin_end(signal);
  }

  void begin_end(int signal) {
    node_.send(end_began_ ? SIGKILL : signal, std::nullopt);
    if (!end_began_) end_began_ = Clock::now();
  }

  int farewell(const Signals& signals) {
    constexpr int kLooks = 10;
    node_.clear();
    link_.send({MessageKind::kBye, pack(Farewell())});
    for (int k = 0; k < kLooks && !link_.is_flushed() && link_.broken().empty(); ++k) {
      poll(nullptr, 0, 100);
      link_.work(/*reads=*/false);
    }
    printer_.finish(signals.descriptor());
    if (own_ != nullptr && !farewell_->reason.empty()) say(printer_, farewell_->reason);
    return farewell_->exit_code;
  }

  Link& link_;
  const OwnWork* const own_;
  Printer printer_;
  LocalNode node_{"0.0.0.0"};
  std::vector<std::unique_ptr<TaskOutput>> outputs_;  // when they are shown here, by task
  std::chrono::milliseconds grace_ = std::chrono::seconds(5);
  std::chrono::milliseconds save_grace_ = std::chrono::seconds(0);
  std::chrono::milliseconds time_to_end_ = grace_;  // from end_began_ on
  std::optional<Clock::time_point> end_began_;
  std::optional<Farewell> farewell_;
  bool has_started_ = false;  // tasks
  bool is_held_ = false;      // the launcher's reader does not read
};

}  // namespace

int serve_launcher(Link& link, const OwnWork* own) { return Agent(link, own).serve(); }

int run_agent(std::chrono::nanoseconds lost_after) {
  // The tasks' own output must not reach the launcher's messages.
  Link link(STDIN_FILENO, STDOUT_FILENO, Link::Greeting::kSent, lost_after);
  link.send({MessageKind::kHello, pack(Hello{.build = build_name(), .host = own_host_name()})});
  return serve_launcher(link, nullptr);
}

}  // namespace lockstep::tool
