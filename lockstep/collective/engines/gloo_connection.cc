#include "lockstep/collective/engines/gloo_connection.h"

#include <gloo/rendezvous/context.h>
#include <gloo/rendezvous/store.h>
#include <gloo/transport/context.h>
#include <gloo/transport/tcp/device.h>
#include <gloo/transport/unbound_buffer.h>
#include <netdb.h>

#include <algorithm>
#include <atomic>
#include <cstring>

#include "lockstep/base/deadline.h"
#include "lockstep/base/gate.h"
#include "lockstep/base/modest_threads.h"
#include "lockstep/base/on_exit.h"
#include "lockstep/base/str.h"
#include "lockstep/base/thread.h"
#include "lockstep/collective/engines/no_sigpipe.h"

namespace lockstep {
namespace {

namespace tcp = gloo::transport::tcp;
using std::chrono::milliseconds;

constexpr milliseconds kForever = std::chrono::hours(24 * 365);
// No message has it: see Note [waits in Gloo].
constexpr std::uint64_t kNeverSent = ~std::uint64_t{0};

// One of Gloo's buffers, with waits that follow the watch.
class Buffer final : public gloo::transport::UnboundBuffer, private Waiter {
 public:
  Buffer(std::unique_ptr<gloo::transport::UnboundBuffer> buffer, Watch& watch)
      : gloo::transport::UnboundBuffer(buffer->ptr, buffer->size), watch_(watch), buffer_(std::move(buffer)) {
    watch_.add(this);
  }
  ~Buffer() override { watch_.remove(this); }

  void send(int to, std::uint64_t slot, std::size_t offset, std::size_t bytes) override {
    to_ = to;
    translated(to, [&] { return buffer_->send(to, slot, offset, bytes), true; });
  }
  void recv(int from, std::uint64_t slot, std::size_t offset, std::size_t bytes) override {
    from_ = from_ == kNobody || from_ == from ? from : kSeveral;
    translated(from, [&] { return buffer_->recv(from, slot, offset, bytes), true; });
  }
  void recv(std::vector<int> from, std::uint64_t slot, std::size_t offset, std::size_t bytes) override {
    from_ = kSeveral;
    translated(kSeveral, [&] { return buffer_->recv(from, slot, offset, bytes), true; });
  }

  bool waitSend(int* rank, milliseconds) override {
    while (!translated(to_, [&] { return buffer_->waitSend(rank, patience(to_)); })) {
    }
    return true;
  }
  bool waitRecv(int* rank, milliseconds) override {
    while (!translated(from_, [&] { return buffer_->waitRecv(rank, patience(from_)); })) {
    }
    return true;
  }
  void abortWaitRecv() override { buffer_->abortWaitRecv(); }
  void abortWaitSend() override { buffer_->abortWaitSend(); }

 private:
  static constexpr int kNobody = -1;
  static constexpr int kSeveral = -2;

  void wake() noexcept override {
    buffer_->abortWaitRecv();
    buffer_->abortWaitSend();
  }

  std::optional<Error> loss_of(int peer) const {
    if (peer >= 0) return watch_.loss_of(peer);
    watch_.throw_if_stopped();
    return std::nullopt;
  }

  milliseconds patience(int peer) const { return loss_of(peer) ? milliseconds(0) : kForever; }

  template <typename Body>
  bool translated(int peer, Body body) const {
    try {
      return body();
    } catch (const Error&) {
      throw;
    } catch (const std::exception& e) {
      if (const auto loss = loss_of(peer)) throw Error(*loss);
      const auto who = peer >= 0 ? watch_.name_of(peer) : std::string("a peer");
      throw Error(ErrorCode::kUnavailable, str("gloo: the connection to ", who, " is lost: ", e.what()));
    }
  }

