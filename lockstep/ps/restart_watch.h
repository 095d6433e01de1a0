#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "lockstep/ps/recovery.h"
#include "lockstep/ps/rpc.h"

namespace lockstep::ps {

// Asks parameter servers now and then how they were started, and says it in the log when one was started again.
class RestartWatch {
 public:
  explicit RestartWatch(std::vector<std::shared_ptr<RpcChannel>> servers,
                        std::chrono::nanoseconds every = std::chrono::seconds(2));
  ~RestartWatch() = default;

  // Of all of them, as they are now. Throws kUnavailable or kDeadlineExceeded naming one that does not answer.
  std::vector<ServerRecovery> ask();

 private:
  void note(const ServerRecovery& recovery);
  void run(const std::stop_token& stop);

  // Const after construction.
  const std::vector<std::shared_ptr<RpcChannel>> servers_;
  const std::chrono::nanoseconds every_;

  std::mutex mu_;
  std::condition_variable_any wake_;
  // Guarded by mu_.
  std::map<std::string, std::uint64_t> known_;  // incarnations

  std::jthread thread_;  // last: joined first
};

}  // namespace lockstep::ps
