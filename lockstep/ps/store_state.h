#pragma once

#include <atomic>
#include <map>
#include <shared_mutex>

#include "lockstep/ps/change_order.h"
#include "lockstep/ps/client_table.h"
#include "lockstep/ps/memory.h"
#include "lockstep/ps/rate_counter.h"
#include "lockstep/ps/staleness_histogram.h"
#include "lockstep/ps/store.h"
#include "lockstep/ps/uploads.h"

// The inside of a VariableStore, for its own sources.

namespace lockstep::ps {

using Variables = std::vector<std::shared_ptr<StoredVariable>>;

struct VariableStore::State {
  explicit State(const StoreOptions& given)
      : options(given),
        memory(given.memory != nullptr ? given.memory : std::make_shared<Memory>(given.most_bytes)),
        uploads(*memory, given.pieces_idle),
        clients(given.most_clients) {}

  // An update that was found to be possible, as far as it was looked at.
  struct Prepared {
    Variables variables;  // null: passed over
    std::vector<Given> given;
  };
  enum class Parts { kStaged, kInline, kAll };  // of what an update is given
  // Who changes the store: a client, or another store whose change is done again; then variables that are not here may be
  // passed over.
  enum class Redo { kNo, kWhole, kPartial };

  std::shared_ptr<StoredVariable> at(const std::string& name) const;
  std::shared_ptr<StoredVariable> find(const std::string& name) const;
  CreateReply create(const CreateRequest& request, Incoming& payload, Redo redo = Redo::kNo);
  std::unique_ptr<UpdateRule> make_rule(const Description& description, const at::Tensor& value, MemoryUse use);
  std::shared_ptr<StoredVariable> add(const Description& description);
  // Puts it in its place, whether it is new; otherwise gives the one that was there.
  std::pair<std::shared_ptr<StoredVariable>, bool> keep(const std::shared_ptr<StoredVariable>& made);
  CreateReply is_there(const StoredVariable& old, const Description& wanted) const;
  void remove(const RemoveRequest& request, Redo redo = Redo::kNo);
  void stage(const StageRequest& request, Incoming& payload);
  Prepared look(const UpdateRequest& request, const Incoming& payload, Redo redo = Redo::kNo) const;
  // Reads these, after look().
  void read_given(const UpdateRequest& request, Parts parts, Incoming& payload, Prepared& prepared);
  Given give(const UpdateRequest& request, std::size_t index, Incoming& payload);
  // In its turn, where others may have removed variables since it was prepared.
  void look_again(const UpdateRequest& request, Prepared& prepared) const;
  UpdateReply apply(const UpdateRequest& request, const Prepared& prepared);
  void update(Incoming& request, Outgoing& reply);
  std::string update_in_turn(const UpdateRequest& message, Incoming& request);
  // In its turn, where changes have an order.
  std::string in_turn(const Change& change, const std::function<std::string()>& work);
  // Once, and kept.
  std::string once(const Sender& sender, const std::function<std::string()>& work);
  void read(Incoming& request, Outgoing& reply);
  void read_rows(Incoming& request, Outgoing& reply);
  DescribeReply describe() const;
  StoreStatistics statistics() const;
  Variables all() const;

  // Const after construction.
  const StoreOptions options;

  // Own synchronisation. The memory outlives what counts in it.
  const std::shared_ptr<Memory> memory;
  Uploads uploads;
  ClientTable clients;
  RateCounter updates;
  StalenessHistogram staleness;
  RateCounter reads;
  std::atomic<std::uint64_t> requests{0};
  std::atomic<std::uint64_t> bytes{0};
  std::atomic<std::uint64_t> names_changed{0};

  mutable std::shared_mutex mu;
  // Guarded by mu.
  std::map<std::string, std::shared_ptr<StoredVariable>> variables;
};

// The bytes of a reply, which is sent from here.
class ReplyBytes {
 public:
  explicit ReplyBytes(std::size_t most) : bytes_(std::make_shared_for_overwrite<std::byte[]>(most)) {}  // NOLINT: an array

  std::byte* end() const { return bytes_.get() + used_; }
  void use(std::size_t count) { used_ += count; }
  void send(Outgoing& reply) const { reply.payload.push_back({{bytes_.get(), used_}, bytes_}); }

 private:
  std::shared_ptr<std::byte[]> bytes_;  // NOLINT: an array
  std::size_t used_ = 0;
};

// Adds up what a reply would have. Throws kInvalidArgument when that is too much.
void count_reply(std::size_t& total, std::size_t bytes, const std::string& name);

// Throws kInvalidArgument unless so many bytes are left.
void require_payload(const Incoming& request, std::size_t wanted);

// Calls fn; other exceptions than ours (no memory for something small, LibTorch's) become ours.
std::string with_typed_errors(const std::function<std::string()>& fn);

}  // namespace lockstep::ps
