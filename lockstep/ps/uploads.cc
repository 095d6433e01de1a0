#include "lockstep/ps/uploads.h"

#include <ATen/ATen.h>

#include "lockstep/base/deadline.h"
#include "lockstep/base/error.h"
#include "lockstep/base/str.h"

namespace lockstep::ps {

struct Uploads::Upload {
  // Const after construction.
  at::Tensor bytes;
  // Guarded by the table's mutex.
  Deadline::Clock::time_point last_seen = Deadline::Clock::now();

  std::mutex mu;
  // Guarded by mu.
  Memory::Reservation reserved;
  std::map<std::size_t, std::size_t> missing;  // first byte, and the one after the last
  std::uint64_t passed_in = 0;                 // an epoch
  std::map<std::size_t, std::size_t> passed;   // in it: first byte, bytes

  std::byte* data() const { return static_cast<std::byte*>(bytes.data_ptr()); }
  bool is_missing(std::size_t first, std::size_t end) const {
    auto at = missing.upper_bound(first);
    if (at != missing.begin() && std::prev(at)->second > first) return true;
    return at != missing.end() && at->first < end;
  }
  // A piece is whole or not there at all, as long as clients cut alike each time; otherwise it is simply read again.
  void note(std::size_t first, std::size_t end) {
    auto at = missing.upper_bound(first);
    if (at != missing.begin()) --at;
    while (at != missing.end() && at->first < end) {
      const auto [begin, stop] = *at;
      at = missing.erase(at);
      if (begin < first) missing.emplace(begin, std::min(first, stop));
      if (stop > end) missing.emplace(std::max(begin, end), stop);
    }
  }
};

Uploads::Uploads(Memory& memory, std::chrono::nanoseconds idle) : idle_(idle), memory_(memory) { memory_.add(*this); }
Uploads::~Uploads() { memory_.remove(*this); }

void Uploads::forget(const Sender& sender) {
  const auto now = Deadline::Clock::now();
  for (auto at = uploads_.begin(); at != uploads_.end();) {
    const bool is_done = at->first.client == sender.client && at->first.sequence < sender.answered_below;
    at = is_done || now - at->second->last_seen > kKept ? uploads_.erase(at) : std::next(at);
  }
}

void Uploads::give_back() {
  const auto now = Deadline::Clock::now();
  const std::lock_guard lock(mu_);
  std::erase_if(uploads_, [&](const auto& one) { return now - one.second->last_seen >= idle_; });
}

std::shared_ptr<Uploads::Upload> Uploads::find(const Key& key, const StageRequest& request, const std::string& text) {
  const auto found = uploads_.find(key);
  if (found == uploads_.end()) return nullptr;
  if (found->second->bytes.nbytes() != request.total_bytes)
    throw Error(ErrorCode::kInvalidArgument,
                str(text, ": first of ", found->second->bytes.nbytes(), " bytes, now of ", request.total_bytes));
  found->second->last_seen = Deadline::Clock::now();
  return found->second;
}

std::shared_ptr<Uploads::Upload> Uploads::find_or_make(const StageRequest& request) {
  const auto& sender = request.sender;
  const Key key{sender.client, sender.sequence, request.part};
  const auto text = str("request ", sender.sequence, ", part ", request.part);
  {
    const std::lock_guard lock(mu_);
    if (auto found = find(key, request, text)) return found;
    forget(sender);
    const auto parts =
        std::distance(uploads_.lower_bound({sender.client, 0, 0}), uploads_.upper_bound({sender.client, ~0ULL, ~0U}));
    if (static_cast<std::size_t>(parts) >= kMostParts)
      throw Error(ErrorCode::kUnavailable,
                  str(text, ": its client has ", parts, " parts that wait for their requests; at most ", kMostParts));
  }
  // Without the lock: whoever gives memory back takes it.
  auto made = std::make_shared<Upload>();
  made->reserved = memory_.reserve(request.total_bytes, text, MemoryUse::kPasses);
  made->bytes =
      allocate({static_cast<std::int64_t>(request.total_bytes)}, static_cast<std::int8_t>(at::kByte), text, MemoryUse::kPasses);
  made->missing.emplace(0, request.total_bytes);
  const std::lock_guard lock(mu_);
  if (auto found = find(key, request, text)) return found;  // another of its pieces was quicker
  return uploads_.emplace(key, std::move(made)).first->second;
}

void Uploads::stage(const StageRequest& request, Incoming& payload) {
  constexpr std::uint64_t kMost = std::uint64_t{1} << 48;  // no machine has more
  const auto first = request.first_byte;
  const auto count = payload.left();
  if (request.total_bytes == 0 || request.total_bytes > kMost || count == 0 || first > request.total_bytes ||
      count > request.total_bytes - first)
    throw Error(ErrorCode::kInvalidArgument, str("request ", request.sender.sequence, ", part ", request.part, ": ", count,
                                                 " bytes from ", first, " on of ", request.total_bytes));
  const auto upload = find_or_make(request);
  const std::lock_guard lock(upload->mu);
  if (!upload->is_missing(first, first + count)) return;
  payload.read({upload->data() + first, count});
  upload->note(first, first + count);
}

void Uploads::note_passed(const StageRequest& request, std::size_t bytes, std::uint64_t epoch) {
  std::shared_ptr<Upload> upload;
  {
    const std::lock_guard lock(mu_);
    const auto found = uploads_.find({request.sender.client, request.sender.sequence, request.part});
    if (found == uploads_.end()) return;
    upload = found->second;
  }
  const std::lock_guard lock(upload->mu);
  if (upload->passed_in != epoch) upload->passed.clear();
  upload->passed_in = epoch;
  upload->passed[request.first_byte] = bytes;
}

Uploads::Whole Uploads::take(const Sender& sender, std::uint32_t part, std::size_t bytes) {
  const Key key{sender.client, sender.sequence, part};
  const auto text = str("request ", sender.sequence, ", part ", part);
  std::shared_ptr<Upload> upload;
  std::uint64_t passed_in = 0;
  {
    const std::lock_guard lock(mu_);
    const auto found = uploads_.find(key);
    if (found == uploads_.end()) throw Error(ErrorCode::kAborted, str(text, " is not here; it must be sent before, again"));
    upload = found->second;
    if (upload->bytes.nbytes() != bytes)
      throw Error(ErrorCode::kInvalidArgument, str(text, ": ", upload->bytes.nbytes(), " bytes were sent, it needs ", bytes));
    const std::lock_guard lock_upload(upload->mu);  // nobody reads a piece into it any more
    if (!upload->missing.empty())
      throw Error(ErrorCode::kAborted, str(text, ": bytes from ", upload->missing.begin()->first,
                                           " on are not here; they must be "
                                           "sent before, again"));
    std::size_t passed = 0;
    for (const auto& [first, count] : upload->passed) passed += count;
    if (passed == bytes) passed_in = upload->passed_in;
    uploads_.erase(found);
  }
  return {upload->bytes, std::move(upload->reserved), passed_in};
}

std::size_t Uploads::bytes() const {
  const std::lock_guard lock(mu_);
  std::size_t all = 0;
  for (const auto& [key, upload] : uploads_) all += upload->bytes.nbytes();
  return all;
}

}  // namespace lockstep::ps
