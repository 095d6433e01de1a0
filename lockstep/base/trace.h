#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

// Where the time goes: pieces of work with a name, a beginning and an end, on the thread that did them.
//
//   trace::start();
//   { const trace::Span span("forward", trace::Category::kCompute); ... }
//   const auto recording = trace::stop();
//
// Off, a span costs one relaxed load of an atomic. On, it costs two looks at the clock and a write to memory of its own
// thread: no locks. lockstep/observe/trace_file.h makes a file of it that browsers show.

namespace lockstep::trace {

enum class Category : std::uint8_t { kCompute, kSync, kWait, kInput, kOptimizer, kCheckpoint, kOther };

// "compute", "sync" and so on.
const char* name_of(Category category) noexcept;

// A number that belongs to a span: {"bytes", 4096}. The name must live for ever.
struct Argument {
  const char* name = nullptr;  // null: none
  std::int64_t value = 0;
};

namespace internal {

inline std::atomic<bool> g_is_on{false};

}  // namespace internal

// Whether spans are recorded at the moment.
inline bool is_on() noexcept { return internal::g_is_on.load(std::memory_order_relaxed); }

// This moment, by the clock that all spans are timed with: the steady clock, in nanoseconds.
inline std::int64_t now() noexcept {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

// A copy of `name` that lives for ever, for spans whose names are made. At most a few thousand different ones, then "...".
// Takes a lock: call it only where is_on().
const char* intern(std::string_view name);

// Records a span that is over. Does nothing when tracing is off, or was off when the span began.
void record(const char* name, Category category, std::int64_t begin, Argument first = {}, Argument second = {}) noexcept;

// A piece of work that ends with the object. `name` must live for ever: a literal, or from intern().
class [[nodiscard]] Span {
 public:
  Span(const char* name, Category category, Argument first = {}, Argument second = {}) noexcept {
    if (!is_on()) return;
    name_ = name;
    category_ = category;
    first_ = first;
    second_ = second;
    begin_ = now();
  }
  ~Span() {
    if (name_ != nullptr) record(name_, category_, begin_, first_, second_);
  }
  Span(const Span&) = delete;
  Span& operator=(const Span&) = delete;

 private:
  const char* name_ = nullptr;  // null: tracing was off
  // Set only when it was on.
  Category category_;
  Argument first_;
  Argument second_;
  std::int64_t begin_;
};

// Names this thread in recordings that begin to hear of it from now on. Without: what the system calls it; the process's
// first thread is "main".
void name_thread(std::string name);

struct SpanRecord {
  const char* name = nullptr;
  std::int64_t begin = 0;     // as now()
  std::int64_t duration = 0;  // nanoseconds
  Category category = Category::kOther;
  Argument first = {};
  Argument second = {};
};

struct ThreadSpans {
  std::string name = "";
  std::int64_t id = 0;                 // the system's
  std::vector<SpanRecord> spans = {};  // in the order in which they ended
  std::uint64_t dropped = 0;           // there was no room for
};

struct Recording {
  std::int64_t begin = 0;  // as now()
  std::int64_t end = 0;
  std::vector<ThreadSpans> threads = {};  // by id
};

struct Options {
  // A thread with more spans than that drops the last ones and counts them. A span takes 72 bytes.
  std::size_t spans_per_thread = std::size_t{1} << 16;
};

// Begins a recording, from any thread. Throws kFailedPrecondition when one is under way, kInvalidArgument for no room.
void start(const Options& options = {});

// Ends it and gives what was recorded, by all threads, also those that have ended. Spans that have not ended are not in it.
// Throws kFailedPrecondition when none is under way.
Recording stop();

}  // namespace lockstep::trace
