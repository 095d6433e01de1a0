// Parameter servers: this program plays all roles, and starts itself as the other tasks of its cluster.
//
//   ps_bench --work=transfers [--rounds=9] [--rows=10000000]
//   ps_bench --work=memory
//   ps_bench --work=closures|W1|W4|push_rows|push_dense [--servers=1] [--replication=1]
//                driven in windows, as train_bench (bench/windows.h); --seconds=S: one window
//
// transfers: 64 MB, and 10,000 random rows of 32 floats, to and from one server, in turns with raw TCP, MB/s. memory: what a
// server takes beside its variables and their optimizers' state. closures, W1, W4: empty closures or training steps on two
// workers. push_rows, push_dense: updates of 10,000 rows, or of 64 MB, from one process. Exit status 1 when what was read
// differs from what was written.

#include <cstdio>
#include <map>
#include <stdexcept>
#include <string>

#include "bench/ps_bench.h"
#include "bench/ps_raw.h"
#include "bench/ps_tasks.h"
#include "bench/windows.h"
#include "lockstep/serve/server.h"

namespace {

using Arguments = std::map<std::string, std::string>;

Arguments parse(int argc, char** argv) {
  Arguments arguments{{"rounds", "9"}, {"rows", "10000000"}, {"seconds", "0"}, {"servers", "1"}, {"replication", "1"}};
  for (int i = 1; i < argc; ++i) {
    const std::string text = argv[i];
    const auto equals = text.find('=');
    if (text.rfind("--", 0) != 0) throw std::invalid_argument("unknown argument '" + text + "'");
    arguments[text.substr(2, equals - 2)] = equals == std::string::npos ? "" : text.substr(equals + 1);
  }
  return arguments;
}

void run(Arguments& arguments) {
  const auto& work = arguments["work"];
  const auto seconds = std::stod(arguments["seconds"]);
  if (work == "transfers") return bench::measure_transfers(std::stoi(arguments["rounds"]), std::stoll(arguments["rows"]));
  if (work == "memory") return bench::measure_memory();
  const auto trainer = bench::make_ps_trainer(work, {std::stoi(arguments["servers"]), std::stoi(arguments["replication"])});
  if (seconds == 0) return bench::serve(*trainer);
  bench::run_window(*trainer, seconds / 4);
  bench::run_window(*trainer, seconds);
}

}  // namespace

int main(int argc, char** argv) try {
  auto arguments = parse(argc, argv);
  if (arguments.contains("child")) bench::Child::end_with_parent();
  if (arguments.contains("raw")) return bench::serve_raw(std::stoi(arguments["raw"]), std::stoll(arguments["rows"])), 0;
  if (lockstep::run_role_if_server()) return 0;
  run(arguments);
  return 0;
} catch (const std::exception& error) {
  std::fprintf(stderr, "ps_bench: %s\n", error.what());
  return 1;
}
