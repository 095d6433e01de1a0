#include <gloo/allreduce.h>
#include <gloo/context.h>
#include <gloo/math.h>

#include <bit>
#include <utility>
#include <vector>

#include "lockstep/base/str.h"
#include "lockstep/base/thread.h"
#include "lockstep/collective/engine_plugin.h"
#include "lockstep/collective/engines/gloo_connection.h"
#include "lockstep/collective/engines/no_sigpipe.h"

namespace lockstep {
namespace {

struct Message {
  int peer = 0;
  Bytes bytes;
};

// Gloo takes all memory as if it would write it.
Bytes writable(ConstBytes bytes) { return {const_cast<std::byte*>(bytes.data()), bytes.size()}; }

// Gloo over TCP. One thread of Gloo's moves the bytes, one of ours looks out for peers that are gone.
class Gloo final : public Transport {
 public:
  explicit Gloo(const EngineSetup& setup)
      : rank_(setup.rank), size_(setup.size), watch_(setup.size, setup.names), context_(connect_gloo(setup, watch_)) {
    lookout_ = start_thread("lockstep:gloo", [this](const std::stop_token&) { look_out(*context_, watch_); });
  }
  ~Gloo() override { watch_.stop(Error(ErrorCode::kCancelled, "gloo: the engine is gone")); }

  std::string name() const override { return "gloo"; }
  int rank() const override { return rank_; }
  int size() const override { return size_; }

  void all_to_all(std::span<const ConstBytes> send, std::span<const Bytes> receive) override {
    require_one_a_rank(send.size());
    require_one_a_rank(receive.size());
    call([&] {
      std::vector<Message> sends, receives;
      for (int step = 1; step < size_; ++step) {
        sends.push_back({after(step), writable(send[after(step)])});
        receives.push_back({before(step), receive[before(step)]});
      }
      exchange(sends, receives);
    });
  }

  void all_gather(std::span<const Bytes> parts) override {
    require_one_a_rank(parts.size());
    call([&] {
      std::vector<Message> sends, receives;
      for (int step = 1; step < size_; ++step) {
        sends.push_back({after(step), parts[rank_]});
        receives.push_back({before(step), parts[before(step)]});
      }
      exchange(sends, receives);
    });
  }

  // Down a binomial tree: the rank `place` steps after the root has it from the one whose place lacks the lowest bit.
  void broadcast(Bytes data, int root) override {
    call([&] {
      const auto place = static_cast<unsigned>((rank_ - root + size_) % size_);
      const auto rank_at = [&](unsigned at) { return static_cast<int>((at + static_cast<unsigned>(root)) % size_); };
      if (place != 0) exchange({}, {{rank_at(place & (place - 1)), data}});
      std::vector<Message> sends;
      const auto size = static_cast<unsigned>(size_);
      for (unsigned step = (place == 0 ? std::bit_ceil(size) : place & -place) / 2; step > 0; step /= 2)
        if (place + step < size) sends.push_back({rank_at(place + step), data});
      exchange(sends, {});
    });
  }

  // In each round everybody has heard, directly or not, of twice as many others.
  void barrier() override {
    call([&] {
      std::byte out{}, in{};
      for (int step = 1; step < size_; step *= 2) exchange({{after(step), Bytes(&out, 1)}}, {{before(step), Bytes(&in, 1)}});
    });
  }

  void all_reduce(SumType type, Bytes data) override {
    call([&] {
      switch (type) {
        case SumType::kFloat: return sum<float>(data);
        case SumType::kDouble: return sum<double>(data);
        case SumType::kInt64: return sum<std::uint64_t>(data);  // unsigned: sums wrap around
        case SumType::kInt32: return sum<std::uint32_t>(data);
      }
    });
  }

  void abort(const Error& why) noexcept override { stop(why); }

 private:
  int after(int steps) const { return (rank_ + steps) % size_; }
  int before(int steps) const { return (rank_ - steps + size_) % size_; }

  void require_one_a_rank(std::size_t parts) const {
    if (parts != static_cast<std::size_t>(size_))
      throw Error(ErrorCode::kInvalidArgument, str("gloo: ", parts, " parts for ", size_, " ranks; give one for each rank"));
  }

  // A call that fails leaves messages half sent, so that no other can follow it.
  template <typename Body>
  void call(Body body) {
    const NoSigpipe no_sigpipe;
    watch_.throw_if_stopped();
    ++calls_;
    try {
      return body();
    } catch (const Error& e) {
      stop(e);
    } catch (const std::exception& e) {
      stop(Error(ErrorCode::kUnavailable, str("gloo: ", e.what())));
    }
    watch_.throw_if_stopped();
  }

  // Tells the peers too, by closing the connections to them.
  void stop(const Error& why) noexcept {
    try {
      watch_.stop(why);
      context_->closeConnections();
    } catch (const std::exception&) {
      // A connection could not be closed; its peer will notice the end of this process.
    }
  }

  // All at once. Empty messages are not sent.
  // Sends come first: a send to a peer that is not known to be ready is only announced, and Gloo's thread writes it when
  // the peer is. The other way round this thread would write while Gloo's spins on the lock of the connection.
  void exchange(const std::vector<Message>& sends, const std::vector<Message>& receives) {
    const auto slot = kSlots + calls_;
    std::vector<std::unique_ptr<gloo::transport::UnboundBuffer>> in, out;
    for (const auto& [peer, bytes] : sends) {
      if (bytes.empty()) continue;
      out.push_back(context_->createUnboundBuffer(bytes.data(), bytes.size()));
      out.back()->send(peer, slot);
    }
    for (const auto& [peer, bytes] : receives) {
      if (bytes.empty()) continue;
      in.push_back(context_->createUnboundBuffer(bytes.data(), bytes.size()));
      in.back()->recv(peer, slot);
    }
    for (const auto& buffer : in) buffer->waitRecv();
    for (const auto& buffer : out) buffer->waitSend();
  }

  template <typename T>
  void sum(Bytes data) {
    using Sum = void (*)(void*, const void*, const void*, std::size_t);
    gloo::AllreduceOptions options(context_);
    options.setOutput(reinterpret_cast<T*>(data.data()), data.size() / sizeof(T));
    options.setReduceFunction(static_cast<Sum>(&gloo::sum<T>));
    options.setTag(static_cast<std::uint32_t>(calls_));
    gloo::allreduce(options);
  }

  // Above those of Gloo's own collectives.
  static constexpr std::uint64_t kSlots = std::uint64_t{1} << 63;

  // Const after construction.
  const int rank_;
  const int size_;
  // Own synchronisation.
  Watch watch_;
  const std::shared_ptr<gloo::Context> context_;
  // Used only by the thread that is in a call.
  std::uint64_t calls_ = 0;

  std::jthread lookout_;  // last member: joined first
};

}  // namespace
}  // namespace lockstep

extern "C" lockstep::Transport* lockstep_make_engine(const lockstep::EngineSetup& setup) { return new lockstep::Gloo(setup); }
