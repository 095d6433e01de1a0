#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/cluster/socket.h"

namespace lockstep {

// Note [reach]
// The coordinator knows who reaches the coordinator. Where two other machines do not reach each other nobody breaks a
// connection: data between them is on its way until the deadline. So every machine has a port at which its system answers,
// and whoever has waited for a while looks whether all others still do. A connection is opened a few times a second, each
// stays open for the whole time (a line may be slow or lose packets), and one answer is enough. A process that is stopped
// or busy answers: its system does. A peer that never answered is not judged: a firewall may not know the port.

// The port at which this process's machine answers.
class Doorstep {
 public:
  // `host` tells which kind of addresses the others use.
  explicit Doorstep(const std::string& host);

  int port() const { return listener_.port(); }
  // Lets go of those who have asked. To be called now and then.
  void clear() const;

 private:
  const internal::Socket listener_;
};

// Looks whether peers answer. Never blocks; not thread-safe.
class Reach {
 public:
  static constexpr std::chrono::milliseconds kSilence{3500};

  struct Peer {
    std::string name;  // "worker 2"
    Address address;   // of its doorstep, with a numeric host
  };
  explicit Reach(std::vector<Peer> peers, std::chrono::milliseconds silence = kSilence);

  // Asks all, and waits a little for their answers: whoever has answered once is watched from then on.
  void greet();

  // To be called thirty times in `silence`; asks the peers while `is_wanted`, and in the beginning. The result: who has not
  // answered for so long ("worker 2 (10.0.0.3:4711)"); "": all that ever did.
  std::string look(bool is_wanted);

 private:
  using Clock = std::chrono::steady_clock;
  struct Asked {
    Peer peer;
    bool has_ever_answered = false;
    std::vector<internal::Socket> attempts = {};  // since the last answer
    Clock::time_point first = {};                 // of those attempts
    Clock::time_point next = {};
  };

  void ask(Asked& asked, Clock::time_point now) const;
  static bool has_answer(const Asked& asked);
  // Until one of the connections that are being opened has an answer.
  void wait_for_answer(std::chrono::milliseconds longest) const;

  const std::chrono::milliseconds silence_;
  std::vector<Asked> peers_;
  Clock::time_point looked_ = Clock::now();
  Clock::time_point begun_ = Clock::now();
};

}  // namespace lockstep
