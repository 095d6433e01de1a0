#include "lockstep/base/trace.h"

#include <pthread.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <memory>
#include <mutex>
#include <set>
#include <utility>

#include "lockstep/base/error.h"

namespace lockstep::trace {
namespace {

// Note [trace buffers]
// 1. A thread's spans of one recording are in a list of chunks that only this thread writes to. It writes a span, then counts
//    it (release); who reads looks at the count first (acquire) and never beyond it.
// 2. A thread makes its buffer with its first span in a recording, and enters it in the recording's list: the only lock.
// 3. stop() takes the list. A thread that is just writing a span goes on doing so in a buffer that nobody else reads any more,
//    and finds at its next span that the recording is over, by the recording's number.
constexpr std::size_t kChunk = 1024;

struct Chunk {
  std::array<SpanRecord, kChunk> spans;
  std::atomic<std::size_t> count{0};
  std::atomic<Chunk*> next{nullptr};
};

class Buffer {
 public:
  Buffer(std::uint64_t recording, std::size_t most, ThreadSpans thread)
      : recording_(recording),
        most_(most),
        thread_(std::move(thread)),
        first_(std::make_unique<Chunk>()),
        last_(first_.get()) {}
  ~Buffer() {
    for (Chunk* chunk = first_->next.load(); chunk != nullptr;) delete std::exchange(chunk, chunk->next.load());
  }
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;

  std::uint64_t recording() const { return recording_; }

  void add(const SpanRecord& span) noexcept {
    auto at = last_->count.load(std::memory_order_relaxed);
    if (written_ == most_ || (at == kChunk && !add_chunk())) {
      dropped_.fetch_add(1, std::memory_order_relaxed);
      return;
    }
    at = last_->count.load(std::memory_order_relaxed);
    last_->spans[at] = span;
    last_->count.store(at + 1, std::memory_order_release);
    ++written_;
  }

  ThreadSpans spans() const {
    ThreadSpans all = thread_;
    for (const Chunk* chunk = first_.get(); chunk != nullptr; chunk = chunk->next.load(std::memory_order_acquire))
      all.spans.insert(all.spans.end(), chunk->spans.begin(),
                       chunk->spans.begin() + static_cast<std::ptrdiff_t>(chunk->count.load(std::memory_order_acquire)));
    all.dropped = dropped_.load(std::memory_order_relaxed);
    return all;
  }

 private:
  bool add_chunk() noexcept {
    auto* chunk = new (std::nothrow) Chunk;
    if (chunk == nullptr) return false;
    last_->next.store(chunk, std::memory_order_release);
    last_ = chunk;
    return true;
  }

  // Const after construction.
  const std::uint64_t recording_;
  const std::size_t most_;
  const ThreadSpans thread_;
  const std::unique_ptr<Chunk> first_;

  // Used only by the thread that writes.
  Chunk* last_;
  std::size_t written_ = 0;

  // Own synchronisation.
  std::atomic<std::uint64_t> dropped_{0};
};

struct State {
  // Own synchronisation.
  std::atomic<std::uint64_t> recording{0};  // counted from 1
  std::atomic<std::int64_t> begin{0};

  // Guarded by mu.
  std::mutex mu;
  std::size_t spans_per_thread = 0;
  std::vector<std::shared_ptr<Buffer>> buffers;
  std::set<std::string, std::less<>> names;
};

// Never destroyed: threads may record while the process ends.
State& state() {
  static auto* const the_state = new State;
  return *the_state;
}

thread_local std::shared_ptr<Buffer> t_buffer;
thread_local std::string t_name;

ThreadSpans this_thread() {
  ThreadSpans thread;
  thread.id = ::gettid();
  thread.name = t_name;
  if (!thread.name.empty()) return thread;
  std::array<char, 32> name{};
  pthread_getname_np(pthread_self(), name.data(), name.size());
  thread.name = thread.id == ::getpid() ? "main" : name.data();
  return thread;
}

// Null: the recording is over, or there is no memory.
Buffer* buffer_of(std::uint64_t recording) noexcept try {
  if (t_buffer != nullptr && t_buffer->recording() == recording) return t_buffer.get();
  auto thread = this_thread();
  State& all = state();
  const std::lock_guard lock(all.mu);
  if (!is_on() || all.recording.load(std::memory_order_relaxed) != recording) return nullptr;
  t_buffer = std::make_shared<Buffer>(recording, all.spans_per_thread, std::move(thread));
  all.buffers.push_back(t_buffer);
  return t_buffer.get();
} catch (...) {
  return nullptr;
}

}  // namespace

const char* name_of(Category category) noexcept {
  constexpr std::array kNames = {"compute", "sync", "wait", "input", "optimizer", "checkpoint", "other"};
  return kNames[static_cast<std::size_t>(category)];
}

const char* intern(std::string_view name) {
  constexpr std::size_t kMost = 4096;
  State& all = state();
  const std::lock_guard lock(all.mu);
  if (const auto found = all.names.find(name); found != all.names.end()) return found->c_str();
  return all.names.size() < kMost ? all.names.emplace(name).first->c_str() : "...";
}

void name_thread(std::string name) { t_name = std::move(name); }

void record(const char* name, Category category, std::int64_t begin, Argument first, Argument second) noexcept {
  if (!is_on()) return;
  const auto end = now();
  State& all = state();
  if (begin < all.begin.load(std::memory_order_relaxed)) return;
  if (Buffer* buffer = buffer_of(all.recording.load(std::memory_order_relaxed)))
    buffer->add({name, begin, end - begin, category, first, second});
}

void start(const Options& options) {
  if (options.spans_per_thread == 0)
    throw Error(ErrorCode::kInvalidArgument, "trace::start: spans_per_thread is 0; it must be at least 1");
  State& all = state();
  const std::lock_guard lock(all.mu);
  if (is_on())
    throw Error(ErrorCode::kFailedPrecondition,
                "trace::start: a recording is under way in this process; there is one at a time: stop it first");
  all.spans_per_thread = options.spans_per_thread;
  all.recording.fetch_add(1);
  all.begin.store(now());
  internal::g_is_on.store(true);
}

Recording stop() {
  State& all = state();
  std::vector<std::shared_ptr<Buffer>> buffers;
  Recording recording;
  {
    const std::lock_guard lock(all.mu);
    if (!is_on()) throw Error(ErrorCode::kFailedPrecondition, "trace::stop: there is no recording; trace::start() begins one");
    internal::g_is_on.store(false);
    recording.begin = all.begin.load();
    recording.end = now();
    buffers.swap(all.buffers);
  }
  for (const auto& buffer : buffers) recording.threads.push_back(buffer->spans());
  std::ranges::sort(recording.threads, {}, &ThreadSpans::id);
  return recording;
}

}  // namespace lockstep::trace
