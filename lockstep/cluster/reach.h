#pragma once

#include <chrono>
#include <string>
#include <vector>

#include "lockstep/cluster/lifeline.h"
#include "lockstep/cluster/socket.h"

namespace lockstep {

// Note [reach]
// The coordinator knows who reaches the coordinator. Where two other machines do not reach each other nobody breaks a
// connection: data between them is on its way until the deadline. So every worker holds a port at which nobody listens, and
// whoever has waited for a while looks whether the others' systems still say so. It is asked a few times a second, every
// attempt may take the whole time (a line may be slow or lose packets), and one answer is enough. A process that is stopped
// or busy needs not do anything: its system answers. A peer that never answered is not judged: a firewall may drop this.

// Looks whether peers answer. Never blocks; not thread-safe.
class Reach {
 public:
  // Longer than what the coordinator waits: what it says tells more.
  static constexpr std::chrono::milliseconds kSilence = kLostAfter + std::chrono::milliseconds(500);

  struct Peer {
    std::string name;  // "worker 2"
    Address address;   // of the port that it holds, with a numeric host
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
    std::size_t attempts = 0;                 // since the last answer
    std::vector<internal::Socket> open = {};  // those that have no answer yet
    Clock::time_point first = {};             // of those attempts
    Clock::time_point next = {};

    void forget_attempts();
  };

  // Whether there was an answer at once.
  bool ask(Asked& asked, Clock::time_point now) const;
  static bool has_answer(Asked& asked);
  // Until one of the connections that are being opened has an answer.
  void wait_for_answer(std::chrono::milliseconds longest) const;

  const std::chrono::milliseconds silence_;
  std::vector<Asked> peers_;
  Clock::time_point looked_ = Clock::now();
  Clock::time_point begun_ = Clock::now();
};

}  // namespace lockstep
