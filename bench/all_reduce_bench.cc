#include "bench/all_reduce_bench.h"

#include <stdexcept>

#include "bench/timing.h"
#include "lockstep/lockstep.h"

namespace bench {
namespace {

namespace ls = lockstep;

#if defined(__x86_64__)
#define BENCH_WIDE __attribute__((target_clones("avx512f", "avx2", "default"), optimize("O3")))
#else
#define BENCH_WIDE
#endif

// What every element is, so that a sum over the replicas is exact in float32 and different in every call.
BENCH_WIDE void write_pattern(float* __restrict to, std::int64_t count, float base) {
  for (std::int64_t i = 0; i < count; ++i) to[i] = base + static_cast<float>(i & 255);
}

BENCH_WIDE std::int64_t count_wrong(const float* __restrict values, std::int64_t count, float base, float scale) {
  std::int64_t wrong = 0;
  for (std::int64_t i = 0; i < count; ++i) wrong += values[i] != base + scale * static_cast<float>(i & 255) ? 1 : 0;
  return wrong;
}

BENCH_WIDE void add_and_store(float* __restrict a, float* __restrict b, std::int64_t count) {
  for (std::int64_t i = 0; i < count; ++i) {
    const float sum = a[i] + b[i];
    a[i] = sum;
    b[i] = sum;
  }
}

enum class Kind { kInPlace, kOutOfPlace, kAddAndStore };

struct Plan {
  std::int64_t bytes;
  int calls;  // a round
};

// Memory that the replicas of one size share.
struct Field {
  Field(int replicas, std::int64_t elements, int calls)
      : barrier(replicas), begin(static_cast<std::size_t>(replicas)), end(begin.size()), wrong(begin.size(), 0) {
    for (std::size_t r = 0; r < begin.size(); ++r) {
      buffers.push_back(torch::zeros({elements}));
      begin[r].resize(static_cast<std::size_t>(calls));
      end[r].resize(static_cast<std::size_t>(calls));
    }
  }

  SpinBarrier barrier;
  std::vector<at::Tensor> buffers;
  std::vector<std::vector<double>> begin, end;  // [replica][call], microseconds
  std::vector<std::int64_t> wrong;              // [replica]: wrong elements
};

at::Tensor call_once(Kind kind, ls::ReplicaContext& context, Field& field) {
  const auto r = static_cast<std::size_t>(context.local_replica_id());
  auto& mine = field.buffers[r];
  if (kind == Kind::kInPlace) {
    context.all_reduce_("sum", mine);
    return mine;
  }
  if (kind == Kind::kOutOfPlace) return context.all_reduce("sum", mine);
  const auto count = mine.numel();
  const auto half = count / 2 / 16 * 16;  // whole cache lines
  const auto from = r == 0 ? 0 : half;
  const auto to = r == 0 ? half : count;
  add_and_store(field.buffers[0].data_ptr<float>() + from, field.buffers[1].data_ptr<float>() + from, to - from);
  return mine;
}

// Every call: each replica rewrites its buffer, all start together, and the time goes from the first who enters to the
// last who is done. Without the rewriting each half would stay in one core's cache and the exchange cost nothing.
void run_calls(Kind kind, ls::ReplicaContext& context, Field& field, int calls) {
  const auto r = static_cast<std::size_t>(context.local_replica_id());
  auto& mine = field.buffers[r];
  const auto replicas = static_cast<float>(field.buffers.size());
  for (int call = 0; call < calls; ++call) {
    const auto base = static_cast<float>(call % 5);
    write_pattern(mine.data_ptr<float>(), mine.numel(), base + static_cast<float>(r));
    field.barrier.wait();
    const double begin = now_us();
    const auto result = call_once(kind, context, field);
    const double end = now_us();
    field.barrier.wait();
    field.begin[r][static_cast<std::size_t>(call)] = begin;
    field.end[r][static_cast<std::size_t>(call)] = end;
    field.wrong[r] +=
        count_wrong(result.data_ptr<float>(), result.numel(), replicas * base + replicas * (replicas - 1) / 2, replicas);
    field.barrier.wait();
  }
}

std::vector<double> measure_round(Kind kind, ls::Strategy& strategy, Field& field, int calls) {
  strategy.run([&](ls::ReplicaContext& context) { run_calls(kind, context, field, calls); });
  std::vector<double> times;
  for (std::size_t call = 0; call < static_cast<std::size_t>(calls); ++call) {
    double begin = field.begin[0][call], end = field.end[0][call];
    for (std::size_t r = 1; r < field.begin.size(); ++r) {
      begin = std::min(begin, field.begin[r][call]);
      end = std::max(end, field.end[r][call]);
    }
    times.push_back(end - begin);
  }
  for (const auto wrong : field.wrong)
    if (wrong > 0) throw std::runtime_error("all_reduce gave " + std::to_string(wrong) + " wrong elements");
  return times;
}

void bench_size(ls::Strategy& strategy, const Plan& plan, int rounds) {
  Field field(strategy.num_replicas_in_sync(), plan.bytes / 4, plan.calls);
  Sample in_place("all_reduce_in_place", plan.bytes), out_of_place("all_reduce", plan.bytes), peer("add_and_store", plan.bytes);
  for (int round = -1; round < rounds; ++round) {
    const auto a = measure_round(Kind::kInPlace, strategy, field, plan.calls);
    const auto b = measure_round(Kind::kAddAndStore, strategy, field, plan.calls);
    const auto c = measure_round(Kind::kOutOfPlace, strategy, field, plan.calls);
    if (round < 0) continue;  // the first touches the memory
    in_place.add_round(a);
    peer.add_round(b);
    out_of_place.add_round(c);
  }
  in_place.print();
  out_of_place.print();
  peer.print();
}

}  // namespace

void bench_all_reduce(ls::Strategy& strategy, int rounds) {
  if (strategy.num_replicas_in_sync() != 2) throw std::runtime_error("the peer of this benchmark has two threads");
  const Plan plans[] = {{4, 2000}, {4 << 10, 2000}, {256 << 10, 200}, {4 << 20, 40}, {64 << 20, 5}};
  for (const auto& plan : plans) bench_size(strategy, plan, rounds);
}

}  // namespace bench
