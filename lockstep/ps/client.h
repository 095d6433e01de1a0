#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/base/deadline.h"
#include "lockstep/fwd.h"
#include "lockstep/ps/call_target.h"
#include "lockstep/ps/store_messages.h"
#include "lockstep/variable/named_tensors.h"

namespace lockstep::ps {

struct ClientOptions {
  std::chrono::nanoseconds timeout = std::chrono::seconds(60);  // of a call that is given no deadline
  std::chrono::nanoseconds one_try = std::chrono::seconds(10);  // then the request is sent again
  std::size_t piece_bytes = std::size_t{4} << 20;  // what is larger is cut; less than VariableStore::kMostReplyBytes
  int in_flight = 4;                               // pieces to or from one server at a time
};

// The variables of all parameter servers, for a worker or the coordinator. Each call goes to all the servers that it names at
// the same time, and is repeated where a server cannot be reached or the answer is lost, until the deadline: then it ends with
// kUnavailable or kDeadlineExceeded, naming the server. Updates are done once however often they are sent; one that ended so
// may have been done or not. When one server fails, the others do their part. Thread-safe.
class ParameterClient {
 public:
  // `servers` are numbered in this order.
  explicit ParameterClient(const std::vector<std::shared_ptr<RpcChannel>>& servers, const ClientOptions& options = {});
  explicit ParameterClient(const std::vector<std::shared_ptr<CallTarget>>& servers, const ClientOptions& options = {});
  ~ParameterClient();
  ParameterClient(const ParameterClient&) = delete;
  ParameterClient& operator=(const ParameterClient&) = delete;

  std::size_t size() const noexcept;  // servers
  // By which a server knows it. See Note [exactly once].
  std::uint64_t id_at(std::size_t server) const;

  using MaybeDeadline = std::optional<Deadline>;

  struct New {
    std::size_t server = 0;
    Description description = {};
    at::Tensor value = {};  // when it is kGiven; of the described shape and dtype
  };
  // A variable that is there already, as it is described, stays as it is; described otherwise, it is kFailedPrecondition.
  std::vector<CreateReply> create(const std::vector<New>& variables, const MaybeDeadline& deadline = std::nullopt);
  void remove(std::size_t server, const std::vector<std::string>& names, const MaybeDeadline& deadline = std::nullopt);

  struct Read {
    std::size_t server = 0;
    std::string name = "";
    at::Tensor into = {};  // of the variable's shape and dtype
    std::optional<std::uint64_t> newer_than = std::nullopt;
  };
  struct ReadResult {
    std::uint64_t version = 0;  // the lowest, when it came in pieces and was updated meanwhile
    bool is_newer = true;
  };
  std::vector<ReadResult> read(const std::vector<Read>& variables, const MaybeDeadline& deadline = std::nullopt);

  struct ReadRows {
    std::size_t server = 0;
    std::string name = "";
    at::Tensor ids = {};   // int64, of this part of the variable
    at::Tensor into = {};  // [ids, ...]
  };
  // The version of each; the lowest, when they came in pieces and were updated meanwhile.
  std::vector<std::uint64_t> read_rows(const std::vector<ReadRows>& tables, const MaybeDeadline& deadline = std::nullopt);

  struct Update {
    std::size_t server = 0;
    std::string name = "";
    Operation::Kind kind = Operation::Kind::kAssign;
    at::Tensor values = {};                               // not of kSetLearningRate
    at::Tensor ids = {};                                  // int64; of operations on rows
    double number = 0;                                    // of kSetLearningRate
    at::Tensor new_value = {};                            // when defined, gets the variable as it is after all of them
    std::optional<std::uint64_t> made_of = std::nullopt;  // the version of the values that a gradient is of
  };
  // The versions after each. Those of one server are done in their order, and all or none of them.
  std::vector<std::uint64_t> update(const std::vector<Update>& updates, const MaybeDeadline& deadline = std::nullopt);

  // What is sent as an update is, to methods that do other things with it.
  struct Sending {
    const char* method = nullptr;
    const char* stage_method = nullptr;
    std::function<std::string(const Sender&, const std::vector<Operation>&)> fields = nullptr;
  };
  // To every server, also those that have nothing of it. The fields of their replies.
  std::vector<std::string> send(const std::vector<Update>& updates, const Sending& sending,
                                const MaybeDeadline& deadline = std::nullopt);
  // Small requests of other methods, which may arrive more than once; to one server, or to all at once.
  std::string call(std::size_t server, const char* method, const std::string& fields,
                   const MaybeDeadline& deadline = std::nullopt);
  void call_all(const char* method, const std::string& fields, const MaybeDeadline& deadline = std::nullopt);

  std::vector<Described> describe(std::size_t server, const MaybeDeadline& deadline = std::nullopt);
  StoreStatistics statistics(std::size_t server, const MaybeDeadline& deadline = std::nullopt);
  ClientState client_state(std::size_t server, const MaybeDeadline& deadline = std::nullopt);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace lockstep::ps
