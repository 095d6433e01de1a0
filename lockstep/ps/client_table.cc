#include "lockstep/ps/client_table.h"

#include <algorithm>
#include <optional>
#include <shared_mutex>

#include "lockstep/base/error.h"
#include "lockstep/base/str.h"
#include "lockstep/ps/fields.h"

namespace lockstep::ps {

struct ClientTable::Answer {
  bool is_done = false;
  bool is_known = false;  // by record(), before it is done
  std::string bytes = "";
  std::optional<Error> error = std::nullopt;

  std::size_t size() const {
    return sizeof(Answer) + bytes.size() + (error ? std::char_traits<char>::length(error->what()) : 0);
  }
  std::string take() const {
    if (error) throw Error(*error);
    return bytes;
  }
};

namespace {

// As save() writes it.
struct SavedAnswer {
  std::uint64_t sequence = 0;
  bool is_error = false;
  ErrorCode code = ErrorCode::kInternal;
  std::string text = "";  // the answer; of an error, its message
  template <typename Fields>
  void list(Fields& fields) {
    fields(sequence, is_error, code, text);
  }
};
struct SavedClient {
  std::uint64_t client = 0;
  std::uint64_t answered_below = 0;
  std::uint64_t last_done = 0;
  std::vector<SavedAnswer> answers = {};
  template <typename Fields>
  void list(Fields& fields) {
    fields(client, answered_below, last_done, answers);
  }
};

}  // namespace

struct ClientTable::Client {
  std::uint64_t answered_below = 0;
  std::uint64_t last_done = 0;
  std::map<std::uint64_t, std::shared_ptr<Answer>> answers = {};
  std::size_t answer_bytes = 0;
  int busy = 0;  // requests that are being worked on or wait
  Deadline::Clock::time_point last_seen = {};

