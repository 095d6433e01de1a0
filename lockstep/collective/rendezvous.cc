#include "lockstep/collective/rendezvous.h"

#include <cstring>
#include <utility>

#include "lockstep/base/log.h"
#include "lockstep/base/str.h"
#include "lockstep/base/trace.h"

namespace lockstep {
namespace {

thread_local std::chrono::nanoseconds t_timeout(0);

// The name of a meeting point, for a trace: it may not live for ever.
const char* traced(const char* name) { return trace::is_on() ? trace::intern(name) : name; }

void wait_watched(const char* name, Gate& gate, std::uint32_t generation) {
  const trace::Span span(traced(name), trace::Category::kWait);
  while (!gate.wait(generation, Deadline::after(kWarnEvery))) {
  }
}

}  // namespace

Rendezvous::TimeoutScope::TimeoutScope(std::chrono::nanoseconds timeout) noexcept : previous_(t_timeout) {
  if (timeout.count() > 0) t_timeout = timeout;
}
Rendezvous::TimeoutScope::~TimeoutScope() { t_timeout = previous_; }
std::chrono::nanoseconds Rendezvous::TimeoutScope::current() noexcept { return t_timeout; }

Rendezvous::Rendezvous(int size, std::string who)
    : size_(size),
      who_(std::move(who)),
      places_(std::make_unique<Place[]>(static_cast<std::size_t>(size))),
      timeout_(std::chrono::nanoseconds(kDefaultTimeout).count()) {}

void Rendezvous::meet(int rank, const char* name, Patience patience) {
  // Read before the check: a failure that comes between the two then ends the wait below.
  const auto generation = generation_.value();
  if (is_broken()) throw_broken(rank);
  Place& place = places_[static_cast<std::size_t>(rank)];
  place.point.store(name, std::memory_order_relaxed);
  // Sequentially consistent with leave(): of an arrival and a departure at least one sees the other.
  const int arrived = arrived_.fetch_add(1, std::memory_order_seq_cst) + 1;
  // A departure after everybody has passed this point is none of its business.
  if (left_.load(std::memory_order_seq_cst) > 0 && generation_.value() == generation) fail_on_mismatch();
  if (arrived == size_) pass_all();
  else if (patience == Patience::kOwn) wait_for_others(rank, generation);
  else wait_watched(name, generation_, generation);
  if (is_broken()) throw_broken(rank);
}

void Rendezvous::pass_all() {
  const char* expected = places_[0].point.load(std::memory_order_relaxed);
  bool is_equal = true;
  for (int rank = 1; rank < size_; ++rank) {
    const char* point = places_[static_cast<std::size_t>(rank)].point.load(std::memory_order_relaxed);
    is_equal = is_equal && (point == expected || std::strcmp(point, expected) == 0);
  }
  if (!is_equal) {
    break_with(ErrorCode::kFailedPrecondition, str("the ", who_, "s came to different meeting points: ", describe_places(),
                                                   "; every ", who_, " must make the same calls in the same order"));
    return;
  }
  for (int rank = 0; rank < size_; ++rank) {
    places_[static_cast<std::size_t>(rank)].point.store(nullptr, std::memory_order_relaxed);
    places_[static_cast<std::size_t>(rank)].passed.fetch_add(1, std::memory_order_relaxed);
  }
  arrived_.store(0, std::memory_order_relaxed);
  generation_.advance();
}

void Rendezvous::wait_for_others(int rank, std::uint32_t generation) {
  if (generation_.wait_briefly(generation)) return;
  const auto start = Deadline::Clock::now();
  const auto timeout = t_timeout.count() > 0 ? t_timeout : std::chrono::nanoseconds(timeout_.load());
  const char* name = places_[static_cast<std::size_t>(rank)].point.load(std::memory_order_relaxed);
  const trace::Span span(traced(name == nullptr ? "a meeting point" : name), trace::Category::kWait);
  while (true) {
    const auto waited = Deadline::Clock::now() - start;
    const auto next = std::min<std::chrono::nanoseconds>(kWarnEvery, timeout - waited);
    if (generation_.wait(generation, Deadline::after(next))) return;
    const double seconds = std::chrono::duration<double>(Deadline::Clock::now() - start).count();
    const auto message = str(who_, " ", rank, " has waited ", seconds, " s at '", name, "' for ", missing(name));
    if (Deadline::Clock::now() - start >= timeout) {
      break_with(ErrorCode::kDeadlineExceeded, str(message, "; CommunicationOptions::timeout_seconds sets the limit"));
      return;
    }
    log_warning(message);
  }
}

void Rendezvous::leave(int rank) noexcept {
  places_[static_cast<std::size_t>(rank)].has_left.store(true, std::memory_order_relaxed);
  left_.fetch_add(1, std::memory_order_seq_cst);
  if (arrived_.load(std::memory_order_seq_cst) > 0 && !is_broken()) try {
      fail_on_mismatch();
    } catch (...) {  // no memory to say who is where
      break_with(ErrorCode::kFailedPrecondition, {});
    }
}

void Rendezvous::fail_on_mismatch() {
  break_with(ErrorCode::kFailedPrecondition,
             str("the ", who_, "s made a different number of calls that all must make: ", describe_places(), "; every ", who_,
                 " must call merge_call, all_reduce, all_gather and optimizer.step() equally often"));
}

void Rendezvous::abort(const std::string& reason) noexcept { break_with(ErrorCode::kAborted, reason); }

void Rendezvous::break_with(ErrorCode code, const std::string& message) noexcept {
  try {
    const std::lock_guard lock(mu_);
    if (!failure_) failure_.emplace(code, message);
  } catch (...) {  // no memory for the text: throw_broken() has one
  }
  broken_.store(true, std::memory_order_release);
  generation_.advance();
}

void Rendezvous::throw_broken(int rank) {
  places_[static_cast<std::size_t>(rank)].point.store(nullptr, std::memory_order_relaxed);
  const std::lock_guard lock(mu_);
  if (!failure_) throw Error(ErrorCode::kAborted, "another participant failed");
  throw *failure_;
}

void Rendezvous::reset() noexcept {
  const std::lock_guard lock(mu_);
  failure_.reset();
  arrived_.store(0);
  left_.store(0);
  for (int rank = 0; rank < size_; ++rank) {
    Place& place = places_[static_cast<std::size_t>(rank)];
    place.point.store(nullptr);
    place.passed.store(0);
    place.has_left.store(false);
  }
  broken_.store(false, std::memory_order_release);
}

std::string Rendezvous::describe_places() const {
  std::vector<std::string> texts;
  for (int rank = 0; rank < size_; ++rank) {
    const Place& place = places_[static_cast<std::size_t>(rank)];
    const char* point = place.point.load(std::memory_order_relaxed);
    const auto passed = place.passed.load(std::memory_order_relaxed);
    const auto where = place.has_left.load() ? str("returned after ", passed)
                       : point != nullptr    ? str("is at '", point, "' after ", passed)
                                             : str("is running after ", passed);
    texts.push_back(str(who_, " ", rank, " ", where, " meeting point", passed == 1 ? "" : "s"));
  }
  return join(", ", texts);
}

std::string Rendezvous::missing(const char* name) const {
  std::vector<std::string> texts;
  for (int rank = 0; rank < size_; ++rank)
    if (places_[static_cast<std::size_t>(rank)].point.load(std::memory_order_relaxed) == nullptr)
      texts.push_back(str(who_, " ", rank));
  return texts.empty() ? str("nobody (all have come to '", name, "')") : join(", ", texts);
}

}  // namespace lockstep
