#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "lockstep/collective/transport.h"

// Engines that come from other libraries live in plugins (lib/lockstep/engine_<name>.so), opened when a job asks for them:
// a program that trains on one machine never loads them, and their symbols stay apart from those that LibTorch brings.

namespace lockstep {

// What an engine needs to find its peers.
struct EngineSetup {
  int rank = 0;
  int size = 1;
  // By rank: which worker of the job it is, and how many workers the job has. Empty: the ranks are the job's workers.
  std::vector<int> members = {};
  int workers = 0;
  // By rank: who is lost, for messages ("worker 2"). May be empty.
  std::vector<std::string> names = {};
  // Where this process can be reached by the others: a host name or an IP address.
  std::string host = "127.0.0.1";
  // Two engines of one job have different names: they do not hear each other.
  std::string name = "job";
  // For engines of GPU memory: which GPU, as CUDA counts them in this process.
  int device = 0;
  std::chrono::nanoseconds timeout = std::chrono::minutes(10);
  // The job's key-value store; get waits for the key, up to the timeout.
  std::function<void(const std::string& key, const std::string& value)> put;
  std::function<std::string(const std::string& key)> get;
  // Throws when the job has failed meanwhile; asked while an engine waits for its peers. May be empty.
  std::function<void()> check = {};
};

// Opens the plugin and connects to all peers. Throws kUnimplemented, saying what to install, when this build or this
// machine has no such engine; kUnavailable and kDeadlineExceeded when peers cannot be reached.
std::unique_ptr<Transport> make_engine(const std::string& engine, const EngineSetup& setup);

// Whether make_engine("gloo") and the like would find their plugin; `why` says what is missing.
bool has_engine(const std::string& engine, std::string* why = nullptr);

// What an engine of GPU memory calls a GPU of this process: equal for two processes that it cannot serve both, since they
// share the GPU. Throws kUnimplemented for another engine, kInternal for a GPU that is not there.
std::string name_device(const std::string& engine, int device);

}  // namespace lockstep
