#include "lockstep/observe/event_writer.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <condition_variable>
#include <mutex>
#include <utility>

#include "lockstep/base/deadline.h"
#include "lockstep/base/errno_text.h"
#include "lockstep/base/error.h"
#include "lockstep/base/log.h"
#include "lockstep/base/str.h"
#include "lockstep/base/thread.h"
#include "lockstep/cluster/host_address.h"
#include "lockstep/data/io/record_frame.h"
#include "lockstep/observe/event_bytes.h"
#include "lockstep/observe/histogram.h"
#include "lockstep/observe/plain_png.h"

namespace lockstep {
namespace {

constexpr std::size_t kWriteAt = std::size_t{1} << 20;        // so much is written before its time
constexpr std::size_t kMostWaiting = std::size_t{256} << 20;  // more than that is lost: nobody writes it
constexpr std::chrono::seconds kMostFlush(30);

double wall_time() { return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count(); }

void make_folders(const std::string& folder) {
  constexpr int kEverybody = 0777;
  for (std::size_t at = 0; at != std::string::npos;) {
    at = folder.find('/', at + 1);
    const auto part = folder.substr(0, at);
    if (::mkdir(part.c_str(), kEverybody) == 0 || errno == EEXIST || errno == EISDIR) continue;
    const int error = errno;
    if (struct stat found = {}; ::stat(part.c_str(), &found) == 0 && S_ISDIR(found.st_mode)) continue;  // of a read-only disk
    throw Error(ErrorCode::kFailedPrecondition, str("the folder '", part, "' cannot be made: ", errno_text(error)));
  }
}

// A new file; the number at its end is the first that is free.
std::pair<int, std::string> open_new(const std::string& folder) {
  constexpr int kEverybody = 0666;
  static std::atomic<int> s_number{0};
  while (true) {
    auto path = str(folder, "/events.out.tfevents.", static_cast<std::int64_t>(wall_time()), ".", own_host_name(), ".",
                    ::getpid(), ".", s_number++);
    const int descriptor = ::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, kEverybody);
    if (descriptor >= 0) return {descriptor, std::move(path)};
    if (errno != EEXIST)
      throw Error(ErrorCode::kFailedPrecondition, str("the event file '", path, "' cannot be made: ", errno_text(errno),
                                                      "; the folder must be one that this process may write to"));
  }
}

}  // namespace

struct EventWriter::State {
  State(const std::string& folder, const EventWriterOptions& with) : options(with) {
    make_folders(folder);
    std::tie(descriptor, path) = open_new(folder);
  }
  ~State() {
    thread = {};
    ::close(descriptor);
  }

  void give(const std::string& event) {
    if (add(event)) return;
    log_once(LogLevel::kWarning, str("the event file '", path, "' is written too slowly: ", kMostWaiting >> 20,
                                     " MB wait already; events are lost until there is room, training goes on"));
  }

  // False: there is no room.
  bool add(const std::string& event) {
    const auto frame = data::internal::frame_of(event);
    const std::lock_guard lock(mu);
    if (waiting.size() > kMostWaiting) {
      has_lost = true;
      return false;
    }
    waiting.append(frame.header.data(), frame.header.size());
    waiting.append(event);
    waiting.append(frame.sum.data(), frame.sum.size());
    if (waiting.size() >= kWriteAt) changed.notify_all();
    return true;
  }

  // All of `bytes`, or nothing: a file that ends within an event cannot be read on. 0: good; else why not.
  int write_all(std::string_view bytes) {
    while (!bytes.empty()) {
      const auto written = ::write(descriptor, bytes.data(), bytes.size());
      if (written < 0 && errno == EINTR) continue;
      if (written < 0) {
        const int error = errno;
        if (::ftruncate(descriptor, size) == 0) ::lseek(descriptor, size, SEEK_SET);
        return error;
      }
      bytes.remove_prefix(static_cast<std::size_t>(written));
    }
    size = ::lseek(descriptor, 0, SEEK_CUR);
    return 0;
  }

