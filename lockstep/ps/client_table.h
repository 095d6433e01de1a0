#pragma once

#include <condition_variable>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>

#include "lockstep/base/deadline.h"
#include "lockstep/base/error.h"
#include "lockstep/ps/store_messages.h"
#include "lockstep/ps/turn_mutex.h"

namespace lockstep::ps {

// Who has asked for what, and what was answered: the store's half of Note [exactly once]. Thread-safe.
class ClientTable {
 public:
  explicit ClientTable(std::size_t most_clients) : most_clients_(most_clients) {}

  // The answer of `work`, or of the first time that this request came. An Error of `work` is its answer, too, unless it is
  // retryable: then nothing has happened. Throws kFailedPrecondition for a request below its client's mark, kInvalidArgument
  // for one client's more unanswered requests than are remembered, kUnavailable when all clients are busy, kDeadlineExceeded
  // when the first is not done in time.
  std::string once(const Sender& sender, const std::function<std::string()>& work, const Deadline& deadline);

  // What a request's `work` has done, before once() has its answer, or without once(): from now on it is remembered, whatever
  // its client's mark is, and saved.
  void record(const Sender& sender, const std::string& answer);
  void record(const Sender& sender, const Error& answer);

  // All that is remembered, as bytes; and the same in a table on another server, beside what it has.
  std::string save() const;
  void load(const std::string& saved);

  // Whether once() would call its `work`.
  bool is_new(const Sender& sender) const;

  // Calls fn while no `work` is being done: those that come wait until it has returned.
  void while_quiet(const std::function<void()>& fn);

  ClientState state(std::uint64_t client) const;
  std::size_t size() const;

  static constexpr std::size_t kMostAnswerBytes = std::size_t{32} << 20;  // of a client

 private:
  struct Answer;
  struct Client;

  std::shared_ptr<Client> find_or_make(const Sender& sender);
  std::shared_ptr<Client> client_of(const Sender& sender);
  void put(Client& client, std::uint64_t sequence, const std::shared_ptr<Answer>& answer);
  void make_place();
  void finish(Client& client, std::uint64_t sequence, std::shared_ptr<Answer> answer);

  // Const after construction.
  const std::size_t most_clients_;

  TurnMutex gate_;  // shared by once(); before mu_

  mutable std::mutex mu_;
  std::condition_variable done_;
  // Guarded by mu_.
  std::map<std::uint64_t, std::shared_ptr<Client>> clients_;
};

}  // namespace lockstep::ps
