#include "tools/lockstep/remote_node.h"

#include <algorithm>
#include <utility>

#include "lockstep/base/deadline.h"
#include "lockstep/base/error.h"
#include "lockstep/base/str.h"
#include "lockstep/cluster/coordination.h"

namespace lockstep::tool {

RemoteNode::RemoteNode(std::string name, std::unique_ptr<Transport> transport, std::optional<Hello> hello)
    : name_(std::move(name)), transport_(std::move(transport)), hello_(std::move(hello)) {}

RemoteNode::~RemoteNode() {
  constexpr std::chrono::seconds kPatience(2);
  auto& link = transport_->link();
  if (!has_said_goodbye_) say_goodbye({1, "the launcher has ended"});
  const auto deadline = Deadline::after(kPatience);
  bool has_ended = is_lost_ || !hello_;
  while (!has_ended && link.broken().empty() && !deadline.has_passed()) {
    std::vector<pollfd> watched;
    link.watch(watched);
    poll(watched.data(), watched.size(), 100);
    const auto messages = link.work();
    has_ended = std::ranges::any_of(messages, [](const Message& message) { return message.kind == MessageKind::kBye; });
    transport_->work();
  }
}

void RemoteNode::prepare(std::size_t ports) {
  ports_.reset();
  asked_ports_ = ports;
  has_ended_.clear();
  transport_->link().send({MessageKind::kPrepare, pack_numbers({static_cast<int>(ports)})});
}

void RemoteNode::start(const Work& work, Events events) {
  events_ = std::move(events);
  has_ended_.assign(work.tasks.size(), false);
  transport_->link().send({MessageKind::kStart, pack(work)});
}

void RemoteNode::again(std::size_t task, int attempt) {
  has_ended_[task] = false;
  transport_->link().send({MessageKind::kAgain, pack_numbers({static_cast<int>(task), attempt})});
}

void RemoteNode::send(int signal, std::optional<std::size_t> task) {
  std::vector<int> numbers = {signal};
  if (task) numbers.push_back(static_cast<int>(*task));
  transport_->link().send({MessageKind::kSignal, pack_numbers(numbers)});
}

void RemoteNode::watch(std::vector<pollfd>& watched, bool) const {
  if (is_lost_) return;
  transport_->link().watch(watched);
  transport_->watch(watched);
}

void RemoteNode::work(bool wants_output) {
  if (is_lost_) return;
  transport_->work();
  if (hello_ && is_held_ == wants_output) {
    is_held_ = !wants_output;
    transport_->link().send({is_held_ ? MessageKind::kHold : MessageKind::kGo, ""});
  }
  try {
    for (const auto& message : transport_->link().work()) take(message);
  } catch (const Error& error) {
    if (error.code() != ErrorCode::kDataLoss) throw;
    return lose(error.message());
  }
  if (const auto& why = transport_->link().broken(); !why.empty()) lose(why);
}

void RemoteNode::take(const Message& message) {
  switch (message.kind) {
    case MessageKind::kHello: return take_hello(unpack_hello(message.body));
    case MessageKind::kReady: return take_ports(unpack_numbers(message.body));
    case MessageKind::kRefused: throw Error(ErrorCode::kNotFound, str(name_, ": ", message.body));
    case MessageKind::kEnded: return end_task(unpack_report(message.body));
    case MessageKind::kOutput: {
      const auto [task, bytes] = unpack_output(message.body);
      if (task < has_ended_.size()) events_.on_output(task, bytes);
      return;
    }
    default: throw Error(ErrorCode::kDataLoss, "it sent a message that only a launcher sends");
  }
}

void RemoteNode::take_ports(std::vector<int> ports) {
  const auto is_port = [](int port) { return port > 0 && port < 65536; };
  if (ports.size() != asked_ports_ || !std::ranges::all_of(ports, is_port))
    throw Error(ErrorCode::kDataLoss, str("it was asked for ", asked_ports_, " ports and sent something else"));
  ports_ = std::move(ports);
}

void RemoteNode::take_hello(const Hello& hello) {
  if (hello.build != build_name())
    throw Error(ErrorCode::kFailedPrecondition, str(name_, " has '", hello.build, "' and this machine '", build_name(),
                                                    "'; install the same on both, or name it with --remote-lockstep"));
  hello_ = hello;
}

void RemoteNode::end_task(const Report& report) {
  if (report.task >= has_ended_.size() || has_ended_[report.task]) return;
  has_ended_[report.task] = true;
  events_.on_ended(report);
}

void RemoteNode::lose(const std::string& link_says) {
  is_lost_ = true;
  const auto more = transport_->last_words();
  const auto why = str(name_, hello_ ? " is lost: " : " cannot be reached: ", more.empty() ? link_says : more);
  if (has_ended_.empty()) throw Error(ErrorCode::kUnavailable, why);
  for (std::size_t task = 0; task < has_ended_.size(); ++task) {
    Report report{task};
    report.ending.lost = why;
    end_task(report);
  }
}

void RemoteNode::say_goodbye(const Farewell& farewell) {
  has_said_goodbye_ = true;
  transport_->link().send({MessageKind::kBye, pack(farewell)});
}

}  // namespace lockstep::tool