  void forget_below(std::uint64_t mark) {
    answered_below = std::max(answered_below, mark);
    while (!answers.empty() && answers.begin()->first < answered_below) {
      if (answers.begin()->second->is_done) answer_bytes -= answers.begin()->second->size();
      answers.erase(answers.begin());
    }
  }
};

void ClientTable::make_place() {
  if (clients_.size() < most_clients_) return;
  auto oldest = clients_.end();
  for (auto at = clients_.begin(); at != clients_.end(); ++at)
    if (at->second->busy == 0 && (oldest == clients_.end() || at->second->last_seen < oldest->second->last_seen)) oldest = at;
  if (oldest == clients_.end())
    throw Error(ErrorCode::kUnavailable, str("all ", clients_.size(),
                                             " clients that this server remembers have requests under "
                                             "way; it takes no more"));
  clients_.erase(oldest);
}

std::shared_ptr<ClientTable::Client> ClientTable::find_or_make(const Sender& sender) {
  auto found = clients_.find(sender.client);
  if (found == clients_.end()) {
    make_place();
    found = clients_.emplace(sender.client, std::make_shared<Client>()).first;
  }
  auto& client = *found->second;
  client.last_seen = Deadline::Clock::now();
  client.forget_below(std::min(sender.answered_below, sender.sequence));
  return found->second;
}

std::shared_ptr<ClientTable::Client> ClientTable::client_of(const Sender& sender) {
  auto client = find_or_make(sender);
  if (sender.sequence < client->answered_below)
    throw Error(
        ErrorCode::kFailedPrecondition,
        str("request ", sender.sequence, " came late: its client has no use for answers below ", client->answered_below));
  return client;
}

std::string ClientTable::once(const Sender& sender, const std::function<std::string()>& work, const Deadline& deadline) {
  auto mine = std::make_shared<Answer>();
  const std::shared_lock pass(gate_);
  std::unique_lock lock(mu_);
  const auto client = client_of(sender);
  for (;;) {
    const auto found = client->answers.find(sender.sequence);
    if (found == client->answers.end()) break;
    const auto first = found->second;
    ++client->busy;
    const bool is_done = done_.wait_until(lock, deadline.time(), [&] { return first->is_done; });
    --client->busy;
    if (!is_done)
      throw Error(ErrorCode::kDeadlineExceeded,
                  str("request ", sender.sequence, " is still being worked on, since it first came"));
    if (!first->error || !is_retryable(first->error->code())) return first->take();
    if (sender.sequence < client->answered_below) first->take();
  }
  if (client->answers.size() >= kMostUnanswered || client->answer_bytes >= kMostAnswerBytes)
    throw Error(ErrorCode::kInvalidArgument, str("a client has ", client->answers.size(), " requests (", client->answer_bytes,
                                                 " bytes of answers) that it did not say to have an answer of; at most ",
                                                 kMostUnanswered, " (", kMostAnswerBytes, " bytes) are remembered"));
  client->answers.emplace(sender.sequence, mine);
  ++client->busy;
  lock.unlock();
  std::string bytes;
  std::optional<Error> error;
  try {
    bytes = work();
  } catch (const Error& thrown) {
    error = thrown;
  } catch (const std::exception& thrown) {
    error = Error(ErrorCode::kInternal, thrown.what());
  }
  lock.lock();
  if (!mine->is_known) {
    mine->bytes = std::move(bytes);
    mine->error = std::move(error);
  }
  finish(*client, sender.sequence, mine);
  lock.unlock();
  done_.notify_all();
  return mine->take();
}

void ClientTable::finish(Client& client, std::uint64_t sequence, std::shared_ptr<Answer> answer) {
  answer->is_done = true;
  --client.busy;
  const auto found = client.answers.find(sequence);  // gone: the client has given it up
  const bool is_kept = !answer->error || !is_retryable(answer->error->code());
  if (!answer->error) client.last_done = std::max(client.last_done, sequence);
  if (found == client.answers.end() || found->second != answer) return;
  if (is_kept) client.answer_bytes += answer->size();
  else client.answers.erase(found);
}

void ClientTable::put(Client& client, std::uint64_t sequence, const std::shared_ptr<Answer>& answer) {
  auto& place = client.answers[sequence];
  if (place != nullptr && !place->is_done) {  // once() is at it
    place->is_known = true;
    place->bytes = answer->bytes;
    place->error = answer->error;
    return;
  }
  if (place != nullptr) client.answer_bytes -= place->size();
  answer->is_done = true;
  client.answer_bytes += answer->size();
  if (!answer->error) client.last_done = std::max(client.last_done, sequence);
  place = answer;
}

void ClientTable::record(const Sender& sender, const std::string& answer) {
  const auto made = std::make_shared<Answer>();
  made->bytes = answer;
  const std::lock_guard lock(mu_);
  put(*find_or_make(sender), sender.sequence, made);
}

void ClientTable::record(const Sender& sender, const Error& answer) {
  const auto made = std::make_shared<Answer>();
  made->error = answer;
  const std::lock_guard lock(mu_);
  put(*find_or_make(sender), sender.sequence, made);
}

std::string ClientTable::save() const {
  const std::lock_guard lock(mu_);
  std::vector<SavedClient> all;
  for (const auto& [number, client] : clients_) {
    SavedClient saved{number, client->answered_below, client->last_done, {}};
    for (const auto& [sequence, answer] : client->answers) {
      if (!answer->is_done && !answer->is_known) continue;
      if (answer->error) saved.answers.push_back({sequence, true, answer->error->code(), answer->error->message()});
      else saved.answers.push_back({sequence, false, ErrorCode::kInternal, answer->bytes});
    }
    all.push_back(std::move(saved));
  }
  return to_bytes(all);
}

void ClientTable::load(const std::string& saved) {
  const auto all = from_bytes<std::vector<SavedClient>>(saved);
  const std::lock_guard lock(mu_);
  for (const auto& one : all) {
    auto& client = *find_or_make({one.client, ~0ULL, one.answered_below});
    client.last_done = std::max(client.last_done, one.last_done);
    for (const auto& answer : one.answers) {
      const auto made = std::make_shared<Answer>();
      if (answer.is_error) made->error = Error(answer.code, answer.text);
      else made->bytes = answer.text;
      put(client, answer.sequence, made);
    }
  }
}

bool ClientTable::is_new(const Sender& sender) const {
  const std::lock_guard lock(mu_);
  const auto found = clients_.find(sender.client);
  if (found == clients_.end()) return true;
  const auto& client = *found->second;
  return sender.sequence >= client.answered_below && !client.answers.contains(sender.sequence);
}

void ClientTable::while_quiet(const std::function<void()>& fn) {
  const std::lock_guard alone(gate_);
  fn();
}

ClientState ClientTable::state(std::uint64_t client) const {
  const std::lock_guard lock(mu_);
  const auto found = clients_.find(client);
  if (found == clients_.end()) return {};
  return {true, found->second->last_done, found->second->answered_below, found->second->answers.size()};
}

std::size_t ClientTable::size() const {
  const std::lock_guard lock(mu_);
  return clients_.size();
}

}  // namespace lockstep::ps
