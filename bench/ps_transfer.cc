#include <torch/torch.h>

#include <cstdio>
#include <functional>
#include <map>
#include <stdexcept>

#include "bench/ps_bench.h"
#include "bench/ps_raw.h"
#include "bench/ps_tasks.h"
#include "bench/timing.h"
#include "bench/windows.h"
#include "lockstep/ps/connections.h"
#include "lockstep/train/optimizers/optimizers.h"

namespace bench {
namespace {

namespace ps = lockstep::ps;
using Kind = ps::Operation::Kind;

constexpr const char* kDense = "dense";
constexpr const char* kTable = "table";

void check(bool holds, const char* what) {
  if (!holds) throw std::runtime_error(what);
}

std::shared_ptr<ps::RpcChannel> connect(const Tasks& tasks, std::size_t shared_bytes) {
  auto options = ps::rpc_options("", {});
  options.shared_bytes = shared_bytes;
  const auto name = ps::task_name({"ps", 0});
  const auto address = lockstep::Address::parse(tasks.chief()->cluster_spec().task_address("ps", 0), name);
  auto channel = std::make_shared<ps::RpcChannel>(name, address, options);
  channel->wait_until_reachable(lockstep::Deadline::after(std::chrono::seconds(60)));
  return channel;
}

void create(ps::ParameterClient& client, const std::string& name, std::vector<std::int64_t> shape, const std::string& rule) {
  ps::Description description{.name = name,
                              .dtype = static_cast<std::int8_t>(at::kFloat),
                              .shape = shape,
                              .whole_shape = std::move(shape),
                              .rule = rule,
                              .initial = {.kind = ps::Initial::Kind::kZeros}};
  client.create({{0, std::move(description), {}}});
}

// One way to the server.
class Way {
 public:
  Way(const Tasks& tasks, std::size_t shared_bytes) : channel_(connect(tasks, shared_bytes)) {}

  ps::ParameterClient& client() const { return *client_; }
  bool shares_memory() const { return channel_->shares_memory(); }

  void pull_dense(const at::Tensor& into) const { client().read({{0, kDense, into}}); }
  void push_dense(Kind kind, const at::Tensor& values) const { client().update({{0, kDense, kind, values}}); }
  void pull_rows(const at::Tensor& ids, const at::Tensor& into) const { client().read_rows({{0, kTable, ids, into}}); }
  void push_rows(const at::Tensor& ids, const at::Tensor& rows) const {
    client().update({{0, kTable, Kind::kAddRows, rows, ids}});
  }

 private:
  const std::shared_ptr<ps::RpcChannel> channel_;
  const std::unique_ptr<ps::ParameterClient> client_ = std::make_unique<ps::ParameterClient>(std::vector{channel_});
};

class Transfers {
 public:
  explicit Transfers(std::int64_t rows)
      : rows_(rows), tasks_(1, 1), memory_(tasks_, ps::RpcOptions().shared_bytes), socket_(tasks_, 0), raw_(rows) {
    create(memory_.client(), kDense, {static_cast<std::int64_t>(kDenseBytes / sizeof(float))}, lockstep::SGD(0.5).to_text());
    create(memory_.client(), kTable, {rows, static_cast<std::int64_t>(kColumns)}, "");
    for (std::uint32_t batch = 0; batch < kIdBatches; ++batch) ids_.push_back(torch::tensor(random_ids(batch, rows)));
    for (int i = 0; i < 100 && !memory_.shares_memory(); ++i) memory_.pull_dense(mine_);
    check(memory_.shares_memory() && !socket_.shares_memory(), "the server does not share memory as it was asked to");
  }

  void round(int turn) {
    struct One {
      const char* name;
      std::size_t bytes;
      int calls;
      std::function<void(std::uint32_t)> call;
    };
    const auto floats = std::span(rows_mine_.data_ptr<float>(), kRowsAtOnce * kColumns);
    const auto of = [&](std::uint32_t call) { return call % kIdBatches; };
    constexpr auto kRowBytes = kRowsAtOnce * kColumns * sizeof(float);
    std::vector<One> all{{"raw_pull_dense", kDenseBytes, 3, [&](auto) { raw_.pull_dense(); }},
                         {"raw_push_dense", kDenseBytes, 3, [&](auto) { raw_.push_dense(); }},
                         {"raw_pull_rows", kRowBytes, 48, [&](auto k) { raw_.pull_rows(of(k), floats); }},
                         {"raw_push_rows", kRowBytes, 48, [&](auto k) { raw_.push_rows(of(k), floats); }}};
    const auto add = [&](const Way& way, const std::vector<const char*>& names) {
      all.push_back({names[0], kDenseBytes, 3, [&](auto) { way.pull_dense(mine_); }});
      all.push_back({names[1], kDenseBytes, 3, [&](auto) { way.push_dense(Kind::kAssign, mine_); }});
      all.push_back({names[2], kDenseBytes, 3, [&](auto) { way.push_dense(Kind::kGradient, gradient_); }});
      all.push_back({names[3], kRowBytes, 48, [&](auto k) { way.pull_rows(ids_[of(k)], rows_mine_); }});
      all.push_back({names[4], kRowBytes, 48, [&](auto k) { way.push_rows(ids_[of(k)], ones_), ++pushes_[of(k)]; }});
    };
    add(memory_, {"pull_dense", "assign_dense", "gradient_dense", "pull_rows", "push_rows"});
    add(socket_, {"socket_pull_dense", "socket_assign_dense", "socket_gradient_dense", "socket_pull_rows", "socket_push_rows"});
    for (std::size_t i = 0; i < all.size(); ++i) {
      const auto& one = all[(i + static_cast<std::size_t>(turn + 1)) % all.size()];
      one.call(0);  // its memory is in the caches that it is in after a call of its own
      const auto begin = now_us();
      for (int call = 0; call < one.calls; ++call) one.call(static_cast<std::uint32_t>(call));
      const auto microseconds = (now_us() - begin) / one.calls;
      if (turn >= 0) samples_[one.name].push_back(static_cast<double>(one.bytes) / microseconds);
    }
  }

