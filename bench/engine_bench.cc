// All-reduces between two processes, in turns: our shared-memory engine, Open MPI, Gloo, and our canonical sum over the
// last two. Under mpirun, which starts the processes:
//
//   mpirun -n 2 engine_bench --store=FOLDER [--rounds=9] [--only=shm,mpi,gloo,canonical_gloo,canonical_mpi]
//
// Every call is made on a buffer that its owner has just rewritten; it lasts from the first process's begin to the last
// one's end. Sums are checked. The first process prints one JSON line for each candidate and size.

#include <mpi.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <fstream>
#include <functional>
#include <iostream>
#include <map>
#include <memory>
#include <sstream>

#include "bench/timing.h"
#include "lockstep/collective/canonical_sum.h"
#include "lockstep/collective/engine_plugin.h"
#include "lockstep/collective/shm_transport.h"

namespace bench {
namespace {

namespace ls = lockstep;

struct Plan {
  std::int64_t bytes;
  int calls;  // a round, at most
};
constexpr Plan kPlans[] = {{4, 20000}, {4 << 10, 5000}, {256 << 10, 400}, {1 << 20, 100}, {4 << 20, 40}, {64 << 20, 4}};

constexpr double kRoundUs = 300'000;  // what a round may take

struct Arguments {
  std::string store = ".";
  std::string only = "shm,mpi,gloo,canonical_gloo,canonical_mpi";
  int rounds = 9;
};

Arguments parse(int argc, char** argv) {
  Arguments arguments;
  for (int i = 1; i < argc; ++i) {
    const std::string text = argv[i];
    const auto value = text.substr(text.find('=') + 1);
    if (text.rfind("--store=", 0) == 0) arguments.store = value;
    else if (text.rfind("--rounds=", 0) == 0) arguments.rounds = std::stoi(value);
    else if (text.rfind("--only=", 0) == 0) arguments.only = value;
    else throw std::invalid_argument("unknown argument '" + text + "'");
  }
  return arguments;
}

// A key-value store in a folder that both processes see.
ls::EngineSetup setup_in(const std::string& folder, int rank, int size, const std::string& name) {
  const auto path = [folder](std::string key) {
    std::replace(key.begin(), key.end(), '/', '_');
    return folder + "/" + key;
  };
  ls::EngineSetup setup;
  setup.rank = rank;
  setup.size = size;
  setup.name = name;
  setup.put = [path](const std::string& key, const std::string& value) {
    std::ofstream(path(key) + ".new", std::ios::binary) << value;
    std::rename((path(key) + ".new").c_str(), path(key).c_str());
  };
  setup.get = [path](const std::string& key) {
    for (int wait = 0; wait < 30'000; ++wait) {
      std::ifstream file(path(key), std::ios::binary);
      if (file) return std::string(std::istreambuf_iterator<char>(file), {});
      usleep(1000);
    }
    throw std::runtime_error("nobody has put " + key);
  };
  return setup;
}

void write_pattern(float* to, std::int64_t count, float base) {
  for (std::int64_t i = 0; i < count; ++i) to[i] = base + static_cast<float>(i & 255);
}

// A candidate sums `count` floats at `data`, which lie in memory that all processes see.
using Sum = std::function<void(float* data, std::int64_t count)>;

class Bench {
 public:
  explicit Bench(const Arguments& arguments) : arguments_(arguments) {
    MPI_Comm_rank(MPI_COMM_WORLD, &rank_);
    MPI_Comm_size(MPI_COMM_WORLD, &size_);
    shm_ = std::make_unique<ls::ShmTransport>(setup_in(arguments.store, rank_, size_, "shm"));
    blocks_ = shm_->share(kPlans[std::size(kPlans) - 1].bytes);
    add_candidates();
  }

  void run() {
    for (const auto& plan : kPlans) {
      std::map<std::string, Sample> samples;
      std::map<std::string, int> counts;
      for (int round = -1; round < arguments_.rounds; ++round)  // the first warms up, and tells how many fit into a round
        for (const auto& [name, sum] : candidates_) {
          if (name.rfind("canonical", 0) == 0 && plan.bytes < 1 << 20) continue;
          const auto calls = measure(sum, plan, round < 0 ? std::max(4, plan.calls / 50) : counts[name], name);
          if (round >= 0) samples.try_emplace(name, name, plan.bytes).first->second.add_round(calls);
          else counts[name] = std::clamp(static_cast<int>(kRoundUs / median_of(calls)), 4, plan.calls);
        }
      if (rank_ == 0)
        for (const auto& [name, sample] : samples) sample.print();
    }
  }

