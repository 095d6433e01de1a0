#include "lockstep/replica/recording.h"

#include <ATen/record_function.h>

#include <algorithm>

#include "lockstep/base/error.h"
#include "lockstep/base/str.h"

#include "lockstep/device/stream_fence.h"
#include "lockstep/replica/replica_set.h"

namespace lockstep {

// Looks at LibTorch's operations while a step is recorded. The last one that began while everything was sound is the one that
// was not: CUDA does not say which call it was.
class Recording::Operations {
 public:
  explicit Operations(const DeviceGraph& graph) {
    {
      const std::lock_guard lock(s_mu);
      s_graph = &graph;
      s_last.clear();
    }
    handle_ = at::addGlobalCallback(at::RecordFunctionCallback(&note).scopes({at::RecordScope::FUNCTION}));
  }
  ~Operations() {
    at::removeCallback(handle_);
    const std::lock_guard lock(s_mu);
    s_graph = nullptr;
  }
  Operations(const Operations&) = delete;
  Operations& operator=(const Operations&) = delete;

  static std::string last() {
    const std::lock_guard lock(s_mu);
    return s_last;
  }

 private:
  static std::unique_ptr<at::ObserverContext> note(const at::RecordFunction& operation) {
    const std::lock_guard lock(s_mu);
    if (s_graph != nullptr && s_graph->is_sound()) s_last = operation.name();
    return nullptr;
  }

  // LibTorch takes a plain function. One step is recorded at a time a process; with two, the name may be the other's.
  static inline std::mutex s_mu;
  static inline const DeviceGraph* s_graph = nullptr;  // guarded by s_mu
  static inline std::string s_last;                    // guarded by s_mu

  at::CallbackHandle handle_ = 0;
};

Recording::Recording(ReplicaSet& replicas)
    : replicas_(replicas), graph_(replicas.torch_device(0), replicas.device_generators()) {}

Recording::~Recording() = default;

std::string Recording::last_operation() const {
  const auto last = Operations::last();
  return phase_ == Phase::kAbandoned && !last.empty() ? str("at '", last, "': ") : "";
}

void Recording::barrier(int replica, const char* name) const {
  if (replicas_.size() > 1) replicas_.group(replica).barrier(name);
}

void Recording::set_inputs(std::vector<at::Tensor> from, const std::vector<at::Tensor>& to) {
  from_ = std::move(from);
  to_ = to;
}

void Recording::set_inputs(std::vector<at::Tensor> from) {
  for (std::size_t i = 0; i < from.size(); ++i) graph_.set_input(i, from[i].data_ptr());
  from_ = std::move(from);
}

void Recording::begin(int replica) {
  if (replica == 0) {
    const auto& streams = replicas_.streams();
    phase_ = Phase::kBegun;
    graph_.begin();
    for (std::size_t i = 0; i < to_.size(); ++i) graph_.add_input(to_[i].data_ptr(), from_[i].data_ptr(), from_[i].nbytes());
    operations_ = std::make_unique<Operations>(graph_);
    for (int other = 1; other < replicas_.size(); ++other)
      put_in_order(*streams.of(0), *streams.of(static_cast<std::size_t>(other)));
  }
  barrier(replica, "the beginning of a recorded step");
}

void Recording::end(int replica) {
  barrier(replica, "the end of a recorded step");
  if (replica == 0) {
    const auto& streams = replicas_.streams();
    for (int other = 1; other < replicas_.size(); ++other)
      put_in_order(*streams.of(static_cast<std::size_t>(other)), *streams.of(0));
    operations_.reset();
    if (phase_ != Phase::kBegun)
      throw Error(ErrorCode::kFailedPrecondition, "a run() inside the function has failed, and with it the recording");
    phase_ = Phase::kAbandoned;  // by end() itself, when it throws
    graph_.end();
    phase_ = Phase::kEnded;
  }
  barrier(replica, "a recorded step");
}

void Recording::abandon() noexcept {
  operations_.reset();
  if (phase_ == Phase::kBegun) graph_.abandon();
  phase_ = Phase::kAbandoned;
}

void Recording::take_back() {
  for (auto part = parts_.rbegin(); part != parts_.rend(); ++part)
    if (part->undo) part->undo();
}

void Recording::add(ReplayPart part) {
  const std::lock_guard lock(mu_);
  parts_.push_back(std::move(part));
}

void Recording::add_first(ReplayPart part) {
  const std::lock_guard lock(mu_);
  parts_.insert(parts_.begin(), std::move(part));
}

bool Recording::is_first_use_of(const void* user) {
  const std::lock_guard lock(mu_);
  return users_.insert(user).second;
}

bool Recording::is_current() const {
  return std::ranges::all_of(parts_, [](const ReplayPart& part) { return !part.is_current || part.is_current(); });
}

void Recording::replay() {
  for (const auto& part : parts_)
    if (part.before) part.before();
  graph_.replay();
  for (const auto& part : parts_)
    if (part.after) part.after();
}

}  // namespace lockstep
