#include "lockstep/ps/group_target.h"

#include <algorithm>
#include <atomic>
#include <map>
#include <mutex>

#include "lockstep/base/error.h"
#include "lockstep/base/str.h"
#include "lockstep/ps/fields.h"
#include "lockstep/ps/group_view.h"
#include "lockstep/ps/task_error.h"

namespace lockstep::ps {
namespace {

constexpr std::chrono::milliseconds kAsked{1000};  // a server answers at once, or does not

// What a client knows of all groups. Thread-safe.
class KnownViews {
 public:
  KnownViews(std::vector<std::shared_ptr<CallTarget>> servers, Replication replication)
      : servers_(std::move(servers)), replication_(replication), is_told_(replication != Replication::kAsk) {}

  const std::vector<std::shared_ptr<CallTarget>>& servers() const noexcept { return servers_; }

  // Throws kUnavailable while nobody knows.
  Replication replication() {
    if (const auto known = replication_.load(std::memory_order_acquire); known != Replication::kAsk) return known;
    const std::lock_guard asking(asking_);
    if (replication_ == Replication::kAsk) ask();
    if (replication_ == Replication::kAsk)
      throw Error(ErrorCode::kUnavailable, "no parameter server has said whether variables are replicated");
    return replication_;
  }

  // The newest view; newer than `doubted` if one is to be had.
  GroupView view(std::uint32_t group, std::uint64_t doubted) {
    auto known = find(group);
    if (known.epoch > doubted) return known;
    {
      const std::lock_guard asking(asking_);
      known = find(group);
      if (known.epoch > doubted) return known;  // another one has asked meanwhile
      ask();
    }
    known = find(group);
    if (known.epoch == 0)
      throw Error(ErrorCode::kUnavailable, str("no parameter server knows who has the variables of ", servers_[group]->name()));
    return known;
  }

  // Without replication: whether a server has begun anew since the coordinator began. It tells all of them what replication is.
  bool has_begun_anew(std::size_t server) {
    if (!is_told_) return false;
    try {
      const auto reply = servers_[server]->start(methods::kGroupStatus, {}, Deadline::after(kAsked))->wait();
      return from_bytes<ServerStatus>(reply->fields()).replication == 0;
    } catch (const Error&) {
      return false;
    }
  }

 private:
  GroupView find(std::uint32_t group) const {
    const std::lock_guard lock(mu_);
    const auto found = views_.find(group);
    return found == views_.end() ? GroupView() : found->second;
  }

  // Asks all servers. Called with asking_ held: one asks, the others wait for what it hears.
  void ask() {
    std::vector<std::unique_ptr<CallTarget::Pending>> calls;
    for (const auto& server : servers_) {
      try {
        calls.push_back(server->start(methods::kGroupStatus, {}, Deadline::after(kAsked)));
      } catch (const Error&) {
        calls.push_back(nullptr);
      }
    }
    std::size_t without_word = 0;
    for (const auto& call : calls) {
      try {
        if (call == nullptr) continue;
        const auto status = from_bytes<ServerStatus>(call->wait()->fields());
        if (status.replication == 0) ++without_word;
        else is_told_ = true;
        if (status.replication != 0 && replication_ == Replication::kAsk)
          replication_ = status.replication == 1 ? Replication::kOff : Replication::kOn;
        const std::lock_guard lock(mu_);
        for (const auto& group : status.groups)
          if (auto& mine = views_[group.view.group]; group.view.epoch > mine.epoch) mine = group.view;
      } catch (const Error&) {
        // Others know.
      }
    }
    // Servers of a job without a coordinator that says it: of a test, or one's own.
    if (replication_ == Replication::kAsk && without_word == servers_.size()) replication_ = Replication::kOff;
  }

  // Const after construction.
  const std::vector<std::shared_ptr<CallTarget>> servers_;

  // Own synchronisation.
  std::atomic<Replication> replication_;
  std::atomic<bool> is_told_;  // by a coordinator, to all servers that were there
  std::mutex asking_;          // held while servers are asked, a second at most; before mu_

  mutable std::mutex mu_;
  // Guarded by mu_.
  std::map<std::uint32_t, GroupView> views_;
};

class GroupTarget final : public CallTarget {
 public:
  GroupTarget(std::shared_ptr<KnownViews> views, std::uint32_t group) : views_(std::move(views)), group_(group) {}

  const std::string& name() const noexcept override { return views_->servers()[group_]->name(); }

  std::unique_ptr<Pending> start(const std::string& method, const Outgoing& request, const Deadline& deadline) override {
    if (views_->replication() == Replication::kOff)
      return std::make_unique<PlainCall>(views_->servers()[group_]->start(method, request, deadline), *this);
    const auto doubted = doubted_.exchange(0);
    const auto view = views_->view(group_, doubted);
    if (view.is_lost()) throw Error(ErrorCode::kDataLoss, view.lost);
    auto& server = *views_->servers()[view.primary];
    Outgoing message{to_bytes(GroupCall{group_, view.epoch, method, request.fields}), request.payload};
    try {
      return std::make_unique<Call>(server.start(methods::kGroupCall, message, deadline), *this, view.epoch);
    } catch (const Error&) {
      doubt(view.epoch);
      throw;
    }
  }

 private:
  // To a server that alone has what is asked for.
  struct PlainCall final : Pending {
    PlainCall(std::unique_ptr<Pending> started, GroupTarget& target) : call(std::move(started)), group(target) {}
    std::unique_ptr<Incoming> wait() override {
      try {
        return call->wait();
      } catch (const Error& error) {
        if (error.code() == ErrorCode::kNotFound && group.views_->has_begun_anew(group.group_)) throw group.lost(error);
        throw;
      }
    }
    std::unique_ptr<Pending> call;
    GroupTarget& group;
  };

  struct Call final : Pending {
    Call(std::unique_ptr<Pending> started, GroupTarget& target, std::uint64_t in_epoch)
        : call(std::move(started)), group(target), epoch(in_epoch) {}
    std::unique_ptr<Incoming> wait() override {
      try {
        return call->wait();
      } catch (const Error& error) {
        if (is_retryable(error.code())) group.doubt(epoch);
        throw;
      }
    }
    std::unique_ptr<Pending> call;
    GroupTarget& group;
    std::uint64_t epoch;
  };

  PsUnavailable lost(const Error& error) const {
    return PsUnavailable(name(), str(name(), " was started again, and has lost variables that it had (", error.message(),
                                     "); start the coordinator again, make the variables, and restore a checkpoint. With "
                                     "ParameterServerOptions::replication = 2 or ServerOptions::snapshot_folder they survive"));
  }

  void doubt(std::uint64_t epoch) {
    auto known = doubted_.load();
    while (known < epoch && !doubted_.compare_exchange_weak(known, epoch)) {
    }
  }

  // Const after construction.
  const std::shared_ptr<KnownViews> views_;
  const std::uint32_t group_;
  // Own synchronisation.
  std::atomic<std::uint64_t> doubted_{0};  // a view in which a call has failed
};

}  // namespace

std::vector<std::shared_ptr<CallTarget>> targets_of_groups(const std::vector<std::shared_ptr<CallTarget>>& servers,
                                                           Replication replication) {
  const auto views = std::make_shared<KnownViews>(servers, replication);
  std::vector<std::shared_ptr<CallTarget>> groups;
  for (std::uint32_t group = 0; group < servers.size(); ++group) groups.push_back(std::make_shared<GroupTarget>(views, group));
  return groups;
}

}  // namespace lockstep::ps
