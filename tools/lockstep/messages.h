#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tools/lockstep/plan.h"
#include "tools/lockstep/process.h"

// Note [launcher and nodes]
// One launcher leads a job. Every other machine runs a node (`lockstep agent` through ssh, or `lockstep run --node-rank K`,
// which connects by TCP) that starts tasks for it. On the bytes between them:
//   1. The node sends kGreeting, then a Hello. What comes before it (a shell's banner) is not ours.
//   2. The launcher asks with Prepare for free ports; the node answers with Ready. The ports were free a moment ago.
//   3. The launcher knows all addresses now and sends Start; the node starts the tasks, or sends Refused.
//   4. The node sends Output and Ended of each task; the launcher sends Signal, for one task or for all, and Again for a task
//   that has ended: the node starts it as it did, and a start that fails is an Ended too. A launcher whose own output nobody
//   reads sends Hold, and Go later: in between the node leaves what its tasks write where it is, and sends all else.
//   5. When all have ended the launcher begins again at 2 (a restart) or sends Bye; the node kills what is left, answers with
//   Bye and ends.
// Both send Alive every second. A node that hears nothing for a while (--lost-after), or whose connection is closed without
// Bye, ends its tasks; a launcher takes such a node's tasks for lost.

namespace lockstep::tool {

inline constexpr std::string_view kGreeting = "LOCKSTEP-NODE-1\n";
inline constexpr std::chrono::seconds kAliveEvery(1);
inline constexpr std::chrono::seconds kLostAfter(15);

enum class MessageKind : char {
  kHello = 'H',
  kPrepare = 'P',
  kReady = 'R',
  kStart = 'S',
  kRefused = 'X',
  kOutput = 'O',
  kEnded = 'E',
  kSignal = 'G',
  kAgain = 'T',
  kHold = 'W',
  kGo = 'C',
  kAlive = 'A',
  kBye = 'B',
};

struct Message {
  MessageKind kind = MessageKind::kAlive;
  std::string body = "";

  bool operator==(const Message&) const = default;
};

// A message as bytes: kind, length in 4 bytes (lowest first), body.
std::string to_bytes(const Message& message);

// Bytes, in whatever pieces, back to messages.
class MessageReader {
 public:
  // Longer bodies are refused.
  explicit MessageReader(std::size_t most_bytes) : most_bytes_(most_bytes) {}

  void add(std::string_view bytes) { bytes_.append(bytes); }
  // The next whole one. Throws kDataLoss for what is no message.
  std::optional<Message> next();

 private:
  const std::size_t most_bytes_;
  std::string bytes_;
  std::size_t read_ = 0;  // of bytes_
};

// What a node says of itself. Rank, secret and workers only when it connects by itself.
struct Hello {
  std::string build = "";
  std::string host = "";  // its own name for the machine
  std::int64_t rank = 0;
  std::int64_t nodes = 0;
  std::int64_t workers = 0;
  std::string secret = "";
  std::string address = "";  // where others reach it; empty: where it connects from

  bool operator==(const Hello&) const = default;
};

// What a node is to start. A node that connected by itself has its own command, folder and variables.
struct Work {
  std::vector<PlannedTask> tasks = {};
  std::vector<std::string> command = {};
  std::string folder = "";
  Variables variables = {};
  int attempt = 0;
  std::chrono::milliseconds grace = std::chrono::milliseconds(0);
  std::chrono::milliseconds save_grace = std::chrono::milliseconds(0);
};

struct Report {
  std::size_t task = 0;  // in Work::tasks
  Ending ending = {};
  std::vector<std::string> last_lines = {};  // when the node shows the output itself
};

struct Farewell {
  int exit_code = 0;
  std::string reason = "";
};

// Bodies. The readers throw kDataLoss for what is not one.
std::string pack(const Hello& hello);
std::string pack(const Work& work);
std::string pack(const Report& report);
std::string pack(const Farewell& farewell);
std::string pack_numbers(const std::vector<int>& numbers);
std::string pack_output(std::size_t task, std::string_view bytes);
Hello unpack_hello(const std::string& body);
Work unpack_work(const std::string& body);
Report unpack_report(const std::string& body);
Farewell unpack_farewell(const std::string& body);
std::vector<int> unpack_numbers(const std::string& body);
std::pair<std::size_t, std::string> unpack_output(const std::string& body);

}  // namespace lockstep::tool
