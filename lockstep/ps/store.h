#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "lockstep/ps/rpc.h"
#include "lockstep/ps/store_messages.h"
#include "lockstep/ps/stored_variable.h"
#include "lockstep/ps/update_rule.h"

namespace lockstep::ps {

class ChangeOrder;
struct Change;

struct StoreOptions {
  RuleFactory rules = nullptr;  // null: variables have no optimizers
  std::size_t most_bytes = 0;   // of variables, their optimizers' state, and what waits in pieces; 0: what the machine has
  std::shared_ptr<Memory> memory = nullptr;  // shared with other stores, in place of one of `most_bytes`
  ChangeOrder* order = nullptr;              // of what changes it; must outlive the store. null: variables have their own
  std::size_t most_clients = 4'096;          // that are remembered: more than a job has processes. See Note [exactly once]
  // Where memory is short, what was sent in pieces is forgotten when no more came for so long: it is sent again, then.
  std::chrono::nanoseconds pieces_idle = std::chrono::seconds(5);
  // Counts operations that were done, before who asked is told so. Null: nobody does.
  std::atomic<std::uint64_t>* done = nullptr;
};

class ClientTable;
class Uploads;

// The variables of one parameter server. What a request asks for is looked at before anything is changed; a request that is
// refused has changed nothing, and the store goes on: kNotFound for a variable that is not here, kInvalidArgument for values
// that do not fit it, kOutOfRange for a row that it does not have, and for memory that cannot be had, "out of memory",
// kFailedPrecondition for a variable and kUnavailable for what may come again. Thread-safe.
class VariableStore {
 public:
  explicit VariableStore(const StoreOptions& options = {});
  ~VariableStore();
  VariableStore(const VariableStore&) = delete;
  VariableStore& operator=(const VariableStore&) = delete;

  // What an RpcServer serves: see store_messages.h. The store must outlive it.
  std::map<std::string, Method> methods();

  // By name; null when there is none. In the order of their names.
  std::shared_ptr<StoredVariable> find(const std::string& name) const;
  std::vector<std::shared_ptr<StoredVariable>> variables() const;

  DescribeReply describe() const;
  StoreStatistics statistics() const;
  std::uint64_t names_changed() const;  // how often a variable was made or removed
  std::uint64_t operations() const;     // the sum of all versions
  ClientState client_state(std::uint64_t client) const;

  // Does a change of another store (see Change), and returns the answer, which is remembered as that store's is; of one that
  // fails, the code's name. Changes must be done one at a time, in that store's order. `is_partial`: what concerns variables
  // that are not here is passed over. Throws a retryable error when nothing was done.
  std::string redo(const std::string& method, Incoming& request, bool is_partial);

  // Copies for another store, in their order: only while no change is done.
  static constexpr const char* kCopy = "store.copy";
  static constexpr const char* kCopyClients = "store.copy_clients";
  Change copy_of(const std::shared_ptr<StoredVariable>& variable, const Sender& sender) const;
  std::string copy_of_clients() const;
  // What copy_of() gives, on the other side.
  void take_copy(Incoming& request);
  void take_clients(const std::string& copy);

  // For files: StoredVariable::change() of one of its variables. Where changes have an order it gets a turn, and other stores a
  // copy; then it throws kUnavailable when they have none, whether it was done here or not.
  void change(const std::shared_ptr<StoredVariable>& variable, const StoredVariable::Work& work);
  // For files: a variable whose values are whatever is in its memory, to be filled by StoredVariable::change(), with a new
  // rule. Throws kFailedPrecondition when there is one of its name, and as a request to create it.
  std::shared_ptr<StoredVariable> add(const Description& description);
  // Who has asked for what; ClientTable::while_quiet() keeps all requests away that change something.
  ClientTable& clients();
  // What was sent in pieces, and waits for its request.
  Uploads& uploads();
  const StoreOptions& options() const noexcept;

  // Of the payload of one reply; who wants more reads in pieces.
  static constexpr std::size_t kMostReplyBytes = std::size_t{16} << 20;
  static constexpr std::size_t kMostOperations = 65'536;  // of one request

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace lockstep::ps
