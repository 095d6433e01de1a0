#include "lockstep/collective/shm_transport.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "lockstep/base/str.h"
#include "lockstep/collective/chunk.h"

namespace lockstep {
namespace {

constexpr std::size_t kWindow = 1 << 20;
constexpr std::chrono::milliseconds kNap(200);
constexpr std::size_t kSlotSum = 1 << 10;  // sums up to this size go through the slots

std::string text_of(ConstBytes bytes) { return {reinterpret_cast<const char*>(bytes.data()), bytes.size()}; }
ConstBytes bytes_of(const std::string& text) { return std::as_bytes(std::span(text)); }

// The part of `all` that round k carries.
template <typename Span>
Span slice(Span all, std::size_t k, std::size_t step) {
  const auto begin = std::min(all.size(), k * step);
  return all.subspan(begin, std::min(step, all.size() - begin));
}

void copy(Bytes to, const std::byte* from) {
  if (!to.empty()) std::memcpy(to.data(), from, to.size());
}
void copy(std::byte* to, ConstBytes from) {
  if (!from.empty()) std::memcpy(to, from.data(), from.size());
}

}  // namespace

struct ShmTransport::Control {
  struct alignas(64) Slot {
    std::uint32_t bytes;
    std::array<std::byte, kSmall> data;
  };
  alignas(64) ProcessGate gate;
  std::array<Slot, 2> slots;
};

ShmTransport::ShmTransport(const EngineSetup& setup) : rank_(setup.rank), size_(setup.size) {
  static_assert(sizeof(Control) % 64 == 0);
  SharedBlock mine(sizeof(Control) + 2 * kWindow);
  setup.put(str(setup.name, "/shm/", rank_), mine.ticket());
  for (int r = 0; r < size_; ++r) {
    if (r == rank_) blocks_.blocks.push_back(std::move(mine));
    else blocks_.blocks.push_back(SharedBlock::open(setup.get(str(setup.name, "/shm/", r))));
  }
  messages_.resize(static_cast<std::size_t>(size_));
}

ShmTransport::~ShmTransport() = default;

ShmTransport::Control& ShmTransport::control(int rank) const { return *reinterpret_cast<Control*>(blocks_.data(rank)); }

std::byte* ShmTransport::window(int rank, std::uint32_t round) const {
  return blocks_.data(rank) + sizeof(Control) + (round % 2) * kWindow;
}

void ShmTransport::throw_if_aborted() {
  if (!is_aborted_.load(std::memory_order_acquire)) return;
  const std::lock_guard lock(mu_);
  throw *why_;
}

void ShmTransport::abort(const Error& why) noexcept {
  try {
    const std::lock_guard lock(mu_);
    if (!why_) why_.emplace(why);
  } catch (...) {  // no memory for a copy of the error: the wait ends at its next look, by whoever aborts again
    return;
  }
  is_aborted_.store(true, std::memory_order_release);
  for (int r = 0; r < size_; ++r) control(r).gate.disturb();
}

void ShmTransport::wait_for(int rank) {
  ProcessGate& gate = control(rank).gate;
  while (true) {
    const auto seen = gate.value();
    if (static_cast<std::int32_t>(seen - round_) >= 0) return;
    if (gate.wait_briefly(seen)) continue;
    throw_if_aborted();
    gate.doze(seen, kNap);
  }
}

void ShmTransport::meet() {
  throw_if_aborted();
  ++round_;
  control(rank_).gate.advance();
  for (int r = 0; r < size_; ++r)
    if (r != rank_) wait_for(r);
}

std::span<const ConstBytes> ShmTransport::exchange(ConstBytes mine) {
  if (mine.size() > kSmall)
    throw Error(ErrorCode::kInternal, str("shm: a message of ", mine.size(), " bytes does not fit into ", kSmall));
  const auto parity = (round_ + 1) % 2;
  auto& slot = control(rank_).slots[parity];
  slot.bytes = static_cast<std::uint32_t>(mine.size());
  copy(slot.data.data(), mine);
  meet();
  for (int r = 0; r < size_; ++r) {
    const auto& theirs = control(r).slots[parity];
    messages_[static_cast<std::size_t>(r)] = {theirs.data.data(), std::min<std::size_t>(theirs.bytes, kSmall)};
  }
  return messages_;
}

void ShmTransport::all_to_all(std::span<const ConstBytes> send, std::span<const Bytes> receive) {
  std::uint64_t longest = 0;
  for (int r = 0; r < size_; ++r)
    if (r != rank_) longest = std::max<std::uint64_t>(longest, send[static_cast<std::size_t>(r)].size());
  for (const auto& message : exchange(std::as_bytes(std::span(&longest, 1)))) {
    std::uint64_t theirs = 0;
    std::memcpy(&theirs, message.data(), sizeof(theirs));
    longest = std::max(longest, theirs);
  }
  const auto step = kWindow / static_cast<std::size_t>(size_) / 64 * 64;
  for (std::size_t k = 0; k * step < longest; ++k) {
    auto* const mine = window(rank_, round_ + 1);
    for (std::size_t r = 0; r < send.size(); ++r)
      if (static_cast<int>(r) != rank_) copy(mine + r * step, slice(send[r], k, step));
    meet();
    for (std::size_t r = 0; r < receive.size(); ++r)
      if (static_cast<int>(r) != rank_)
        copy(slice(receive[r], k, step), window(static_cast<int>(r), round_) + static_cast<std::size_t>(rank_) * step);
  }
}

void ShmTransport::all_gather(std::span<const Bytes> parts) {
  std::size_t longest = 0;
  for (const auto& part : parts) longest = std::max(longest, part.size());
  for (std::size_t k = 0; k * kWindow < longest; ++k) {
    auto* const mine = window(rank_, round_ + 1);
    copy(mine, slice<ConstBytes>(parts[static_cast<std::size_t>(rank_)], k, kWindow));
    meet();
    for (std::size_t r = 0; r < parts.size(); ++r)
      if (static_cast<int>(r) != rank_) copy(slice(parts[r], k, kWindow), window(static_cast<int>(r), round_));
  }
}

void ShmTransport::broadcast(Bytes data, int root) {
  for (std::size_t k = 0; k * kWindow < data.size(); ++k) {
    if (rank_ == root) copy(window(rank_, round_ + 1), slice<ConstBytes>(data, k, kWindow));
    meet();
    if (rank_ != root) copy(slice(data, k, kWindow), window(root, round_));
  }
}

void ShmTransport::all_reduce(SumType type, Bytes data) {
  const auto element = size_of(type);
  const auto step = kWindow / element * element;
  std::vector<const void*> inputs(static_cast<std::size_t>(size_));
  for (std::size_t k = 0; k * step < data.size(); ++k) {
    const auto part = slice(data, k, step);
    auto* const mine = window(rank_, round_ + 1);
    copy(mine, part);
    meet();
    for (int r = 0; r < size_; ++r) inputs[static_cast<std::size_t>(r)] = window(r, round_);
    void* const output = part.data();
    tree_sum(type, inputs, {&output, 1}, {0, static_cast<std::int64_t>(part.size() / element)});
  }
}

SharedBlocks ShmTransport::share(std::size_t bytes) {
  SharedBlock mine(std::max<std::size_t>(bytes, 64));
  std::vector<std::string> tickets;
  for (const auto& message : exchange(bytes_of(mine.ticket()))) tickets.push_back(text_of(message));
  SharedBlocks all;
  for (int r = 0; r < size_; ++r) {
    if (r == rank_) all.blocks.push_back(std::move(mine));
    else all.blocks.push_back(SharedBlock::open(tickets[static_cast<std::size_t>(r)]));
  }
  meet();
  all.blocks[static_cast<std::size_t>(rank_)].close_ticket();
  return all;
}

void ShmTransport::sum_shared(SumType type, const SharedBlocks& blocks, std::size_t offset, std::int64_t count) {
  std::array<const void*, 64> fixed{};
  std::vector<const void*> many;
  if (size_ > 64) many.resize(static_cast<std::size_t>(size_));
  const std::span<const void*> inputs(size_ > 64 ? many.data() : fixed.data(), static_cast<std::size_t>(size_));
  const auto bytes = static_cast<std::size_t>(count) * size_of(type);
  auto* const own = blocks.data(rank_) + offset;
  if (bytes <= kSlotSum) {
    const auto messages = exchange({own, bytes});
    for (std::size_t r = 0; r < inputs.size(); ++r) inputs[r] = messages[r].data();
    void* const output = own;
    tree_sum(type, inputs, {&output, 1}, {0, count});
    return;
  }
  std::vector<void*> outputs(inputs.size());
  for (int r = 0; r < size_; ++r) {
    outputs[static_cast<std::size_t>(r)] = blocks.data(r) + offset;
    inputs[static_cast<std::size_t>(r)] = outputs[static_cast<std::size_t>(r)];
  }
  const auto [begin, end] = chunk_of(count, static_cast<std::int64_t>(size_of(type)), rank_, size_);
  meet();
  tree_sum(type, inputs, outputs, {begin, end});
  meet();
}

}  // namespace lockstep
