#include "bench/windows.h"

#include <sys/resource.h>

#include <cstdio>
#include <fstream>
#include <iostream>
#include <sstream>
#include <stdexcept>

namespace bench {
namespace {

rusage usage_now() {
  rusage usage = {};
  getrusage(RUSAGE_SELF, &usage);
  return usage;
}

double seconds_between(const timeval& from, const timeval& to) {
  return static_cast<double>(to.tv_sec - from.tv_sec) + 1e-6 * static_cast<double>(to.tv_usec - from.tv_usec);
}

}  // namespace

long long status_bytes(const std::string& pid, const std::string& name) {
  std::ifstream status("/proc/" + pid + "/status");
  std::string line;
  while (std::getline(status, line))
    if (line.rfind(name + ":", 0) == 0) return std::stoll(line.substr(name.size() + 1)) * 1024;
  return 0;
}

void run_window(Trainer& trainer, double seconds) {
  const rusage before = usage_now();
  const Window window = trainer.train(seconds);
  const rusage after = usage_now();
  std::printf(
      "{\"examples_per_s\": %.1f, \"steps\": %lld, \"seconds\": %.4f, \"loss\": %.6f, \"user_s\": %.4f, "
      "\"system_s\": %.4f, \"page_faults\": %ld}\n",
      window.examples_per_second, static_cast<long long>(window.steps), window.seconds, window.loss,
      seconds_between(before.ru_utime, after.ru_utime), seconds_between(before.ru_stime, after.ru_stime),
      after.ru_minflt - before.ru_minflt);
  std::fflush(stdout);
}

void print_memory(const Trainer& trainer) {
  std::printf("{\"peak_bytes\": %lld, \"resident_bytes\": %lld, \"bucket_bytes\": %lld}\n", status_bytes("self", "VmHWM"),
              status_bytes("self", "VmRSS"), static_cast<long long>(trainer.bucket_bytes()));
  std::fflush(stdout);
}

void serve(Trainer& trainer) {
  std::printf("{\"ready\": true, \"libtorch\": \"%s\"}\n", TORCH_VERSION);
  std::fflush(stdout);
  std::string line;
  while (std::getline(std::cin, line)) {
    std::istringstream words(line);
    std::string command;
    double seconds = 0;
    words >> command >> seconds;
    if (command == "run") run_window(trainer, seconds);
    else if (command == "memory") print_memory(trainer);
    else if (command == "quit") return;
    else throw std::invalid_argument("unknown command '" + line + "'");
  }
}

}  // namespace bench
