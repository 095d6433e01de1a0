#pragma once

#include <cstdint>
#include <functional>
#include <set>
#include <string>
#include <vector>

#include "lockstep/ps/message.h"
#include "lockstep/ps/store_messages.h"

namespace lockstep::ps {

// A request that changes a store, in a form in which another store can do it again: VariableStore::redo().
struct Change {
  struct Part {
    std::uint32_t index = 0;  // of its operation
    std::vector<Piece> pieces = {};
    std::uint64_t passed_in = 0;  // what ChangeOrder::pass_on() returned for all of it
  };

  std::string method = "";
  Sender sender = {};
  std::vector<Part> parts = {};  // what it was given, by index
  // The payload as it came, when that is sent on as it is: `parts` are those that were staged before it, then.
  std::vector<Piece> payload = {};
  // Throws what is wrong with the payload. Who has all variables finds that out by itself; for others it is called before.
  std::function<void()> check = nullptr;
  // The request's fields when these parts are staged before it; the others are its payload.
  std::function<std::string(const std::set<std::uint32_t>& staged)> fields = nullptr;
};

// Gives the changes of a store one order, and sees to it that they are not lost: the store of a replicated group has one. See
// Note [replication]. Thread-safe.
class ChangeOrder {
 public:
  virtual ~ChangeOrder() = default;

  // Calls `apply` while no other change of the store is done, and returns what it returns. Throws kUnavailable when its turn
  // does not come, and nothing was done.
  virtual std::string in_turn(const Change& change, const std::function<std::string()>& apply) = 0;

  // Calls `apply` while no other change of the store is done, too; it returns the change that gives another store the same,
  // which is known only then: a copy. Returns when that is kept. Throws kUnavailable when it is not: it may be asked again.
  virtual void copied_in_turn(const std::function<Change()>& apply) = 0;

  // A piece of a change that will come. Sends it where changes are kept, calls `meanwhile`, and waits until it is there: then
  // returns in which view (Note [replication]), otherwise 0, and it is sent with its change. Throws what `meanwhile` throws.
  virtual std::uint64_t pass_on(const StageRequest& piece, const std::vector<Piece>& bytes,
                                const std::function<void()>& meanwhile) = 0;

  // Who did a change just now, or who asks for it again.
  enum class Asks { kFirst, kAgain };
  // Returns when nothing that was done so far can be lost with one server. Throws kUnavailable: it may be asked again.
  virtual void wait_until_kept(Asks asks) = 0;
};

}  // namespace lockstep::ps