 private:
  void add_candidates() {
    const auto is_wanted = [&](const std::string& name) {
      std::istringstream list(arguments_.only);
      for (std::string word; std::getline(list, word, ',');)
        if (word == name) return true;
      return false;
    };
    if (is_wanted("shm"))
      candidates_["shm"] = [this](float*, std::int64_t count) { shm_->sum_shared(ls::SumType::kFloat, blocks_, 0, count); };
    if (is_wanted("mpi"))
      candidates_["mpi"] = [](float* data, std::int64_t count) {
        MPI_Allreduce(MPI_IN_PLACE, data, static_cast<int>(count), MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
      };
    for (const std::string engine : {"gloo", "mpi"}) {
      const bool wants_native = engine == "gloo" && is_wanted("gloo");
      if (!wants_native && !is_wanted("canonical_" + engine)) continue;
      engines_.push_back(ls::make_engine(engine, setup_in(arguments_.store, rank_, size_, engine)));
      auto* const transport = engines_.back().get();
      if (wants_native)
        candidates_["gloo"] = [transport](float* data, std::int64_t count) {
          transport->all_reduce(ls::SumType::kFloat, std::as_writable_bytes(std::span(data, static_cast<std::size_t>(count))));
        };
      if (!is_wanted("canonical_" + engine)) continue;
      std::vector<std::vector<ls::SumNode>> brings;
      for (int r = 0; r < size_; ++r) brings.push_back({{0, r}});
      sums_.push_back(std::make_unique<ls::CanonicalSum>(*transport, brings, size_));
      auto* const canonical = sums_.back().get();
      candidates_["canonical_" + engine] = [canonical](float* data, std::int64_t count) {
        const void* mine = data;
        void* result = data;
        canonical->reduce({c10::ScalarType::Float, count}, {&mine, 1}, {&result, 1});
      };
    }
  }

  // The processes have the same times, and so the same median.
  static double median_of(std::vector<double> values) {
    std::ranges::nth_element(values, values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2));
    return values[values.size() / 2];
  }

  // Microseconds of each call.
  std::vector<double> measure(const Sum& sum, const Plan& plan, int count_of_calls, const std::string& name) {
    auto* const data = reinterpret_cast<float*>(blocks_.data(rank_));
    const auto count = plan.bytes / 4;
    std::vector<std::vector<double>> times(static_cast<std::size_t>(size_),
                                           std::vector<double>(2 * static_cast<std::size_t>(count_of_calls)));
    auto& mine = times[static_cast<std::size_t>(rank_)];
    for (int call = 0; call < count_of_calls; ++call) {
      const auto base = static_cast<float>(call % 1000 + rank_);
      write_pattern(data, count, base);
      shm_->barrier();
      mine[2 * call] = now_us();
      sum(data, count);
      mine[2 * call + 1] = now_us();
      const auto last = count - 1;
      const auto expected = static_cast<float>(size_) * (static_cast<float>(call % 1000) + static_cast<float>(last & 255)) +
                            static_cast<float>(size_ * (size_ - 1) / 2);
      if (data[last] != expected) throw std::runtime_error("wrong sum by " + name);
      shm_->barrier();
    }
    std::vector<ls::Bytes> parts;
    for (auto& list : times) parts.push_back(std::as_writable_bytes(std::span(list)));
    shm_->all_gather(parts);
    std::vector<double> calls;
    for (int call = 0; call < count_of_calls; ++call) {
      double begin = times[0][2 * call];
      double end = 0;
      for (const auto& list : times) {
        begin = std::min(begin, list[2 * call]);
        end = std::max(end, list[2 * call + 1]);
      }
      calls.push_back(end - begin);
    }
    return calls;
  }

  const Arguments arguments_;
  int rank_ = 0;
  int size_ = 1;
  std::unique_ptr<ls::ShmTransport> shm_;
  ls::SharedBlocks blocks_;
  std::vector<std::unique_ptr<ls::Transport>> engines_;
  std::vector<std::unique_ptr<ls::CanonicalSum>> sums_;
  std::map<std::string, Sum> candidates_;
};

}  // namespace
}  // namespace bench

int main(int argc, char** argv) {
  int given = 0;
  MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &given);
  int code = 0;
  try {
    bench::Bench(bench::parse(argc, argv)).run();
  } catch (const std::exception& error) {
    std::cerr << "engine_bench: " << error.what() << "\n";
    code = 1;
  }
  MPI_Finalize();
  return code;
}