  // Every element of what was sent and came back.
  void verify() {
    const auto values = torch::arange(mine_.numel(), torch::kFloat).fmod_(1024);
    auto back = torch::empty_like(values);
    for (const auto* const way : {&memory_, &socket_}) {
      way->push_dense(Kind::kAssign, values);
      way->push_dense(Kind::kGradient, values);
      way->pull_dense(back);
      check(torch::equal(back, values * 0.5), "64 MB came back as something else");
      std::map<std::int64_t, float> wanted;
      for (const auto& [batch, count] : pushes_)
        for (const auto id : random_ids(batch, rows_)) wanted[id] += static_cast<float>(count);
      for (std::uint32_t batch = 0; batch < kIdBatches; ++batch) {
        way->pull_rows(ids_[batch], rows_mine_);
        const auto ids = random_ids(batch, rows_);
        for (std::size_t k = 0; k < ids.size(); ++k) {
          const auto row = rows_mine_[static_cast<std::int64_t>(k)];
          check(wanted[ids[k]] == row[0].item<float>() && wanted[ids[k]] == row[-1].item<float>(), "a row has another sum");
        }
      }
    }
  }

  void print() const {
    for (const auto& [name, samples] : samples_) {
      std::printf("{\"name\": \"%s\", \"samples\": [", name.c_str());
      for (std::size_t i = 0; i < samples.size(); ++i) std::printf("%s%.1f", i == 0 ? "" : ", ", samples[i]);
      std::printf("]}\n");
    }
    std::fflush(stdout);
  }

 private:
  const std::int64_t rows_;
  const Tasks tasks_;
  const Way memory_;  // large payloads go through memory that both have open
  const Way socket_;  // all goes through the socket, as between machines
  RawPeer raw_;
  const at::Tensor mine_ = torch::zeros({static_cast<std::int64_t>(kDenseBytes / sizeof(float))});
  const at::Tensor gradient_ = torch::ones_like(mine_);
  const at::Tensor rows_mine_ = torch::zeros({static_cast<std::int64_t>(kRowsAtOnce), static_cast<std::int64_t>(kColumns)});
  const at::Tensor ones_ = torch::ones_like(rows_mine_);
  std::vector<at::Tensor> ids_;
  std::map<std::uint32_t, int> pushes_;
  std::map<std::string, std::vector<double>> samples_;
};

}  // namespace

void measure_transfers(int rounds, std::int64_t rows) {
  Transfers transfers(rows);
  for (int round = -1; round < rounds; ++round) transfers.round(round);
  transfers.verify();
  transfers.print();
}

void measure_memory() {
  const Tasks tasks(1, 1);
  const Way way(tasks, ps::RpcOptions().shared_bytes);
  const auto pid = std::to_string(tasks.server(0));
  constexpr std::int64_t kRows = 4'000'000;
  const auto gradient = torch::ones({static_cast<std::int64_t>(kRowsAtOnce), static_cast<std::int64_t>(kColumns)});
  const auto use = [&](const std::string& name, std::int64_t rows) {
    create(way.client(), name, {rows, static_cast<std::int64_t>(kColumns)}, lockstep::Adagrad(0.1).to_text());
    for (std::uint32_t batch = 0; batch < kIdBatches; ++batch) {
      const auto ids = torch::tensor(random_ids(batch, rows));
      way.client().update({{0, name, Kind::kGradientRows, gradient, ids}});
      way.client().read_rows({{0, name, ids, torch::empty_like(gradient)}});
    }
  };
  use("small", 1000);  // libraries are loaded, buffers are there
  const auto before = status_bytes(pid, "VmRSS");
  use(kTable, kRows);
  const auto after = status_bytes(pid, "VmRSS");
  const auto described = way.client().describe(0);
  unsigned long long held = 0;
  for (const auto& one : described)
    if (one.description.name == kTable) held = one.bytes + one.state_bytes;
  std::printf(
      "{\"name\": \"memory\", \"before_bytes\": %lld, \"after_bytes\": %lld, \"peak_bytes\": %lld, \"held_bytes\": %llu}\n",
      before, after, status_bytes(pid, "VmHWM"), held);
  std::fflush(stdout);
}

}  // namespace bench