  Watch& watch_;
  const std::unique_ptr<gloo::transport::UnboundBuffer> buffer_;
  int to_ = kNobody;
  int from_ = kNobody;
};

// One of Gloo's, that gives our buffers.
class Context final : public gloo::transport::Context {
 public:
  Context(std::shared_ptr<gloo::transport::Context> context, Watch& watch)
      : gloo::transport::Context(context->rank, context->size), watch_(watch), context_(std::move(context)) {}

  // Gloo asks for a pair, while it makes a mesh, to connect it.
  std::unique_ptr<gloo::transport::Pair>& getPair(int peer) override {
    connecting_.store(peer, std::memory_order_release);
    return context_->getPair(peer);
  }
  std::unique_ptr<gloo::transport::Pair>& createPair(int peer) override {
    context_->setTimeout(getTimeout());
    return context_->createPair(peer);
  }
  std::unique_ptr<gloo::transport::UnboundBuffer> createUnboundBuffer(void* data, std::size_t bytes) override {
    return std::make_unique<Buffer>(context_->createUnboundBuffer(data, bytes), watch_);
  }

  // Ends the wait for the pair that is being connected. From another thread.
  void stop_connecting() {
    const int peer = connecting_.load(std::memory_order_acquire);
    if (peer >= 0) context_->getPair(peer)->close();
  }

 private:
  Watch& watch_;
  const std::shared_ptr<gloo::transport::Context> context_;
  std::atomic<int> connecting_{-1};
};

class Device final : public tcp::Device {
 public:
  Device(const tcp::attr& address, Watch& watch) : tcp::Device(address), watch_(watch) {}

  std::shared_ptr<gloo::transport::Context> createContext(int rank, int size) override {
    auto context = std::make_shared<Context>(tcp::Device::createContext(rank, size), watch_);
    const std::scoped_lock lock(mu_);
    context_ = context;
    return context;
  }

  void stop_connecting() {
    std::shared_ptr<Context> context;
    {
      const std::scoped_lock lock(mu_);
      context = context_.lock();
    }
    if (context != nullptr) context->stop_connecting();
  }

 private:
  Watch& watch_;

  // Guarded by mu_.
  std::mutex mu_;
  std::weak_ptr<Context> context_;
};

// While Gloo connects, which it does in waits that nobody can end: looks whether the job has failed meanwhile, and then
// takes away what Gloo waits for.
class ConnectWatch {
 public:
  ConnectWatch(Device& device, const std::function<void()>& check) {
    if (!check) return;
    thread_ = start_thread("lockstep:mesh", [this, &device, &check](const std::stop_token&) {
      while (!over_.wait(0, Deadline::after(kLook))) try {
          check();
        } catch (const Error& error) {
          failure_ = error;
          device.stop_connecting();  // again and again: Gloo may just have begun with another
        }
    });
  }
  ~ConnectWatch() { end(); }
  ConnectWatch(const ConnectWatch&) = delete;
  ConnectWatch& operator=(const ConnectWatch&) = delete;

  // Throws why the job has failed, if it has.
  void throw_if_failed() {
    end();
    if (failure_) throw Error(*failure_);
  }

 private:
  static constexpr milliseconds kLook{50};

  void end() {
    over_.advance();
    if (thread_.joinable()) thread_.join();
  }

  Gate over_;
  std::optional<Error> failure_;  // of the thread, until it has ended
  std::jthread thread_;
};

// The job's store, as Gloo sees it.
class JobStore final : public gloo::rendezvous::Store {
 public:
  explicit JobStore(const EngineSetup& setup) : setup_(setup) {}

  void set(const std::string& key, const std::vector<char>& data) override {
    setup_.put(full(key), std::string(data.begin(), data.end()));
  }
  std::vector<char> get(const std::string& key) override {
    const auto value = setup_.get(full(key));
    return {value.begin(), value.end()};
  }
  // get() waits.
  void wait(const std::vector<std::string>&) override {}
  void wait(const std::vector<std::string>&, const milliseconds&) override {}

