#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "lockstep/ps/client.h"
#include "lockstep/ps/partitioner.h"
#include "lockstep/ps/value_codec.h"
#include "lockstep/variable/variable_host.h"

namespace lockstep::ps {

// Where a variable is: what another task needs to reach it.
struct VariableAddress {
  struct Part {
    std::string name;  // on its server
    std::uint32_t server = 0;
    std::int64_t rows = 0;
    template <typename Fields>
    void list(Fields& fields) {
      fields(name, server, rows);
    }
  };
  std::string name;
  std::vector<std::int64_t> sizes;
  at::ScalarType dtype = at::kFloat;
  bool is_trainable = true;
  VariableAggregation aggregation = VariableAggregation::kNone;
  std::vector<Part> parts;     // one: it is whole
  bool is_per_worker = false;  // there is how each worker's copy begins
  template <typename Fields>
  void list(Fields& fields) {
    fields(name, sizes, dtype, is_trainable, aggregation, parts, is_per_worker);
  }
};

// What all kinds of remote variables of a job have.
class Addressed {
 public:
  virtual ~Addressed() = default;
  virtual const VariableAddress& address() const noexcept = 0;
};

// The variables of a job on its parameter servers. Each new one, or each of its parts, goes to the next server. Thread-safe.
class ServerVariables : public VariableHost, public std::enable_shared_from_this<ServerVariables> {
 public:
  // `prefix`: of the names of those that are made here; a coordinator's have none.
  explicit ServerVariables(std::shared_ptr<ParameterClient> client, Partitioner partitioner = nullptr, std::string prefix = "");

  std::shared_ptr<RemoteVariable> create(const RemoteDescription& description, const PartInitializer& initial,
                                         const Variable* beside) override;
  bool is_on_coordinator() const noexcept override { return prefix_.empty(); }
  std::vector<std::string> worker_devices() const override { return worker_devices_; }
  void set_worker_devices(std::vector<std::string> names) { worker_devices_ = std::move(names); }  // before the first use

  struct Creation {
    std::string rule = "";                          // of its optimizer: OptimizerSpec::to_text()
    std::optional<Initial> initial = std::nullopt;  // made on the servers, in place of what `part` gives
    PartInitializer part = nullptr;
    std::optional<std::uint32_t> server = std::nullopt;  // there, and whole
  };
  VariableAddress create(const RemoteDescription& description, const Creation& creation);
  // A handle of a variable that is there, for these replicas. Of a per-worker one: of this worker's copy.
  Variable find(const VariableAddress& address, std::shared_ptr<ReplicaSet> replicas);

  using Tensors = std::vector<std::pair<Variable, at::Tensor>>;
  // All in one request to each server: gradients, dense or sparse, that the variables' optimizers use there, and values that
  // replace theirs.
  void push(const Tensors& gradients, const Tensors& values = {});
  // What push() sends.
  std::vector<ParameterClient::Update> updates_of(const Tensors& gradients, const Tensors& values) const;
  // Into contiguous tensors of the variables' shapes, on the CPU.
  void pull(const Tensors& values) const;
  void set_learning_rate(const std::vector<Variable>& variables, double rate);

  ParameterClient& client() const noexcept { return *client_; }

  // Where copies of per-worker variables are: on the coordinator all workers, on a worker itself. Set before the first.
  struct Copies {
    std::shared_ptr<ParameterClient> client = nullptr;
    std::vector<std::string> devices = {};
  };
  const Copies& copies() const noexcept { return copies_; }
  void set_copies(Copies copies) { copies_ = std::move(copies); }

  // Whose variables those are that travel to this process; null: nobody's. Set before the first does.
  std::shared_ptr<ReplicaSet> replicas() const { return replicas_.lock(); }
  void set_replicas(const std::shared_ptr<ReplicaSet>& replicas) { replicas_ = replicas; }

 private:
  std::string unused_name(const std::string& name);
  void begin_copy(const VariableAddress& address);

  // Const after construction.
  const std::shared_ptr<ParameterClient> client_;
  const Partitioner partitioner_;
  const std::string prefix_;
  std::weak_ptr<ReplicaSet> replicas_;
  Copies copies_;
  std::vector<std::string> worker_devices_;  // of a coordinator

  // Guarded by mu_.
  std::mutex mu_;
  std::uint32_t next_server_ = 0;
  std::map<std::string, int> names_;  // how often each was asked for
  std::set<std::string> begun_;       // copies of this worker's
};

// The whole variable's name on the servers: of its first part, without "/part_0" where there are more.
std::string stored_name(const VariableAddress& address);

// Null for a variable that lives in this process.
const VariableAddress* address_of(const Variable& variable);

// While one is alive on a thread, its first read of each remote variable is what all later ones give, whatever is written
// meanwhile. Rows come from it, too, once the whole was read; until then each rows() asks the servers. Shards are variables of
// their own. Throws kInvalidArgument inside another.
class CachedReads {
 public:
  CachedReads();
  ~CachedReads();
  CachedReads(const CachedReads&) = delete;
  CachedReads& operator=(const CachedReads&) = delete;
};

// A variable on parameter servers travels by its address.
template <>
struct ValueCodec<Variable> {
  static void encode(const Variable& variable, Encoder& encoder);
  static Variable decode(Decoder& decoder);
};

}  // namespace lockstep::ps
