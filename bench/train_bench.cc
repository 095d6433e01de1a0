// Trains one of the models W1 to W5 in one of several ways, in windows that a driver asks for on standard input, so that
// several such programs can take turns on one machine:
//
//   train_bench --mode=lockstep|lockstep_no_overlap|worker|worker_no_overlap|independent|threads|fit|fit_everything|loop
//   --model=W1 run 1.5     trains for 1.5 seconds and prints one JSON line: examples/s, loss, processor seconds, page faults
//   memory      prints the process's peak memory
//   quit
//
// Between commands every thread is blocked. Other options: --replicas=2, --part=K (independent: which part of the data),
// --bucket_bytes=N, --channels_last, --loss=mean|average (lockstep: each replica's mean and averaged gradients, as all
// peers do, or compute_average_loss and summed gradients); --seconds=S runs one window without reading standard input.

#include <cstdio>
#include <stdexcept>

#include "bench/trainer.h"
#include "bench/windows.h"

namespace bench {
namespace {

struct Arguments {
  std::string mode = "lockstep";
  double seconds = 0;
  TrainOptions train = {};
};

Arguments parse(const std::vector<std::string>& texts) {
  Arguments arguments;
  for (const auto& text : texts) {
    const auto equals = text.find('=');
    const auto key = text.substr(0, equals);
    const auto value = equals == std::string::npos ? std::string() : text.substr(equals + 1);
    if (key == "--mode") arguments.mode = value;
    else if (key == "--model") arguments.train.model = value;
    else if (key == "--seconds") arguments.seconds = std::stod(value);
    else if (key == "--replicas") arguments.train.replicas = std::stoi(value);
    else if (key == "--part") arguments.train.part = std::stoll(value);
    else if (key == "--bucket_bytes") arguments.train.bucket_bytes = std::stoll(value);
    else if (key == "--channels_last") arguments.train.is_channels_last = true;
    else if (key == "--loss" && (value == "average" || value == "mean")) arguments.train.has_mean_loss = value == "mean";
    else throw std::invalid_argument("unknown argument '" + text + "'");
  }
  if (arguments.mode == "independent") arguments.train.replicas = 1;
  return arguments;
}

std::unique_ptr<Trainer> make_trainer(const Arguments& arguments) {
  if (arguments.mode == "lockstep") return make_lockstep_trainer(arguments.train, /*has_overlap=*/true);
  if (arguments.mode == "lockstep_no_overlap") return make_lockstep_trainer(arguments.train, /*has_overlap=*/false);
  if (arguments.mode == "worker") return make_worker_trainer(arguments.train, /*has_overlap=*/true);
  if (arguments.mode == "worker_no_overlap") return make_worker_trainer(arguments.train, /*has_overlap=*/false);
  if (arguments.mode == "loop") return make_loop_trainer(arguments.train);
  if (arguments.mode == "fit") return make_fit_trainer(arguments.train, /*has_everything=*/false);
  if (arguments.mode == "fit_everything") return make_fit_trainer(arguments.train, /*has_everything=*/true);
  if (arguments.mode == "independent" || arguments.mode == "threads") return make_plain_trainer(arguments.train);
  throw std::invalid_argument("unknown mode '" + arguments.mode + "'");
}

}  // namespace
}  // namespace bench

int main(int argc, char** argv) {
  try {
    const auto arguments = bench::parse(std::vector<std::string>(argv + 1, argv + argc));
    const auto trainer = bench::make_trainer(arguments);
    if (arguments.seconds > 0) {
      bench::run_window(*trainer, arguments.seconds);
      bench::print_memory(*trainer);
    } else {
      bench::serve(*trainer);
    }
    return 0;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "train_bench: %s\n", error.what());
    return 1;
  }
}