 private:
  std::string full(const std::string& key) const { return str(setup_.name, "/gloo/", key); }

  const EngineSetup& setup_;
};

// Where to listen. Not by Gloo, which does not survive a name that nobody knows. All ranks must take the same kind of
// address, so where a host has both it is the older kind.
tcp::attr address_of(const std::string& host) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  const int code = getaddrinfo(host.c_str(), nullptr, &hints, &found);
  if (code != 0 || found == nullptr)
    throw Error(ErrorCode::kUnavailable, str("gloo: this process's host, ", host, ", has no address (", gai_strerror(code),
                                             "); give the name or IP address by which the others reach it"));
  const OnExit free([&] { freeaddrinfo(found); });
  const addrinfo* best = found;
  for (const addrinfo* at = found; at != nullptr && best->ai_family != AF_INET; at = at->ai_next)
    if (at->ai_family == AF_INET) best = at;
  tcp::attr address(host.c_str());
  address.ai_family = best->ai_family;
  address.ai_socktype = best->ai_socktype;
  address.ai_protocol = best->ai_protocol;
  address.ai_addrlen = static_cast<int>(best->ai_addrlen);
  std::memset(&address.ai_addr, 0, sizeof address.ai_addr);
  std::memcpy(&address.ai_addr, best->ai_addr, best->ai_addrlen);
  return address;
}

}  // namespace

std::shared_ptr<gloo::Context> connect_gloo(const EngineSetup& setup, Watch& watch) {
  require(setup.put && setup.get, "gloo: the setup has no store; give put and get, by which the ranks find each other");
  const auto deadline = Deadline::after(setup.timeout);
  const NoSigpipe no_sigpipe;  // for Gloo's thread too
  try {
    JobStore store(setup);
    std::shared_ptr<Device> device;
    {
      // Gloo's thread tries the lock of a connection and looks again at once when somebody holds it. When it wakes on the
      // core of the thread that holds the lock, in the middle of a write, it spins there until the next tick of the
      // scheduler: 4 ms instead of 0.1 for a small message.
      const ModestThreads modest;
      device = std::make_shared<Device>(address_of(setup.host), watch);
    }
    auto context = std::make_shared<gloo::rendezvous::Context>(setup.rank, setup.size);
    // Gloo waits for a connection five times as long; a time of nothing is for ever.
    context->setTimeout(std::max(milliseconds(1), std::chrono::duration_cast<milliseconds>(setup.timeout / 5)));
    ConnectWatch connecting(*device, setup.check);
    try {
      std::shared_ptr<gloo::transport::Device> as_gloo_has_it = device;
      context->connectFullMesh(store, as_gloo_has_it);
    } catch (const std::exception&) {
      connecting.throw_if_failed();
      throw;
    }
    connecting.throw_if_failed();
    return context;
  } catch (const Error&) {
    throw;
  } catch (const std::exception& e) {
    throw Error(deadline.has_passed() ? ErrorCode::kDeadlineExceeded : ErrorCode::kUnavailable,
                str("gloo: ", watch.name_of(setup.rank), " at ", setup.host, " cannot reach all others: ", e.what()));
  }
}

void look_out(gloo::Context& context, Watch& watch) noexcept {
  const NoSigpipe no_sigpipe;
  try {
    for (;; watch.throw_if_stopped()) {
      std::byte nothing{};
      const auto buffer = context.createUnboundBuffer(&nothing, sizeof nothing);
      for (int peer = 0; peer < context.size; ++peer) {
        if (peer == context.rank || watch.loss_of(peer)) continue;
        try {
          buffer->recv(peer, kNeverSent);
        } catch (const Error& e) {
          watch.lose(peer, e);
        }
      }
      try {
        buffer->waitRecv();
      } catch (const Error&) {
        // A connection broke: asking for the message anew tells whose.
      }
    }
  } catch (const Error&) {
    // The watch is stopped.
  }
}

}  // namespace lockstep