  void serve(const std::stop_token& stop) {
    std::unique_lock lock(mu);
    while (true) {
      changed.wait_for(lock, stop, options.flush_every, [&] { return wants_flush || waiting.size() >= kWriteAt; });
      wants_flush = false;
      const bool is_last = stop.stop_requested();
      const std::string bytes = std::exchange(waiting, {});
      lock.unlock();
      const int error = write_all(bytes);
      if (error != 0)
        log_once(LogLevel::kWarning, str("the event file '", path, "' cannot be written: ", errno_text(error),
                                         "; events are lost until it can, training goes on"));
      lock.lock();
      if (error != 0) has_lost = true;
      written += 1;
      changed.notify_all();
      if (is_last && waiting.empty()) return;
    }
  }

  bool flush() {
    std::unique_lock lock(mu);
    // The write that is under way may have begun before the last event was given.
    const auto enough = written + (waiting.empty() ? 1 : 2);
    const auto deadline = Deadline::after(kMostFlush);
    while (written < enough && !deadline.has_passed()) {
      wants_flush = true;
      changed.notify_all();
      const auto seen = written;
      changed.wait_until(lock, deadline.time(), [&] { return written != seen; });
    }
    return written >= enough && !std::exchange(has_lost, false);
  }

  // Const after construction.
  const EventWriterOptions options;
  int descriptor = -1;
  std::string path;

  // Used only on the thread, once there is one.
  off_t size = 0;  // of whole events

  // Guarded by mu.
  std::mutex mu;
  std::condition_variable_any changed;
  std::string waiting;        // whole events, framed
  std::uint64_t written = 0;  // how often it was
  bool wants_flush = false;
  bool has_lost = false;  // since the last flush()

  std::jthread thread;  // last member: joined first
};

EventWriter::EventWriter(const std::string& folder, const EventWriterOptions& options)
    : state_(std::make_unique<State>(folder, options)) {
  State& state = *state_;
  state.give(internal::version_event(wall_time()));
  if (const int error = state.write_all(std::exchange(state.waiting, {})); error != 0) {
    ::unlink(state.path.c_str());
    throw Error(ErrorCode::kUnavailable, str("the event file '", state.path, "' cannot be written: ", errno_text(error)));
  }
  state.thread = start_thread("lockstep:events", [&state](const std::stop_token& stop) { state.serve(stop); });
}

EventWriter::~EventWriter() = default;

void EventWriter::scalar(std::string_view tag, double value, std::int64_t step) {
  state_->give(internal::scalar_event({wall_time(), step, tag}, value));
}

namespace {

Histogram finite(std::string_view tag, Histogram histogram) {
  if (histogram.not_finite > 0)
    log_once(LogLevel::kWarning, str("the histogram '", tag, "' has values that are not finite; they are left out"));
  return histogram;
}

}  // namespace

void EventWriter::histogram(std::string_view tag, std::span<const float> values, std::int64_t step) {
  state_->give(internal::histogram_event({wall_time(), step, tag}, finite(tag, histogram_of(values))));
}

void EventWriter::histogram(std::string_view tag, std::span<const double> values, std::int64_t step) {
  state_->give(internal::histogram_event({wall_time(), step, tag}, finite(tag, histogram_of(values))));
}

void EventWriter::text(std::string_view tag, std::string_view markdown, std::int64_t step) {
  state_->give(internal::text_event({wall_time(), step, tag}, markdown));
}

void EventWriter::image(std::string_view tag, const ImageView& image, std::int64_t step) {
  state_->give(internal::image_event({wall_time(), step, tag}, image, internal::plain_png(image)));
}

bool EventWriter::flush() { return state_->flush(); }

const std::string& EventWriter::path() const noexcept { return state_->path; }

}  // namespace lockstep
